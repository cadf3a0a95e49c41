"""The pipeline: ``pipeline.py`` shows the stages on one screen, and each stage is a module of its own.

Each stage takes the previous stage's type, so that a wrong order does not type-check. What happens to an execution
goes through its ``Journal`` (one place that commits); who runs it is the ``Supervisor`` (the run belongs to the
daemon, not to the RPC); what a caller may see of it is made in ``answers``. ``refusals`` puts on record what did not
begin. ``retention`` erases what was kept of policy questions. How it is known that a call had no effect stands in
``absence`` alone; ``confirm`` looks once more before that is sealed, and ``place`` says whom to ask.

May not live here: gRPC, YAML, RocksDB, Rego syntax, anything about one kind of upstream.
"""
