"""Hostile requests against a running daemon: odd envelopes, broken protobuf, every method, every principal.

``python -m tests.security.hostile.fuzz --seconds 120`` runs a daemon of its own and prints the seed; a fault prints
the request that caused it. What must hold: no INTERNAL and no UNKNOWN, no call without an answer, no execution recorded
for INVALID_ARGUMENT, the daemon alive and its ledger sound at the end.
"""

from __future__ import annotations

import argparse
import dataclasses
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc

from kblockd._proto.kblock.v1 import (
    approval_service_pb2,
    execution_service_pb2,
    ledger_service_pb2,
    types_pb2,
)
from tests.harness import Site, refund_contract
from tests.upstreams.payments import PaymentsServer

ANSWER_SECONDS = 20.0
FORBIDDEN = frozenset({grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN, grpc.StatusCode.DEADLINE_EXCEEDED})
PRINCIPALS = ("agent", "other", "lead", "operator", "auditor")
EXECUTE = "/kblock.v1.ExecutionService/Execute"
APPROVALS = "/kblock.v1.ApprovalService"
LIST = "/kblock.v1.ExecutionService/List"

# The refund, let through without an approval and without proof, so that odd values reach every stage.
SANDBOX = refund_contract(
    {
        "action": {"type": "demo.refund", "environment": "demo"},
        "reads": {"verify": None},
        "verification": {"required": False, "authoritative_read_tool": None},
    }
)
# Anything goes as an argument: what is odd must not be stopped by the schema alone.
LOOSE = refund_contract(
    {
        "action": {"type": "demo.loose", "environment": "demo"},
        "tool": {"arguments_schema": {"properties": None, "required": ["order_id"]}},
        "intent": None,
        "summary": "Refund {target.id}",
        "reads": {"verify": None},
        "verification": {"required": False, "authoritative_read_tool": None},
    }
)
LOOSE["tool"]["arguments_schema"] = {"type": "object", "required": ["order_id"]}
LOOSE["intent"] = None
CONTRACTS = {"refund": refund_contract(), "sandbox": SANDBOX, "loose": LOOSE}

TEXTS = (
    "", " ", "x", "\x00", "\x7f", "\x85", "a" * 257, "é" * 200, "\ud7ff", "\uffff", "\u202eevil", "A-1 ", "Ａ-1",
    "../../etc/passwd", "*", "local:agent", "local:other", "acme", "production", "demo", "payment.refund.create",
    "demo.refund", "demo.loose", "payments", "refund", "exe_", "apr_", "kblock.envelope/1", "kblock.envelope/2",
    "0" * 64, "{}", "%s%n", "'; drop table", "\U0001f4a9" * 64, "𝟏𝟎𝟎",
)  # fmt: skip
NUMBERS = (0, 1, 2, 31, 32, 255, 2**31 - 1, 2**31, 2**32 - 1, 2**53, 2**63 - 1, 2**64 - 1)
DOCUMENTS = (
    b"", b"{}", b"[]", b"null", b"{", b"\xef\xbb\xbf{}", b"\xff", b'{"a":1,"a":2}', b'{"\\u0061":1,"a":2}',
    b'{"a":NaN}',
    b'{"a":1e400}', b'{"a":9007199254740993}', b'{"a":"\\ud800"}', b'{"a":-0.0,"b":1e20,"c":5e-324}', b'{"a":0.1000}',
    b'{"a":' + b"[" * 40 + b"]" * 40 + b"}", b'{"a":' + b"1" * 5000 + b"}", b'{"a":"' + b'\\"' * 5000 + b'"}',
    b'{"order_id":"o-1","x":[' + b"1e20," * 2000 + b"1]}", b'{"order_id":1e20}', b'{"order_id":true}',
    b'{"order_id":9007199254740991}', b'{"order_id":""}', b'{"order_id":"\\u0000"}', b'{"order_id":null}',
    b'{"order_id":"o-1","amount":"100.00\\n","currency":"EUR"}',
    b'{"order_id":"o-1","amount":"100.00","currency":"EUR"}',
    b'{"order_id":"o-2","dev.kblockd/effect-key":"mine"}', b'{"order_id":"o-3","' + b"k" * 70000 + b'":1}',
)  # fmt: skip
METADATA = (
    (),
    (("traceparent", "00-" + "0" * 32 + "-" + "0" * 16 + "-00"),),
    (("traceparent", "ff-zz"), ("traceparent", "00-" + "a" * 32 + "-" + "b" * 16 + "-01")),
    (("traceparent", "00-" + "a" * 32 + "-" + "b" * 16 + "-01"), ("tracestate", "k=" + "v" * 600)),
    (("baggage", "secret=1"), ("x-bin", b"\xff\x00")),
)


