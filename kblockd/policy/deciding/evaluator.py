"""One query to one revision: canonical input in, a type-checked and attributed ``Decision`` out.

The same for every engine, so that no engine can forget the type check, the digest or the revision.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from kblockd.admission.offload import offload, size_of
from kblockd.domain.canonical import NotCanonical, canonical, sha256_hex
from kblockd.domain.clock import Clock
from kblockd.domain.errors import Reason
from kblockd.domain.ids import Ids
from kblockd.policy.deciding import entrypoints
from kblockd.policy.deciding.engine import Decision, PolicyFailure
from kblockd.policy.deciding.inputs import Question

Ask = Callable[[str, bytes], Awaitable[Mapping[str, Any]]]
"""Entry point and canonical input to ``{"value": ...}``, ``{"undefined": true}`` or ``{"error": ...}``.

An error of a rule over this input, not of the engine, comes with ``"rule": true``."""

InForce = Callable[[], tuple[str, Ask]]
"""The revision that decides now and whom to ask; raises ``PolicyFailure`` where there is none."""

CLOSED = "the policy engine is closed"
_CONTRACTS: Final = 256
_CONTRACT_BYTES: Final = 32 * 1024


@dataclass(frozen=True, slots=True)
class Evaluator:
    """Turns replies into decisions of one engine."""

    engine: str
    clock: Clock
    ids: Ids

    async def decide(self, in_force: InForce, entrypoint: str, document: Mapping[str, Any]) -> Decision:
        """Raises ``PolicyFailure`` that names the entry point and the revision that was asked, and nothing else.

        ``in_force`` is called after the input is serialised, which happens off the loop for a large one, so that a
        revision retired by a reload meanwhile is not asked.
        """
        started, revision = self.clock.monotonic(), ""
        try:
            body, digest = await offload(_contracts.size_without(document), _written, document)
            revision, ask = in_force()
            result = await _result(ask, entrypoint, body)
        except PolicyFailure as failure:
            failure.entrypoint, failure.revision = entrypoint, revision
            raise
        microseconds = int((self.clock.monotonic() - started) * 1_000_000)
        return Decision(entrypoint, result, self.engine, revision, self.ids.new("decision"), digest, microseconds)


def nothing_in_force(entrypoint: str, *, closed: bool) -> PolicyFailure:
    """The failure of a question that meets no revision."""
    if closed:
        return PolicyFailure(Reason.POLICY_DOWN, CLOSED, entrypoint=entrypoint)
    return PolicyFailure(Reason.POLICY_UNDEFINED, "no policy is active", entrypoint=entrypoint)


async def _result(ask: Ask, entrypoint: str, body: bytes) -> Mapping[str, Any]:
    if entrypoint not in entrypoints.ENTRYPOINTS:
        raise PolicyFailure(Reason.POLICY_UNDEFINED, f"{entrypoint} is not an entry point")
    reply = await ask(entrypoint, body)
    if "value" in reply:
        return await offload(size_of(reply), entrypoints.check, entrypoint, reply["value"])
    if reply.get("undefined") is True:
        raise PolicyFailure(Reason.POLICY_UNDEFINED, f"{entrypoint} is undefined for this input")
    reason = Reason.POLICY_ERROR if reply.get("rule") is True else Reason.POLICY_DOWN
    raise PolicyFailure(reason, f"{entrypoint}: {reply.get('error', 'no answer')}")


class Contracts:
    """The canonical form of contracts: the largest member of every question, the same object each time, never changed.

    Each is kept with its text, so that its identity stays its own. A large one is not kept: questions may also come
    from people who try a policy out."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Any, bytes]] = {}

    def text(self, contract: Any) -> bytes:
        """Raises ``NotCanonical``."""
        known = self._known.get(id(contract))
        if known is not None:
            return known[1]
        text = canonical(contract)
        if len(text) > _CONTRACT_BYTES:
            return text
        if len(self._known) >= _CONTRACTS:
            self._known.clear()
        self._known[id(contract)] = (contract, text)
        return text

    def size_without(self, document: Mapping[str, Any]) -> int:
        """As ``size_of``, of what must be written; the text of a contract is known but for the first time."""
        known = self._known.get(id(document.get("contract")))
        return size_of(document) - (len(known[1]) if known is not None else 0)


_contracts: Final = Contracts()


def input_text(document: Mapping[str, Any]) -> bytes:
    """The canonical form of a question, around the text of its contract; raises ``NotCanonical``."""
    if "contract" not in document:
        return canonical(document)
    contract = _contracts.text(document["contract"])
    if isinstance(document, Question):
        return document.text(contract)
    return canonical({**document, "contract": orjson.Fragment(contract)})


def _written(document: Mapping[str, Any]) -> tuple[bytes, str]:
    """With its digest."""
    try:
        text = input_text(document)
        return text, sha256_hex(text)
    except NotCanonical as error:
        raise PolicyFailure(Reason.POLICY_TYPE, f"the input has no canonical form: {error}") from None
    except RecursionError:
        raise PolicyFailure(Reason.POLICY_TYPE, "the input is nested too deeply") from None
