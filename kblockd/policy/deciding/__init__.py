"""Ask one of the five questions, and check and compare the decisions.

    engine       the ``PolicyEngine`` protocol, ``Decision`` and ``PolicyFailure``
    entrypoints  the five questions and their exact result types
    inputs       the shape of an input, what of it is kept, and how it is reassembled
    evaluator    one question to whatever answers: canonical input in, a checked decision out
    shared       an engine that no principal can crowd out
    floor        the approval floor under policy's decisions
    verdicts     what follows from a decision, in a form in which two compare
    candidate    evaluates a candidate revision beside the one in force
    explanation  a decision with the rules that fired
    samples      inputs for the probes of an activation

Knows neither bundles nor any engine's processes. What a decision means for an execution is decided elsewhere.
"""

from kblockd.policy.deciding.engine import Decision, PolicyEngine, PolicyFailure, PolicyStatus

__all__ = ["Decision", "PolicyEngine", "PolicyFailure", "PolicyStatus"]
