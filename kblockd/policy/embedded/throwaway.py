"""One request about a bundle, to a child that is killed afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from kblockd.policy.bundles.bundle import Bundle
from kblockd.policy.embedded.child import Child, ChildFailed
from kblockd.policy.embedded.pool import EmbeddedLimits
from kblockd.policy.faults import BundleFault, BundleRefused, unloadable

T = TypeVar("T")
Read = Callable[[Mapping[str, Any]], T]


async def ask(
    header: Mapping[str, Any],
    bundle: Bundle,
    limits: EmbeddedLimits,
    doing: str,
    read: Read[T],
    worker: str = "kblockd.policy.embedded.worker",
) -> T:
    """What ``read`` makes of the reply; ``doing`` (such as "checking it") begins the sentence that says what failed;
    ``worker`` is the module that the child runs.

    Raises ``BundleRefused``: with the faults of the reply, or with one that says that the child was killed or took
    longer than ``load_seconds``: a parser bomb, a runaway rule, a bundle that wants too much memory. ``read`` may raise
    ``KeyError``, ``TypeError`` or ``ValueError``.
    """
    try:
        child = await Child.spawn(limits.memory_mib, worker)
    except OSError as error:
        raise _refused(bundle, f"no process for {doing} ({error.strerror})", transient=True) from error
    reply: Mapping[str, Any] = {}
    try:
        async with asyncio.timeout(limits.load_seconds):
            reply = await child.request(header, bundle.to_json())
        faults = [BundleFault.from_json(row) for row in reply.get("faults", ())]
        result = None if faults else read(reply)
    except TimeoutError:
        raise _refused(bundle, f"{doing} took longer than {limits.load_seconds:g} s") from None
    except ChildFailed:
        raise _refused(bundle, f"{doing} ended the process, which may use {limits.memory_mib} MiB") from None
    except (KeyError, TypeError, ValueError):
        unread = f"{doing} brought something that is not a reply"
        raise _refused(bundle, str(reply.get("error", unread))) from None
    finally:
        await child.kill()
    if result is None:
        raise BundleRefused(faults, revision=bundle.revision)
    return result


def _refused(bundle: Bundle, message: str, *, transient: bool = False) -> BundleRefused:
    return BundleRefused([unloadable(message)], revision=bundle.revision, transient=transient)
