"""The span and attribute contract in one table, the recorder that stages write into, and the way out over OTLP.

``recorder`` rows on the hot path · ``contract`` what may leave, in one table · ``context`` W3C trace context in and
out · ``sampling`` which traces are kept · ``spans`` rows to spans · ``exporter`` queue, thread, OTLP · ``tracing``
begin, admit, finish · ``setup`` logging in JSON lines.

Stages import ``recorder``, the names of attributes from ``contract``, and ``context.outgoing`` only. May not live here:
anything that a stage waits for, arguments, outputs, credentials, OpenTelemetry's ambient context.
"""