@dataclasses.dataclass
class Fuzzer:
    """One random walk; ``channels`` by principal name."""

    random: random.Random
    channels: dict[str, grpc.Channel]
    codes: Counter[str] = dataclasses.field(default_factory=Counter)
    calls: int = 0
    asked: list[bytes] = dataclasses.field(default_factory=list)
    faults: list[str] = dataclasses.field(default_factory=list)
    known: list[str] = dataclasses.field(default_factory=lambda: ["exe_0", "apr_0"])

    def step(self) -> None:
        """One hostile request."""
        shape = self.random.random()
        if shape < 0.05:
            self._approve_and_repeat()
        elif shape < 0.55:
            self._execute(self._envelope_request())
        elif shape < 0.75:
            self._execute(self._broken(self._envelope_request()))
        else:
            method, data = self.random.choice(OTHERS)(self)
            if self.random.random() < 0.3:
                data = self._broken(data)
            self._call(self.random.choice(PRINCIPALS), method, data)

    def text(self) -> str:
        """An odd text, or an identifier that exists."""
        return self.random.choice((*TEXTS, *self.known[-4:]))

    def number(self, bits: int) -> int:
        """An odd number that fits."""
        return self.random.choice([n for n in NUMBERS if n < 1 << bits])

    def _execute(self, data: bytes) -> None:
        who = "agent" if self.random.random() < 0.8 else self.random.choice(PRINCIPALS)
        before = self._newest()
        code = self._call(who, EXECUTE, data)
        if code is grpc.StatusCode.OK and who == "agent":
            self.asked.append(data)
        if code is grpc.StatusCode.INVALID_ARGUMENT and self._newest() != before:
            self.faults.append(f"INVALID_ARGUMENT, but an execution was recorded: {data!r}")

    def _approve_and_repeat(self) -> None:
        """What waits is approved by the lead, and what was asked before is asked again: stages 5 to 16."""
        page = approval_service_pb2.ApprovalServiceListRequest(page_size=3, states=["pending"])
        answer = self._raw("lead", f"{APPROVALS}/List")(page.SerializeToString(), timeout=ANSWER_SECONDS)
        for one in approval_service_pb2.ApprovalServiceListResponse.FromString(answer).approvals:
            decision = approval_service_pb2.ApprovalServiceDecideRequest(
                approval_id=one.approval_id,
                action_sha256=one.action_sha256,
                presented_sha256=one.presented_sha256,
                verdict=approval_service_pb2.VERDICT_APPROVE,
            )
            self._call("lead", f"{APPROVALS}/Decide", decision.SerializeToString())
        for data in self.asked[-5:]:
            self._call("agent", EXECUTE, data)

    def _newest(self) -> str:
        request = execution_service_pb2.ExecutionServiceListRequest(page_size=1)
        answer = self._raw("operator", LIST)(request.SerializeToString(), timeout=ANSWER_SECONDS)
        found = execution_service_pb2.ExecutionServiceListResponse.FromString(answer).outcomes
        if not found:
            return ""
        self.known += [name for name in (found[0].execution_id, found[0].approval_id) if name]
        return found[0].execution_id

    def _raw(self, who: str, method: str) -> Any:
        return self.channels[who].unary_unary(method)

    def _call(self, who: str, method: str, data: bytes) -> grpc.StatusCode:
        self.calls += 1
        try:
            if method.endswith("/Watch"):
                for position, _ in enumerate(self.channels[who].unary_stream(method)(data, timeout=0.2)):
                    if position > 3:
                        break
            else:
                self._raw(who, method)(data, timeout=ANSWER_SECONDS, metadata=self.random.choice(METADATA))
            code = grpc.StatusCode.OK
        except grpc.RpcError as error:
            code = error.code()
        self.codes[code.name] += 1
        watched = method.endswith("/Watch") and code is grpc.StatusCode.DEADLINE_EXCEEDED
        if code in FORBIDDEN and not watched:
            self.faults.append(f"{code.name} from {method} as {who}: {data!r}")
        return code

    def _broken(self, data: bytes) -> bytes:
        octets = bytearray(data or b"\x0a\x00")
        for _ in range(self.random.randint(1, 6)):
            place = self.random.randrange(len(octets))
            kind = self.random.random()
            if kind < 0.4:
                octets[place] = self.random.randrange(256)
            elif kind < 0.6:
                octets[place:place] = self.random.randbytes(self.random.randint(1, 8))
            elif kind < 0.8 and len(octets) > 2:
                del octets[place : place + self.random.randint(1, 8)]
                octets = octets or bytearray(b"\x00")
            else:
                octets += self.random.randbytes(self.random.randint(1, 16))
        return bytes(octets)

    def _envelope_request(self) -> bytes:
        order = f"o-{self.random.randrange(40)}"
        operation, environment = self.random.choice(
            (("payment.refund.create", "production"), ("demo.refund", "demo"), ("demo.loose", "demo"))
        )
        envelope = types_pb2.Envelope(
            schema_version="kblock.envelope/1",
            environment=environment,
            operation=operation,
            target=types_pb2.Target(type="order", id=order),
            arguments_json=f'{{"order_id":"{order}","amount":"1.00","currency":"EUR"}}'.encode(),
        )
        if self.random.random() < 0.5:
            envelope.caller_key = f"k-{self.random.randrange(30)}"
        for _ in range(self.random.choice((0, 1, 1, 1, 2, 3))):
            self.random.choice(MUTATIONS)(self, envelope)
        request = execution_service_pb2.ExecutionServiceExecuteRequest(envelope=envelope)
        if self.random.random() < 0.8:
            request.wait.seconds = self.random.choice((0, 0, 0, 1, 1, -1, 86_401, 2**62))
            request.wait.nanos = self.random.choice((0, 0, 1, 999_999_999, -1, 2**31 - 1))
            if 2 <= request.wait.seconds <= 86_400:
                request.wait.seconds = 1
        else:
            request.wait.nanos = 200_000_000
        return request.SerializeToString()


