"""The contract for spans and attributes, the recorder for stages, and the export over OTLP.

``recorder`` rows on the hot path · ``contract`` the table of everything exported · ``context`` W3C trace context in and
out · ``sampling`` which traces are exported · ``spans`` rows to spans · ``exporter`` queue, thread, OTLP · ``tracing``
begin, admit, finish · ``setup`` logging in JSON lines.

Stages import only ``recorder``, the attribute names from ``contract``, and ``context.outgoing``. May not live here:
anything that a stage waits for, arguments, outputs, credentials, OpenTelemetry's ambient context.
"""
