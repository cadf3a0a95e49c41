"""Sampling: decided at the start, for upstreams, and again at the end, for our own export.

At the start by the flag of a caller whose principal is configured as trusted, else by a ratio of trace ids. At the end
every trace with an error, an unknown outcome or a hold is added; its rows have been recorded anyway.
Source: kblockd/telemetry/README.md#cost; ``telemetry.sample_ratio`` and ``telemetry.trust_parent_sampling``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from kblockd.domain.states import ResultClass, State
from kblockd.telemetry.contract import RESULT_CLASS, STATE
from kblockd.telemetry.recorder import Trace, Value

_ALWAYS: Final[Mapping[str, frozenset[str]]] = {
    RESULT_CLASS: frozenset(
        {
            ResultClass.UNKNOWN_OUTCOME.value,
            ResultClass.PARTIALLY_COMPLETED.value,
            ResultClass.FAILED_AFTER_SIDE_EFFECT.value,
            ResultClass.COMPENSATION_FAILED.value,
        }
    ),
    STATE: frozenset({State.HELD.value}),
}


@dataclass(frozen=True, slots=True)
class Sampling:
    """``ratio`` from 0 to 1, ``trusted`` principal ids. ``key`` (at most 64 bytes, random at each start) keeps callers
    from choosing trace ids that are always sampled; under one key the decision depends only on the id."""

    ratio: float
    trusted: frozenset[str] = frozenset()
    key: bytes = b""

    def __post_init__(self) -> None:
        if not 0 <= self.ratio <= 1:
            raise ValueError(f"telemetry.sample_ratio: {self.ratio} is not between 0 and 1; give a ratio such as 0.01")
        if len(self.key) > 64:
            raise ValueError(f"the sampling key has {len(self.key)} bytes; give at most 64")

    def at_start(self, trace: Trace, principal: str) -> bool:
        """A trusted caller's flag decides, set or not; without one, or for anybody else, the ratio does."""
        if trace.parent_sampled is not None and principal in self.trusted:
            return trace.parent_sampled
        if self.ratio in (0, 1):
            return self.ratio == 1
        digest = hashlib.blake2b(trace.trace_id.encode(), key=self.key, digest_size=8).digest()
        return int.from_bytes(digest) < self.ratio * 2**64

    def at_end(self, trace: Trace) -> bool:
        """True if sampled at the start, or for an outcome that always deserves a trace."""
        if trace.sampled or _always(trace.attributes):
            return True
        return any(row.error or (row.attributes and _always(row.attributes)) for row in trace.rows)


def _always(attributes: Mapping[str, Value]) -> bool:
    for name, words in _ALWAYS.items():
        value = attributes.get(name)
        if isinstance(value, str) and value in words:
            return True
    return False
