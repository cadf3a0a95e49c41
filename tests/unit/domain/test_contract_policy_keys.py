"""Every key of the policy (R556 to R603): it acts, or stands for what is always done, or is not supported yet."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kblockd.config import document
from kblockd.domain import contract as contracts

SHIPPED = Path(__file__).parents[3] / "config/actions/payment.refund.create.yaml"
MISSING = object()


class Row(NamedTuple):
    requirement: int
    path: str
    kind: str  # acts | always | never | later
    other: Any = None  # another value that is taken (acts), or a value that is refused (later)


ROWS = [
    Row(556, "version", "acts", 6),
    Row(557, "action.type", "acts", "service.restart.execute"),
    Row(558, "action.risk_tier", "acts", "critical"),
    Row(559, "action.environment", "acts", "staging"),
    Row(560, "preflight.revalidate_identity", "always"),
    Row(561, "preflight.revalidate_policy", "always"),
    Row(562, "preflight.revalidate_approval", "always"),
    Row(563, "preflight.require_current_resource_version", "acts"),
    Row(564, "preflight.require_no_conflicting_operation", "always"),
    Row(565, "preflight.acquire_execution_lease", "always"),
    Row(566, "preflight.reserve_authority_budget", "later", True),
    Row(567, "execution.sandbox_profile", "acts"),
    Row(568, "execution.credential_source", "acts", "static"),
    Row(569, "execution.require_idempotency_key", "acts", True),
    Row(570, "execution.maximum_attempts", "acts", 2),
    Row(571, "execution.request_timeout_seconds", "acts", 29),
    Row(572, "execution.absolute_deadline_seconds", "acts", 299),
    Row(573, "execution.maximum_concurrent_actions", "acts", 2),
    Row(574, "execution.retry_unknown_outcome", "later", True),
    Row(575, "progress.accept_protocol_progress", "later", True),
    Row(576, "progress.progress_may_extend_request_timeout", "later", True),
    Row(577, "progress.progress_may_extend_absolute_deadline", "later", True),
    Row(578, "verification.required", "acts", False),
    Row(579, "verification.authoritative_read_tool", "acts"),
    Row(580, "verification.maximum_duration_seconds", "acts", 179),
    Row(581, "verification.poll_interval_seconds", "acts", 9),
    Row(582, "verification.expected.operation_state", "acts", "completed"),
    Row(583, "verification.expected.healthy_instances", "acts", "all"),
    Row(584, "verification.expected.application_version", "acts", "unchanged"),
    Row(585, "verification.prohibited.duplicate_operation", "acts", False),
    Row(586, "verification.prohibited.unrelated_service_change", "acts", True),
    Row(587, "recovery.transient_failure", "acts", "manual"),
    Row(588, "recovery.unknown_outcome", "acts"),
    Row(589, "recovery.partial_completion", "acts", "manual"),
    Row(590, "recovery.verification_failure", "later", "manual_or_compensate"),
    Row(591, "recovery.compensation_workflow", "later", "service.restart.recover.v2"),
    Row(592, "recovery.irreversible_step", "acts", True),
    Row(593, "evidence.record_precondition_snapshot", "always"),
    Row(594, "evidence.record_tool_contract_hash", "always"),
    Row(595, "evidence.record_downstream_operation_id", "always"),
    Row(596, "evidence.record_verification_result", "always"),
    Row(597, "evidence.record_recovery_actions", "always"),
    Row(598, "evidence.capture_raw_credentials", "never"),
    Row(599, "evidence.capture_sensitive_content", "later", True),
    Row(600, "emergency.action_kill_switch", "later", True),
    Row(601, "emergency.tool_kill_switch", "later", True),
    Row(602, "emergency.credential_revocation", "later", True),
    Row(603, "emergency.operator_handoff", "later", True),
]
MORE_LATER = [
    ("execution.credential_source", "workload_identity"),
    ("tool.kind", "read"),
    ("cancellation", "signal"),
    ("verification.independent_data_sources", 2),  # R264
    ("verification.required_confidence", "high"),  # R265
    ("verification.escalation_threshold", 3),  # R266
    ("verification.conflicting_evidence", "hold"),  # R267
]


def shipped() -> dict[str, Any]:
    value = document.read(SHIPPED).value
    assert isinstance(value, dict)
    return copy.deepcopy(value)


def put(target: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    *parents, last = path.split(".")
    for part in parents:
        target = target[part]
    if value is MISSING:
        target.pop(last, None)
    else:
        target[last] = value
    return target


def refusals(path: str, value: Any) -> dict[str, str]:
    changed = shipped()
    put(changed, path, value)
    with pytest.raises(contracts.InvalidContract) as caught:
        contracts.parse(changed)
    return {contracts.dotted(fault.path): fault.message for fault in caught.value.faults}


def test_every_key_of_the_policy_has_one_row() -> None:
    """R556 to R603."""
    assert [row.requirement for row in ROWS] == list(range(556, 604))
    assert len({row.path for row in ROWS}) == len(ROWS)


def test_the_shipped_contract_writes_every_key_that_there_is() -> None:
    """A newcomer sees each key once; only those of later versions are left out."""
    written = shipped()
    read_back = contracts.parse(written).model_dump(mode="json", by_alias=True)
    later = {"independent_data_sources", "required_confidence", "escalation_threshold", "conflicting_evidence"}
    assert set(read_back) == set(written)
    assert set(read_back["verification"]) - later == set(written["verification"])
    for part in ("action", "tool", "preflight", "execution", "progress", "evidence", "emergency"):
        assert read_back[part] == written[part]


def test_upg_03_a_key_that_came_later_changes_no_digest_while_it_has_its_default() -> None:
    """UPG-03: a ledger of the version before agreed on exactly this document."""
    plain = shipped()
    explicit = shipped()
    del plain["tool"]["errors"]
    for read in (plain["reads"]["snapshot"], plain["reads"]["verify"], *plain["lookup"]):
        read.pop("numbers", None)
    for read in (explicit["reads"]["snapshot"], explicit["reads"]["verify"], *explicit["lookup"]):
        read["numbers"] = "refuse"
    assert contracts.parse(plain).sha256 == contracts.parse(explicit).sha256
    assert "errors" not in contracts.parse(explicit).document["tool"]
    explicit["lookup"][0]["numbers"] = "text"
    assert contracts.parse(plain).sha256 != contracts.parse(explicit).sha256


@pytest.mark.parametrize("row", [r for r in ROWS if r.kind == "acts" and r.other is not None], ids=lambda r: r.path)
def test_a_key_that_acts_changes_the_contract(row: Row) -> None:
    """R556 to R603: the value arrives where stages and policies read it, and in the digest that approvals bind."""
    changed = shipped()
    put(changed, row.path, row.other)
    read = contracts.parse(changed)
    value: Any = read.document
    for part in row.path.split("."):
        value = value[part]
    assert value == row.other
    assert read.sha256 != contracts.parse(shipped()).sha256


@pytest.mark.parametrize("row", [r for r in ROWS if "expected" not in r.path and "prohibited" not in r.path], ids=str)
def test_a_wrong_type_is_refused_at_its_key(row: Row) -> None:
    """R556 to R603."""
    assert row.path in refusals(row.path, ["wrong"])


@pytest.mark.parametrize("row", [r for r in ROWS if r.kind in ("always", "never")], ids=lambda r: r.path)
def test_what_is_always_done_cannot_be_switched_off(row: Row) -> None:
    """R560 to R565, R593 to R598."""
    against = row.kind == "never"
    assert f"kblockd {row.kind} does this" in refusals(row.path, against)[row.path]
    without = shipped()
    put(without, row.path, MISSING)
    assert contracts.parse(without).sha256 == contracts.parse(shipped()).sha256


@pytest.mark.parametrize(
    ("path", "value"), [(r.path, r.other) for r in ROWS if r.kind == "later"] + MORE_LATER, ids=str
)
def test_what_comes_later_is_refused_and_never_ignored(path: str, value: Any) -> None:
    """R264 to R267, R566, R574 to R577, R590, R591, R599 to R603."""
    assert "not supported yet" in refusals(path, value)[path]


@pytest.mark.parametrize("path", [r.path for r in ROWS if r.kind == "later" and r.other is True])
def test_what_comes_later_may_be_written_as_off(path: str) -> None:
    off = shipped()
    put(off, path, False)
    assert contracts.parse(off).sha256 == contracts.parse(shipped()).sha256


def test_the_version_check_acts() -> None:
    """R563: true needs a version to compare, and false cannot hide one."""
    path = "preflight.require_current_resource_version"
    assert "always compares" in refusals(path, False)[path]
    assert "no version" in refusals("reads.snapshot.version", MISSING)[path]


def test_the_only_sandbox_is_api_only() -> None:
    """R567."""
    assert "execution.sandbox_profile" in refusals("execution.sandbox_profile", "disposable")


def test_recovery_words_bound_what_policy_may_choose() -> None:
    """R587 to R590."""
    read = contracts.parse(shipped())
    assert contracts.permitted_recoveries(read, "transient_failure") == {"retry", "containment", "manual"}
    assert contracts.permitted_recoveries(read, "unknown_outcome") == {"retry", "containment", "manual"}
    assert contracts.permitted_recoveries(read, "partial_completion") == {"containment", "manual"}
    assert contracts.permitted_recoveries(read, "verification_failure") == {"manual"}


@pytest.mark.parametrize("path", ["point_of_no_return", "recovery.irreversible_step"])
def test_a_point_of_no_return_needs_a_person(path: str) -> None:
    """R003, R058, R592."""
    changed = shipped()
    assert not contracts.parse(changed).requires_approval
    put(changed, path, True)
    assert contracts.parse(changed).requires_approval
