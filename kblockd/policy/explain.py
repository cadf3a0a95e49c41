"""A decision with the rules that fired, for people: asked of a throw-away process, never of what decides.

Both engines answer in the same form, and list the same rules for the same input (tests/integration/policy).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Protocol

from kblockd.domain.errors import Reason
from kblockd.policy import floor, throwaway
from kblockd.policy.asking import Asker
from kblockd.policy.bundle import Bundle
from kblockd.policy.engine import Decision, PolicyFailure
from kblockd.policy.entrypoints import DECISION
from kblockd.policy.fired import Rule, rules_of
from kblockd.policy.floor import Floors, Ruling
from kblockd.policy.pool import EmbeddedLimits

_NOTHING: Final[Mapping[str, Any]] = {"error": "it was not asked"}


@dataclass(frozen=True, slots=True)
class Observed:
    """A reply as ``kblockd.policy.asking.Ask`` has it, and the rules that fired, in the order of the files."""

    reply: Mapping[str, Any]
    rules: tuple[Rule, ...]


class Observer(Protocol):
    """An engine that also sees which rules fire."""

    async def observe(self, bundle: Bundle, entrypoint: str, document: bytes) -> Observed:
        """``document`` is canonical; raises ``PolicyRefused`` for a bundle that it cannot ask."""
        ...


@dataclass(frozen=True, slots=True)
class Explanation:
    """``decision`` is what the daemon would have been told, or None: then ``failure`` says why that is a denial.

    ``value`` is the answer as it came, also where its type is wrong; None when there was none. ``ruling``: what code
    makes of a decision, the approval floor included; None for the other entry points and where there is no decision.
    """

    entrypoint: str
    revision: str
    decision: Decision | None
    failure: PolicyFailure | None
    value: Any
    rules: tuple[Rule, ...]
    ruling: Ruling | None = None

    @property
    def reason(self) -> Reason | None:
        """Why there is no decision."""
        return self.failure.reason if self.failure else None


async def explain(
    bundle: Bundle,
    entrypoint: str,
    document: Mapping[str, Any],
    observer: Observer,
    asker: Asker,
    floors: Floors = MappingProxyType({}),
) -> Explanation:
    """What the bundle decides for an input, and by which rules; raises ``PolicyRefused`` for one that does not load.

    The deadline of a question does not count here; what takes longer than a load may is refused.
    """
    seen = Observed(_NOTHING, ())

    async def ask(entrypoint: str, body: bytes) -> Mapping[str, Any]:
        nonlocal seen
        seen = await observer.observe(bundle, entrypoint, body)
        return seen.reply

    decision, failure = None, None
    try:
        decision = await asker.decide(lambda: (bundle.revision, ask), entrypoint, document)
    except PolicyFailure as no_decision:
        failure = no_decision
    ruling = None
    if decision is not None and entrypoint == DECISION:
        ruling = floor.of_input(decision.result, document, floors)
    return Explanation(entrypoint, bundle.revision, decision, failure, seen.reply.get("value"), seen.rules, ruling)


@dataclass(frozen=True, slots=True)
class EmbeddedObserver:
    """``quoting``: errors may quote the input; only where whoever asks has given it."""

    limits: EmbeddedLimits
    quoting: bool = False

    async def observe(self, bundle: Bundle, entrypoint: str, document: bytes) -> Observed:
        """See ``Observer``."""
        header = {
            "op": "explain",
            "entrypoint": entrypoint,
            "document": document.decode(),
            "quoting": self.quoting,
        }
        return await throwaway.ask(header, bundle, self.limits, "explaining it", _observed)


def _observed(reply: Mapping[str, Any]) -> Observed:
    return Observed(dict(reply["answer"]), rules_of(reply["rules"]))
