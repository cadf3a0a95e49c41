"""Where an action's effect is: the place that the action digest names, whatever is configured now.

After the consumption the upstream's configuration may change under a restart. Another place knows nothing of the
effect, so its "absent" would be taken for a proof and its "present" for somebody else's deed: it is not asked (UPS-14).
"""

from __future__ import annotations

from typing import Final

from kblockd.execution.action import Run
from kblockd.execution.decide import place_sha256
from kblockd.execution.parts import Parts
from kblockd.upstream.catalog import Upstream

UPSTREAM_CHANGED: Final = "UPSTREAM_CHANGED"


def agreed_upstream(parts: Parts, run: Run) -> Upstream | None:
    """The upstream of the action at the origin, path and adapter that were agreed; None when it is not configured so.

    Raises ``Conflict`` as ``Journal.row``.
    """
    upstream = parts.upstreams.get(run.action.upstream)
    if upstream is None or str(upstream.origin) != run.action.origin:
        return None
    return upstream if run.journal.row(parts).place_sha256 == place_sha256(upstream) else None
