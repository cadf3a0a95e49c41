"""What stage 0 decided, on record (``authz.decided``): may that principal call that method, and which rows may it see.

Once for each question that was put to the engine. An answer that is remembered (``rpc/identity``) is no new decision.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from kblockd.domain.clock import rfc3339
from kblockd.domain.ledger import Record
from kblockd.domain.ledger.configuration import AuthzDecided
from kblockd.domain.principal import Principal
from kblockd.domain.stages import Stage
from kblockd.execution.parts import Parts
from kblockd.execution.questions import Asked
from kblockd.policy.deciding import Decision, entrypoints
from kblockd.store.protocol import Append, StoreFailed

_log = logging.getLogger(__name__)


async def record(
    parts: Parts, principal: Principal, method: str, document: Mapping[str, Any], decision: Decision
) -> bool:
    """Ordered when it returns True. One that cannot be written decides nothing: what the call goes on to do needs the
    same store. While the disk is short it is not written, and so must not be remembered: False."""
    if not parts.capacity.has_space():
        return False
    answer = entrypoints.authz(decision.result)
    decided, kept = Asked(document, decision, tuple(entrypoints.codes(answer.reasons))).on_record(parts, "")
    body = AuthzDecided(
        principal=principal.id, method=method, allow=answer.allow, view_sha256=answer.view_sha256, **decided
    )
    at = rfc3339(parts.clock.now())
    leaf = Record(body, at, principal.tenant, stage=Stage.AUTHENTICATE.order).leaf()
    try:
        await parts.store.commit([], [Append(leaf)], kept)
    except StoreFailed:
        _log.warning("a decision on who may call %s could not be recorded", method)
        return False
    parts.admission.recorded(1)
    return True
