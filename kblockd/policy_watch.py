"""Brings policy revisions into force: prepares the first one, and records each activation and refusal."""

from __future__ import annotations

import logging
from contextlib import suppress

from kblockd.config import PolicySettings
from kblockd.decision_point import Activated, NewWatch, Watch
from kblockd.domain.ledger import rows
from kblockd.execution.activate import Activation
from kblockd.policy.engine import PolicyEngine
from kblockd.policy.faults import PolicyRefused
from kblockd.policy.loading import LoadingEngine
from kblockd.policy.standing import StandingFile

_log = logging.getLogger(__name__)


async def prepare(engine: PolicyEngine, settings: PolicySettings) -> None:
    """Loads the bundle ahead of its activation, which reports a refusal; a remote OPA prepares its own."""
    if isinstance(engine, LoadingEngine):
        with suppress(PolicyRefused):
            await engine.prepare(settings.bundle)


def watch(engine: PolicyEngine, new_watch: NewWatch, activation: Activation, standing: StandingFile) -> Watch:
    """A watch whose activations and refusals go to the ledger, the log and the standing file."""

    async def activated(revision: Activated) -> None:
        name = engine.status().engine
        await activation.policy(revision.revision, name, revision.tests, revision.to_json(), revision.origin)

    async def in_force(revision: Activated) -> None:
        recorded = await activation.store.get(rows.policy())  # durable
        _log.info("policy revision %s is in force, %s", revision.revision, revision.origin)
        await standing.activated(revision.revision, recorded[1].at if recorded else "", revision.origin.signer)

    async def refused(error: PolicyRefused) -> None:
        status = engine.status()
        remaining = f"revision {status.revision} stays" if status.ready else "every call is denied, as none is"
        _log.error("policy refused, %s in force: %s", remaining, error)
        await activation.policy_refused(error.revision, len(error.faults))
        await standing.refused(error)

    return new_watch(activated, in_force, refused)
