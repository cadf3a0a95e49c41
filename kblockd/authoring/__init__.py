"""For policy authors and auditors, in temporary processes that no decision depends on.

    commands      the entry points, by the configured engine: explain, run the tests, review
    explain       a decision with the rules that fired
    trials        a run of a bundle's tests, with coverage by rules and by lines
    reviewer      a bundle's review; review/ holds the checks
    recorded      the decisions of a ledger and their exact inputs
    diff          those decisions made again by another bundle: which would change
    embedded/     a worker over regorus: an instrumented copy of the bundle tells which rules fire
    opa/          the same by ``opa eval|test --coverage``

``explain`` and ``trials`` hold the one implementation; an engine only adds what it alone can know: which rules
fired, which lines were evaluated, how each test went. The daemon does not import it to decide. This module stays empty:
a worker imports it before it has limited itself.
"""
