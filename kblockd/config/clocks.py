"""C3 and C4: the clocks must fit together over all contracts, or the start is refused with the numbers.

``close_after >= absolute_deadline + exchange + reconcile + verification.maximum_duration + skew``; otherwise the sweep
would close executions that are still being reconciled or verified.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kblockd.config.fault import ConfigurationFault
from kblockd.config.model import DaemonFile
from kblockd.config.sources import Source
from kblockd.domain.contract import ActionContract, Path

_HEARTBEATS = 3


def faults(daemon: Source[DaemonFile], contracts: Sequence[Source[ActionContract]]) -> Iterator[ConfigurationFault]:
    """Every clock that does not fit; needs a valid kblockd.yaml and skips contracts that have faults."""
    if daemon.model is None:
        return
    yield from _lease(daemon, daemon.model)
    for source in contracts:
        if source.model is not None:
            yield from _closure(daemon, daemon.model, source, source.model)
            yield from _absence(daemon, daemon.model, source, source.model)


def _lease(daemon: Source[DaemonFile], model: DaemonFile) -> Iterator[ConfigurationFault]:
    clocks = model.clocks
    ttl, heartbeat, skew = clocks.lease_ttl_seconds, clocks.heartbeat_seconds, clocks.skew_seconds
    at = ("clocks", "lease_ttl_seconds")
    if ttl < _HEARTBEATS * heartbeat:
        message = f"{ttl} s is less than {_HEARTBEATS} heartbeats of {heartbeat} s ({_at(daemon, 'heartbeat_seconds')})"
        yield daemon.document.fault(at, message, f"set at least {_HEARTBEATS * heartbeat}, or a shorter heartbeat")
    if ttl <= heartbeat + skew:
        message = (
            f"{ttl} s leaves no time to renew: heartbeat {heartbeat} s ({_at(daemon, 'heartbeat_seconds')}) + "
            f"skew {skew} s ({_at(daemon, 'skew_seconds')})"
        )
        yield daemon.document.fault(at, message, f"set more than {heartbeat + skew}")


def _closure(
    daemon: Source[DaemonFile], model: DaemonFile, source: Source[ActionContract], contract: ActionContract
) -> Iterator[ConfigurationFault]:
    clocks = model.clocks
    parts: list[tuple[int, str]] = [
        (contract.execution.absolute_deadline_seconds, _in(source, ("execution", "absolute_deadline_seconds"))),
        (contract.execution.request_timeout_seconds, _in(source, ("execution", "request_timeout_seconds"))),
        (clocks.reconcile_seconds, f"clocks.reconcile_seconds {_at(daemon, 'reconcile_seconds')}"),
        (contract.verification.maximum_duration_seconds, _in(source, ("verification", "maximum_duration_seconds"))),
        (clocks.skew_seconds, f"clocks.skew_seconds {_at(daemon, 'skew_seconds')}"),
    ]
    needed = sum(seconds for seconds, _ in parts)
    if clocks.close_after_seconds >= needed:
        return
    terms = " + ".join(f"{seconds} ({where})" for seconds, where in parts)
    yield daemon.document.fault(
        ("clocks", "close_after_seconds"),
        f"{clocks.close_after_seconds} s would close executions that are still running: {terms} = {needed} s",
        f"set at least {needed}, or shorten the times in {source.file}",
    )


def _absence(
    daemon: Source[DaemonFile], model: DaemonFile, source: Source[ActionContract], contract: ActionContract
) -> Iterator[ConfigurationFault]:
    """A lookup whose absence becomes final only after the reconciliation has ended would silently prove nothing."""
    bound = model.clocks.reconcile_seconds
    for position, entry in enumerate(contract.lookup):
        wait = entry.absent_final_after_seconds
        if wait is not None and wait > bound:
            yield source.document.fault(
                ("lookup", position, "absent_final_after_seconds"),
                f"{wait} s is longer than clocks.reconcile_seconds, {bound} s ({_at(daemon, 'reconcile_seconds')})",
                "shorten it, or raise clocks.reconcile_seconds",
            )


def _at(daemon: Source[DaemonFile], key: str) -> str:
    return str(daemon.document.place(("clocks", key)))


def _in(source: Source[ActionContract], path: Path) -> str:
    return f"{'.'.join(map(str, path))} {source.document.place(path)}"
