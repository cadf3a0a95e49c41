"""The table played against one daemon in a process of its own: many lanes at once, in each one row after the other.

A lane is an upstream with one contract. What leaves its upstream unusable, or takes long, has a lane of its own.
"""

from __future__ import annotations

import contextlib
import json
import re
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from kblockd.client import Call, CallError, Client
from kblockd.client.answers import Answer
from tests.harness import Site, approve
from tests.integration.hostile.lanes import CREDENTIALS, Lane, configure
from tests.integration.hostile.rows import ADAPTERS, FINAL_SECONDS, Expected, Row
from tests.integration.hostile.table import ROWS
from tests.integration.pipeline.local import ask
from tests.upstreams.misbehaving import IDLE, MisbehavingServer, Mode

_SHARED: Final = 4  # lanes among which the rows with one contract are dealt out


@dataclass(frozen=True, slots=True)
class Trial:
    """One row with one adapter."""

    row: Row
    adapter: str
    number: int

    @property
    def expected(self) -> Expected:
        """What the table says."""
        found = self.row.expected(self.adapter)
        assert found is not None
        return found

    @property
    def alone(self) -> bool:
        """Whether nothing else may use its upstream."""
        ruins = self.expected.then != "completed" or self.row.mode is Mode.LOOKUP_FAILS
        return ruins or self.row.final_seconds > FINAL_SECONDS

    def __str__(self) -> str:
        return "-".join((self.adapter, str(self.number), self.row.mode.value, *self.row.cases.split()))


@dataclass(slots=True)
class Ran:
    """What was seen of one trial: by the caller, in the ledger and at the upstream."""

    answer: Answer | None = None
    end: str = ""  # the answer's code, or the reason of a refusal
    then: str = ""  # the same of the next action; "completed" when all was well
    records: list[dict[str, Any]] = field(default_factory=list)
    calls: int = 0
    effects: list[dict[str, Any]] = field(default_factory=list)  # when all trials have ended
    strays: int = 0  # requests to where a redirect pointed
    fault: BaseException | None = None

    def bodies(self, type_: str) -> list[dict[str, Any]]:
        """Of the records of one type, in order."""
        return [record["body"] for record in self.records if record["type"] == type_]

    def seen(self) -> Expected:
        """In the columns of the table."""
        assert self.answer is not None
        first = next(iter(self.bodies("attempt.outcome")), {"class": "", "code": ""})
        return Expected(
            attempt=first["class"],
            code=first["code"],
            state=self.answer.state,
            result=self.answer.result_class,
            end=self.end,
            attempts=len(self.bodies("execution.sent")),
            calls=self.calls,
            effects=len(self.effects),
            then=self.then,
        )


def trials(adapters: Iterable[str] = ADAPTERS) -> list[Trial]:
    """Every row with every adapter that can have it."""
    found = [Trial(row, adapter, number) for number, row in enumerate(ROWS, 1) for adapter in adapters]
    return [trial for trial in found if trial.row.expected(trial.adapter) is not None]


