"""Policy decision points: the ``PolicyEngine`` protocol, the five questions, and the engines that answer them.

Parent side (asyncio, never blocks the loop)::

    engine       the protocol and its one error
    entrypoints  the five questions and their exact result types
    asking       one question to whatever answers: canonical input in, a checked decision out
    loading      LoadingEngine: prepare a bundle, activate it, evaluate, retire the old one
    embedded     EmbeddedEngine: a LoadingEngine over regorus in children
    opa/         the OPA server as an engine: supervised (a LoadingEngine too) or remote
    pool         questions queue for children that hold one revision; a spare child stands by
    child        one killable process behind a socket
    bundle       a folder of Rego read once, with its revision
    reload       PolicyFolder: polls, refuses loudly, swaps after the activation was recorded

Child side (``worker`` is its main)::

    worker       limits itself, then reads frames until the stream ends
    answers      the one Rego engine: load, check, evaluate
    modules      modules and data into an engine, one query out of it
    checks       what a bundle must pass before it may be activated: lint, compile, probes, its own tests
    linter       refuses what the embedded engine would answer differently from OPA
    negation     the part of the linter that looks below ``not``
    syntax       the engine's syntax tree: walking, names, places
    builtins     arity of every builtin that is allowed, and why the others are not
    replacements builtins that the engine gets wrong, done again; patterns holds regex and glob,
                 formats sprintf
    samples      inputs for the probes

``faults`` and ``frames`` serve both sides. May not live here: what a decision means for an execution, records of
activations (the composition root hands in callbacks), gRPC, any wall clock.
"""
