"""Policy decision points: the ``PolicyEngine`` protocol, the five questions, and the engines that answer them.

Parent side (asyncio, never blocks the loop)::

    engine       the protocol and its one error
    entrypoints  the five questions and their exact result types
    asking       one question to whatever answers: canonical input in, a checked decision out
    loading      LoadingEngine: prepare a bundle, activate it, evaluate, retire the old one
    embedded     EmbeddedEngine: a LoadingEngine over regorus in children
    opa/         the OPA server as an engine: supervised (a LoadingEngine too) or remote
    pool         questions queue for children that hold one revision; a spare child stands by
    lane         one child and the questions that it holds
    child        one killable process behind a socket
    bundle       a folder of Rego or an OPA bundle: read once, verified, with its revision and its origin
    files        the files of a folder, and which of them count; archive and tar take a .tar.gz apart
    manifest     what .manifest says, and the roots that it sets
    documents    data.json and data.yaml: strict, merged and digested as OPA does
    signatures   .signatures.json against the configured keys; jws holds keys and tokens
    reload       BundleWatch: polls, refuses loudly, swaps after the activation was recorded
    watching     what it shares with the watch over a remote OPA: the poll, and refusals that are told once

For people, in throw-away processes that no decision depends on::

    throwaway    a bundle looked at in a child that is killed afterwards
    explain      a decision with the rules that fired; fired holds what a rule is
    trials       a run of a bundle's tests, with coverage by rules and by lines
    reviewer     what to correct or to ask about in a bundle; review/ holds the checks, schemas/ the input's schema
    advice       the next step for what an engine says of a policy in its own words
    standing     what the daemon last did about its policy, in a file beside its store

Decisions on record::

    inputs       the shape of an input, what of it is kept, and how it is put together again
    verdicts     what follows from an answer, so that two can be compared
    recorded     the decisions of a ledger and their exact inputs
    diff         asked again by another bundle: which would change

Child side (``worker`` is its main)::

    worker       limits itself, then reads frames until the stream ends
    answers      the one Rego engine: load, evaluate, check, review, test, explain
    modules      modules and data into an engine, one query out of it
    checks       what a bundle must pass before it may be activated: lint, compile, probes, its own tests
    firing       a copy of a bundle that says which rules fire; explaining and trying ask it
    linter       refuses what the embedded engine would answer differently from OPA
    negation     the part of the linter that looks below ``not``
    syntax       the engine's syntax tree: walking, names, places
    builtins     arity of every builtin that is allowed, and why the others are not
    affixes      the part that looks at builtins which OPA's rule index makes silent; bodies and opa.bodies read rules
                 for it, text_paths says what is a string for sure
    replacements builtins that the engine gets wrong, done again; patterns holds regex and glob, formats sprintf, texts
                 letters and JSON (letter_case is generated), queries URLs, integers the rest
    samples      inputs for the probes

``faults`` and ``frames`` serve both sides. May not live here: what a decision means for an execution, records of
activations (the composition root hands in callbacks), gRPC, any wall clock.
"""
