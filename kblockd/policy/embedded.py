"""The embedded Rego engine: regorus in killable children, one revision at a time, swapped whole."""

from __future__ import annotations

import asyncio
from typing import Final

from kblockd.domain.clock import Clock
from kblockd.domain.ids import Ids
from kblockd.policy.asking import Asker
from kblockd.policy.bundle import Bundle
from kblockd.policy.child import Child, ChildFailed
from kblockd.policy.faults import Fault, PolicyRefused
from kblockd.policy.loading import LoadingEngine, unloadable
from kblockd.policy.pool import EmbeddedLimits, Pool

ENGINE: Final = "embedded"


class EmbeddedEngine(LoadingEngine):
    """A ``LoadingEngine`` over regorus in killable children."""

    def __init__(self, limits: EmbeddedLimits, clock: Clock, ids: Ids) -> None:
        super().__init__(
            Asker(ENGINE, clock, ids),
            lambda bundle: check(bundle, limits),
            lambda bundle: Pool(bundle, limits),
        )


async def check(bundle: Bundle, limits: EmbeddedLimits, *, server: bool = False) -> Bundle:
    """Lint, compile, probes and the bundle's own tests in a throw-away child; raises ``PolicyRefused``.

    The bundle comes back with the number of tests that passed. Whatever kills the child or keeps it beyond
    ``load_seconds`` refuses the bundle: a parser bomb, a runaway test, a bundle that wants too much memory.
    ``server``: the bundle is meant for an OPA server, where ``time.now_ns`` is not the decision's time.
    """
    try:
        child = await Child.spawn(limits.memory_mib)
    except OSError as error:
        fault = unloadable(f"no process to check it ({error.strerror})")
        raise PolicyRefused([fault], revision=bundle.revision, passing=True) from error
    try:
        async with asyncio.timeout(limits.load_seconds):
            reply = await child.request({"op": "check", "server": server}, bundle.to_json())
        faults = [Fault.from_json(row) for row in reply["faults"]]
        tests = int(reply["tests"])
    except TimeoutError:
        faults = [unloadable(f"checking it took longer than {limits.load_seconds:g} s")]
    except ChildFailed:
        faults = [unloadable(f"checking it ended the process, which may use {limits.memory_mib} MiB")]
    except (KeyError, TypeError, ValueError):
        faults = [unloadable(str(reply.get("error", "the check sent something that is not a reply")))]
    finally:
        await child.kill()
    if faults:
        raise PolicyRefused(faults, revision=bundle.revision)
    return Bundle(bundle.modules, bundle.data, bundle.revision, tests)