Mutation = Callable[[Fuzzer, Any], None]


def _odd_text(name: str) -> Mutation:
    return lambda fuzzer, envelope: setattr(envelope, name, fuzzer.text())


def _odd_target(fuzzer: Fuzzer, envelope: Any) -> None:
    setattr(envelope.target, fuzzer.random.choice(("type", "id", "version")), fuzzer.text())


def _odd_binding(fuzzer: Fuzzer, envelope: Any) -> None:
    name = fuzzer.random.choice(("upstream", "server_version", "tool", "definition_sha256"))
    setattr(envelope.binding, name, fuzzer.text())


def _odd_document(name: str) -> Mutation:
    return lambda fuzzer, envelope: setattr(envelope, name, fuzzer.random.choice(DOCUMENTS))


def _odd_moment(name: str) -> Mutation:
    def mutate(fuzzer: Fuzzer, envelope: Any) -> None:
        moment = getattr(envelope, name)
        now = int(time.time())
        moment.seconds = fuzzer.random.choice(
            (-(2**63), -62_135_596_801, -62_135_596_800, -1, 0, now - 1, now + 1, now + 3600, 253_402_300_799, 2**62)
        )
        moment.nanos = fuzzer.random.choice((0, -1, 999_999_999, 10**9, 2**31 - 1))

    return mutate


def _odd_timeout(fuzzer: Fuzzer, envelope: Any) -> None:
    envelope.request_timeout.seconds = fuzzer.random.choice((-1, 0, 1, 3, 31, 86_401, 2**62))
    envelope.request_timeout.nanos = fuzzer.random.choice((0, 1, 999_999, 1_400_000, 999_999_999, -1))


def _odd_numbers(fuzzer: Fuzzer, envelope: Any) -> None:
    envelope.maximum_attempts = fuzzer.number(32)
    envelope.cancellation = fuzzer.random.choice((0, 1, 2, 3, 99, -1))


def _odd_budget(fuzzer: Fuzzer, envelope: Any) -> None:
    envelope.budget.amount = fuzzer.text()


def _odd_evidence(fuzzer: Fuzzer, envelope: Any) -> None:
    envelope.evidence.extend([fuzzer.text(), "record_verification_result"] * fuzzer.random.choice((1, 40)))


MUTATIONS: tuple[Mutation, ...] = (
    *(
        _odd_text(name)
        for name in (
            *("schema_version", "run_id", "action_id", "requester", "agent", "tenant", "organization", "environment"),
            *("operation", "arguments_sha256", "policy_revision", "approval_id", "caller_key", "compensation_ref"),
        )
    ),
    _odd_document("arguments_json"),
    _odd_document("arguments_json"),
    _odd_document("preconditions_json"),
    _odd_document("postconditions_json"),
    _odd_moment("approval_expires_at"),
    _odd_moment("deadline"),
    _odd_target,
    _odd_binding,
    _odd_timeout,
    _odd_numbers,
    _odd_budget,
    _odd_evidence,
)

Other = Callable[[Fuzzer], tuple[str, bytes]]


def _other(method: str, make: Callable[[Fuzzer], Any]) -> Other:
    return lambda fuzzer: (f"/kblock.v1.{method}", make(fuzzer).SerializeToString())


