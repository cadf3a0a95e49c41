"""A decision with the rules that fired, from a temporary process, never from the deciding engine.

Both engines answer in the same form, and list the same rules for the same input (tests/integration/policy).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Protocol

from kblockd.policy.bundles.bundle import Bundle
from kblockd.policy.deciding import PolicyFailure, floor
from kblockd.policy.deciding.entrypoints import DECISION
from kblockd.policy.deciding.evaluator import Evaluator
from kblockd.policy.deciding.explanation import Explanation, Rule
from kblockd.policy.deciding.floor import Floors

_NOTHING: Final[Mapping[str, Any]] = {"error": "it was not asked"}


@dataclass(frozen=True, slots=True)
class Observed:
    """``reply``: see ``kblockd.policy.deciding.evaluator.Ask``; ``rules`` fired, in the order of the files."""

    reply: Mapping[str, Any]
    rules: tuple[Rule, ...]


class Observer(Protocol):
    """An engine that also sees which rules fire."""

    async def observe(self, bundle: Bundle, entrypoint: str, document: bytes) -> Observed:
        """``document`` is canonical; raises ``BundleRefused`` for a bundle that it cannot ask."""
        ...


async def explain_by(
    bundle: Bundle,
    entrypoint: str,
    document: Mapping[str, Any],
    observer: Observer,
    evaluator: Evaluator,
    floors: Floors = MappingProxyType({}),
) -> Explanation:
    """What the bundle decides for an input, and by which rules; raises ``BundleRefused`` for one that does not load.

    The deadline of a question does not count here; what takes longer than a load may is refused.
    """
    seen = Observed(_NOTHING, ())

    async def ask(entrypoint: str, body: bytes) -> Mapping[str, Any]:
        nonlocal seen
        seen = await observer.observe(bundle, entrypoint, body)
        return seen.reply

    decision, failure = None, None
    try:
        decision = await evaluator.decide(lambda: (bundle.revision, ask), entrypoint, document)
    except PolicyFailure as no_decision:
        failure = no_decision
    ruling = None
    if decision is not None and entrypoint == DECISION:
        ruling = floor.of_input(decision.result, document, floors)
    return Explanation(entrypoint, bundle.revision, decision, failure, seen.reply.get("value"), seen.rules, ruling)
