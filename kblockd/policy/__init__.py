"""Policy decision points: two Rego engines behind one protocol, and the bundles that they decide by.

Each room says in its ``__init__`` what it holds, and may import only from those below it (pyproject.toml)::

    opa         the OPA server as an engine: supervised or remote      embedded    regorus in child processes
    activation  a bundle comes into force
    deciding    questions, decisions, the protocol      bundles    a bundle, read and verified      rego    the linter
    builtins    what a policy may call
    faults      why a bundle was refused

``threads`` serves the rooms that start processes. What policy authors use on top is ``kblockd.authoring``. May not live
here: what a decision means for an execution, records of activations, gRPC, any wall clock.
"""