_E, _A, _L = execution_service_pb2, approval_service_pb2, ledger_service_pb2
OTHERS: tuple[Other, ...] = (
    _other("ExecutionService/Get", lambda f: _E.ExecutionServiceGetRequest(execution_id=f.text())),
    _other("ExecutionService/Get", lambda f: _E.ExecutionServiceGetRequest(caller_key=f.text())),
    _other(
        "ExecutionService/List",
        lambda f: _E.ExecutionServiceListRequest(page_size=f.number(32), page_token=f.text(), states=[f.text()] * 2),
    ),
    _other("ExecutionService/List", lambda f: _E.ExecutionServiceListRequest(page_token=f.text())),
    _other(
        "ExecutionService/Watch",
        lambda f: _E.ExecutionServiceWatchRequest(execution_id=f.text(), after_index=f.number(64)),
    ),
    _other(
        "ExecutionService/Resolve",
        lambda f: _E.ExecutionServiceResolveRequest(
            execution_id=f.text(), finding=f.random.choice((0, 1, 2, 3, 9)), reason=f.text()
        ),
    ),
    _other("ApprovalService/Get", lambda f: _A.ApprovalServiceGetRequest(approval_id=f.text())),
    _other("ApprovalService/List", lambda f: _A.ApprovalServiceListRequest(page_size=1, page_token=f.text())),
    _other(
        "ApprovalService/Decide",
        lambda f: _A.ApprovalServiceDecideRequest(
            approval_id=f.text(),
            action_sha256=f.text(),
            presented_sha256=f.text(),
            verdict=f.random.choice((0, 1, 2, 9)),
            reason=f.text(),
        ),
    ),
    _other("ApprovalService/Revoke", lambda f: _A.ApprovalServiceRevokeRequest(approval_id=f.text(), reason=f.text())),
    _other("LedgerService/Read", lambda f: _L.LedgerServiceReadRequest(from_index=f.number(64), limit=f.number(32))),
    _other("LedgerService/Read", lambda f: _L.LedgerServiceReadRequest(execution_id=f.text(), limit=f.number(32))),
    _other("LedgerService/GetCheckpoint", lambda f: _L.LedgerServiceGetCheckpointRequest()),
    _other(
        "LedgerService/GetInclusionProof",
        lambda f: _L.LedgerServiceGetInclusionProofRequest(index=f.number(64), tree_size=f.number(64)),
    ),
    _other(
        "LedgerService/GetConsistencyProof",
        lambda f: _L.LedgerServiceGetConsistencyProofRequest(old_size=f.number(64), new_size=f.number(64)),
    ),
    _other("LedgerService/GetReceipt", lambda f: _L.LedgerServiceGetReceiptRequest(execution_id=f.text())),
)


def walk(site: Site, seconds: float, seed: int, *, at_most: int = 1_000_000) -> Fuzzer:
    """Requests for ``seconds``; the walk with its counts and faults."""
    channels = {name: grpc.insecure_channel(f"unix:{site.socket(name)}") for name in PRINCIPALS}
    fuzzer = Fuzzer(random.Random(seed), channels)
    try:
        end = time.monotonic() + seconds
        while time.monotonic() < end and fuzzer.calls < at_most and len(fuzzer.faults) < 10:
            fuzzer.step()
    finally:
        for channel in channels.values():
            channel.close()
    return fuzzer


def configured(site: Site, url: str) -> None:
    """Contracts that let odd values through, and room for many pending approvals."""
    site.configure(
        url,
        contracts=CONTRACTS,
        daemon={"clocks": {"lease_ttl_seconds": 30}, "limits": {"pending_approvals_per_agent": 10_000}},
        upstream={"breaker": {"failures": 1000, "open_seconds": 1}},
    )
    site.pin()


def main(arguments: list[str]) -> int:
    """0 when nothing was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.security.hostile.fuzz")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    chosen = parser.parse_args(arguments)
    print(f"seed {chosen.seed}, {chosen.seconds:g} s")
    with (
        tempfile.TemporaryDirectory(prefix="kb-fuzz-") as folder,
        PaymentsServer.start(Path(folder)) as payments,
        Site.make() as site,
    ):
        configured(site, payments.url)
        site.start()
        fuzzer = walk(site, chosen.seconds, chosen.seed)
        alive = site.process is not None and site.process.poll() is None
        said = site.said()
        code = site.stop() if alive else 1
        verified = site.command("ledger", "verify", "--config", str(site.config), check=False) if alive else ""
    print(f"{fuzzer.calls} calls: {dict(fuzzer.codes)}")
    print(verified.strip())
    for fault in fuzzer.faults:
        print(f"FAULT {fault[:2000]}")
    if fuzzer.faults or code != 0:
        print(f"exit {code}\n{said}")
    return 1 if fuzzer.faults or code != 0 else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