class Field:
    """All lanes and their daemon."""

    def __init__(self, site: Site, lanes: dict[Lane, list[Trial]]) -> None:
        self.site = site
        self._lanes = lanes
        self.ran: dict[Trial, Ran] = {trial: Ran() for dealt in lanes.values() for trial in dealt}

    @classmethod
    @contextlib.contextmanager
    def open(cls, wanted: Sequence[Trial]) -> Iterator[Field]:
        """Configured and started."""
        with Site.make() as site, contextlib.ExitStack() as stack:
            lanes = dict(_dealt(wanted))
            for lane in lanes:
                stack.enter_context(lane.server)
            configure(site, list(lanes))
            site.start()
            yield cls(site, lanes)

    def play(self) -> None:
        """Every trial; what happened stands in ``ran``."""
        with ThreadPoolExecutor(len(self._lanes)) as threads:
            list(threads.map(self._play_lane, self._lanes.items()))
        for lane, dealt in self._lanes.items():
            for trial in dealt:
                self.ran[trial].effects = lane.server.app.refunds.of(_order(trial, "first"))

    def _play_lane(self, given: tuple[Lane, list[Trial]]) -> None:
        lane, dealt = given
        with self.site.client() as agent, self.site.client("operator") as operator:
            for trial in dealt:
                try:
                    self._play(lane, trial, agent, operator)
                except BaseException as fault:
                    self.ran[trial].fault = fault

    def _play(self, lane: Lane, trial: Trial, agent: Client, operator: Client) -> None:
        ran, server, call = self.ran[trial], lane.server, _call(lane, trial, "first")
        calls, requests = len(server.calls), len(server.requests)
        server.app.refunds.deduplicates = trial.row.deduplicates
        execution_id = self._approved(call)
        server.misbehave(trial.row.mode, None if trial.row.every else 1)
        if trial.row.mode is Mode.REFUSE_CALL:
            threading.Thread(target=self._listen_again, args=(server, execution_id)).start()
        ran.end = _executed(agent, call)
        ran.answer = agent.get(execution_id=execution_id).answer
        ran.records = _records(operator, execution_id)
        ran.calls = len(server.calls) - calls
        ran.strays = sum("redirected" in request.target for request in server.requests[requests:])
        if trial.row.mode is Mode.GONE_AFTER_EFFECT:
            server.listen_again()
        server.misbehave(trial.row.mode if trial.row.mode in IDLE else Mode.OK)
        ran.then = self._next(lane, trial, agent)
        server.misbehave(Mode.OK)

    def _approved(self, call: Call) -> str:
        pending = ask(self.site, call)
        approve(self.site, pending.approval_id)
        return pending.execution_id

    def _next(self, lane: Lane, trial: Trial, agent: Client) -> str:
        call = _call(lane, trial, "second")
        try:
            self._approved(call)
        except CallError as refused:
            return refused.reason
        return _executed(agent, call) or "completed"

    def _listen_again(self, server: MisbehavingServer, execution_id: str) -> None:
        """Once the refused connection is in the ledger."""
        limit = time.monotonic() + 60
        with self.site.client("operator") as operator:
            while time.monotonic() < limit:
                if any(record["type"] == "attempt.outcome" for record in _records(operator, execution_id)):
                    break
                time.sleep(0.05)
        server.listen_again()


def _dealt(wanted: Sequence[Trial]) -> Iterator[tuple[Lane, list[Trial]]]:
    groups: dict[tuple[Any, ...], list[Trial]] = {}
    for trial in wanted:
        row = trial.row
        kind = (trial.adapter, row.tool, row.timeout_seconds, row.final_seconds, row.proof_seconds)
        groups.setdefault((*kind, trial.number if trial.alone else 0), []).append(trial)
    for (*kind, _), together in groups.items():
        for share in range(min(_SHARED, len(together))):
            mine = together[share::_SHARED]
            yield Lane(f"{kind[0]}-{mine[0].number}", *kind), mine


def _call(lane: Lane, trial: Trial, which: str) -> Call:
    order = _order(trial, which)
    arguments = {"order_id": order, "amount": "100.00", "currency": "EUR"}
    return Call.of("payment.refund.create", lane.name, target=order, arguments=arguments, key=f"{lane.name}-{order}")


def _order(trial: Trial, which: str) -> str:
    return f"o-{trial.number}-{which}"


def _executed(agent: Client, call: Call) -> str:
    """The code of the answer, or the reason of a refusal."""
    try:
        return agent.execute(call).code
    except CallError as refused:
        return refused.reason


def _records(operator: Client, execution_id: str) -> list[dict[str, Any]]:
    leaves = operator.read_ledger(execution_id=execution_id, limit=200).leaves
    found = [json.loads(leaf) for _, leaf in leaves]
    return [record for record in found if record.get("v") == "kblockd.record/1"]


def secrets() -> list[bytes]:
    """The credentials of both identities, and what they decode to."""
    return [part.encode() for value in CREDENTIALS.values() for part in value]


def peak_mib(site: Site) -> int:
    """The most memory that the daemon's process has had."""
    assert site.process is not None
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{site.process.pid}/status").read_text())
    assert found is not None
    return int(found[1]) // 1024
