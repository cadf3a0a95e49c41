"""From files to one frozen configuration: resolution, rules between files, and all faults at once."""

from __future__ import annotations

import copy
import dataclasses
import ipaddress
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict

from kblockd.config import ConfigurationError, load
from kblockd.domain.principal import Principal
from kblockd.domain.settings import Clocks, Limits
from kblockd.policy.deciding.floor import Floor

SHIPPED = Path(__file__).parents[3] / "config"
DAEMON = "kblockd.yaml"
CONTRACT = "actions/payment.refund.create.yaml"
UPSTREAM = "upstreams/payments.yaml"


def told(folder: Any, name: str, key: str, **options: Any) -> str:
    """The one fault at this key of this file, as it is printed."""
    faults = [f for f in folder.faults(**options) if f.place.file == folder.path / name and f.key == key]
    assert len(faults) == 1
    return str(faults[0])


def test_everything_is_resolved(folder: Any) -> None:
    """R046: contracts by (operation, environment); paths are absolute, relative ones stand beside their file."""
    read = folder.load()
    assert read.data_dir == folder.path / "data"
    assert read.policy.bundle == folder.path / "policy"
    assert (read.instance, read.origin, read.adapters) == ("kblockd-1", "kblockd.example/prod/1", ("mcp", "http"))
    assert read.principals["local:lead"] == Principal("local:lead", "person", "acme", "person:lead", ("finance",))
    first = read.listeners[0]
    assert (str(first.path), first.mode, first.principal) == ("/run/kblockd/agent.sock", 0o600, "local:agent")
    assert read.clocks == Clocks()
    assert read.limits == Limits()
    assert read.contracts["payment.refund.create", "production"].version == 5
    assert read.upstreams["payments"].allow_addresses == (ipaddress.ip_network("127.0.0.0/8"),)
    assert read.warnings == ()


def test_the_approval_floor_stands_under_the_policy_by_risk_tier(folder: Any, change: Any) -> None:
    """Every tier is written; what is not wanted is 0 with no roles."""
    assert folder.load().policy.floors == {
        "low": Floor(0, ()),
        "medium": Floor(0, ()),
        "high": Floor(0, ()),
        "critical": Floor(2, ("legal", "network", "records", "security")),
    }
    change(DAEMON, "approval_floor.high", {"count": 1, "roles": ["finance"]})
    read = folder.load()
    assert read.policy.floors["high"] == Floor(1, ("finance",))
    with pytest.raises(TypeError):
        read.policy.floors["high"] = Floor(0, ())


@pytest.mark.parametrize(
    ("floor", "said"),
    [
        ({"count": 0, "roles": []}, None),
        ({"count": 1, "roles": []}, None),
        ({"count": 2, "roles": []}, None),
        ({"count": 3, "roles": []}, "3, owners who can approve: 2"),  # the agent approves nothing
        ({"count": 1, "roles": ["legal", "finance"]}, None),
        (
            {"count": 2, "roles": ["legal", "finance"]},
            "2, owners with one of the roles legal, finance who can approve: 1",
        ),
        ({"count": 1, "roles": ["legal"]}, "1, owners with one of the roles legal who can approve: 0"),
    ],
)
def test_a_floor_that_nobody_can_meet_is_said_at_the_start(
    folder: Any, change: Any, floor: Any, said: str | None
) -> None:
    """Else a person is asked, and the action can never run. The floor of a tier without actions is nobody's matter."""
    change(DAEMON, "approval_floor.high", floor)
    found = folder.load().warnings
    assert len(found) == (said is not None)
    for warning in found:
        assert said is not None
        assert f"approval_floor.high: count is {said}" in warning
        assert warning.endswith("cannot run: payment.refund.create")


@pytest.mark.parametrize(
    ("value", "key", "said"),
    [
        ({"count": 0, "roles": ["legal"]}, "approval_floor.low", "raise count to at least 1"),
        ({"count": 65, "roles": []}, "approval_floor.low.count", "64"),
        ({"count": -1, "roles": []}, "approval_floor.low.count", "0"),
        ({"count": 1, "roles": [f"r{n}" for n in range(65)]}, "approval_floor.low.roles", "64"),
    ],
)
def test_a_floor_that_means_nothing_is_refused(folder: Any, change: Any, value: Any, key: str, said: str) -> None:
    change(DAEMON, "approval_floor.low", value)
    assert said in told(folder, DAEMON, key)


def test_an_untested_policy_is_said_at_the_start(folder: Any, change: Any) -> None:
    change(DAEMON, "policy.require_tests", False)
    read = folder.load()
    assert not read.policy.require_tests
    assert read.warnings == ("policy.require_tests: an untested policy may come into force",)


def test_the_result_is_frozen(folder: Any) -> None:
    read = folder.load()
    with pytest.raises(dataclasses.FrozenInstanceError):
        read.instance = "x"
    with pytest.raises(TypeError):
        read.contracts["a", "b"] = None
    with pytest.raises(TypeError):
        read.principals["x"] = None


def test_paths_of_an_upstream_are_relative_to_its_file(folder: Any, change: Any) -> None:
    folder.files[UPSTREAM].update(
        url="https://pay.example/mcp",
        tls={"ca_file": "ca.pem", "spki_sha256": []},
        credentials={"write": "file:../keys/w", "read": "env:PAY_READ"},
    )
    change(CONTRACT, "execution.credential_source", "static")
    upstream = folder.load().upstreams["payments"]
    assert upstream.tls.ca_file == folder.path / "upstreams/ca.pem"
    assert upstream.credentials.write == f"file:{folder.path}/upstreams/../keys/w"
    assert upstream.credentials.read == "env:PAY_READ"


# ---- C3 and C4


def test_close_after_may_be_exactly_the_sum(folder: Any, change: Any) -> None:
    """C3: 300 + 30 + 60 + 180 + 5 = 575; equal is allowed."""
    change(DAEMON, "clocks.close_after_seconds", 575)
    assert folder.load().clocks.close_after_seconds == 575


@pytest.mark.parametrize(
    ("name", "path", "value", "needed"),
    [
        (DAEMON, "clocks.close_after_seconds", 574, 575),
        (DAEMON, "clocks.reconcile_seconds", 146, 661),
        (DAEMON, "clocks.skew_seconds", 91, 661),
        (CONTRACT, "execution.absolute_deadline_seconds", 386, 661),
        (CONTRACT, "execution.request_timeout_seconds", 116, 661),
        (CONTRACT, "verification.maximum_duration_seconds", 266, 661),
    ],
)
def test_c3_refuses_with_the_numbers_and_where_they_stand(
    folder: Any, change: Any, name: str, path: str, value: int, needed: int
) -> None:
    """C3: one second less is refused, naming every number with its file and line."""
    change(DAEMON, "clocks.lease_ttl_seconds", 200)
    change(name, path, value)
    said = told(folder, DAEMON, "clocks.close_after_seconds")
    assert f"= {needed} s" in said
    assert f"set at least {needed}" in said
    contract, daemon = folder.path / CONTRACT, folder.path / DAEMON
    for key in ("execution.absolute_deadline_seconds", "execution.request_timeout_seconds"):
        assert f"{key} {contract}:{folder.line(CONTRACT, tuple(key.split('.')))}:" in said
    assert f"clocks.reconcile_seconds {daemon}:{folder.line(DAEMON, ('clocks', 'reconcile_seconds'))}:" in said


def test_c3_is_held_over_every_contract(folder: Any) -> None:
    """C3: one long contract among short ones refuses the start."""
    other = copy.deepcopy(folder.files[CONTRACT])
    other["action"]["environment"] = "staging"
    other["execution"]["absolute_deadline_seconds"] = 3000
    folder.files["actions/other.yaml"] = other
    assert "actions/other.yaml" in told(folder, DAEMON, "clocks.close_after_seconds")


def test_c4_a_lease_outlives_three_heartbeats(folder: Any, change: Any) -> None:
    """C4."""
    change(DAEMON, "clocks.lease_ttl_seconds", 29)
    assert "set at least 30" in told(folder, DAEMON, "clocks.lease_ttl_seconds")


def test_c4_a_holder_has_time_to_renew_before_it_fences_itself(folder: Any, change: Any) -> None:
    """C4."""
    change(DAEMON, "clocks.skew_seconds", 20)
    assert "heartbeat 10 s" in told(folder, DAEMON, "clocks.lease_ttl_seconds")


def test_absence_must_become_final_while_it_is_looked_for(folder: Any, change: Any) -> None:
    """C2: otherwise the lookup proves nothing, silently."""
    change(CONTRACT, "lookup.0.absent_final_after_seconds", 61)
    assert "clocks.reconcile_seconds, 60 s" in told(folder, CONTRACT, "lookup[0].absent_final_after_seconds")


# ---- contracts and upstreams


def test_two_contracts_for_one_action_are_refused(folder: Any) -> None:
    """R046: which of the two would hold is no question for the order of files."""
    folder.files["actions/again.yaml"] = copy.deepcopy(folder.files[CONTRACT])
    assert "already has a contract" in told(folder, CONTRACT, "action.type")


def test_an_unknown_upstream_is_refused(folder: Any, change: Any) -> None:
    change(CONTRACT, "tool.upstream", "paymints")
    assert "no upstream 'paymints'" in told(folder, CONTRACT, "tool.upstream")


@pytest.mark.parametrize(
    ("tool", "key"),
    [
        ("refund", "tool.name"),
        ("get_order", "reads.snapshot.tool"),
        ("list_refunds", "reads.verify.tool"),
        ("find_refund", "lookup[0].tool"),
    ],
)
def test_every_tool_needs_a_reviewed_definition(folder: Any, tool: str, key: str) -> None:
    """R018, R032."""
    del folder.files[UPSTREAM]["tools"][tool]
    assert "kblockd upstream pin payments" in told(folder, CONTRACT, key)
    folder.files[UPSTREAM]["tools"][tool] = {"definition_sha256": None}
    assert "no reviewed definition" in told(folder, CONTRACT, key)
    assert folder.load(check_pins=False)
    folder.files[DAEMON]["development"]["unpinned_tools"] = True
    assert any("unpinned_tools" in warning for warning in folder.load().warnings)


def test_a_tool_with_effects_is_no_read(folder: Any) -> None:
    """R249, R636: what one contract calls a write, no other may use to read."""
    other = copy.deepcopy(folder.files[CONTRACT])
    other["action"]["type"] = "order.close"
    other["tool"]["name"] = "find_refund"
    other["lookup"] = []
    folder.files["actions/order.close.yaml"] = other
    assert "has effects" in told(folder, CONTRACT, "lookup[0].tool")


@pytest.mark.parametrize(("source", "write"), [("static", "none"), ("none", "env:PAY")])
def test_the_credential_source_agrees_with_the_upstream(folder: Any, change: Any, source: str, write: str) -> None:
    """R568."""
    change(CONTRACT, "execution.credential_source", source)
    change(UPSTREAM, "credentials.write", write)
    assert "differs from the upstream" in told(folder, CONTRACT, "execution.credential_source")


@pytest.mark.parametrize("written", ["Bearer hush-4711", "token:hush-4711", 4711])
def test_a_secret_that_stands_in_the_file_is_in_no_error(folder: Any, change: Any, written: Any) -> None:
    """The fault goes to logs and to the output of builds."""
    change(UPSTREAM, "credentials.write", written)
    said = told(folder, UPSTREAM, "credentials.write")
    assert "4711" not in said
    assert "none, file:PATH or env:NAME" in said


@pytest.mark.parametrize("host", ["pay.example", "127.0.0.1.pay.example", "127.pay"])
def test_a_secret_never_travels_in_clear_text(folder: Any, change: Any, host: str) -> None:
    change(UPSTREAM, "url", f"http://{host}/mcp")
    change(UPSTREAM, "credentials.read", "env:PAY")
    assert "clear text" in told(folder, UPSTREAM, "credentials.read")


def test_an_adapter_must_be_switched_on(folder: Any, change: Any) -> None:
    change(UPSTREAM, "adapter", "smtp")
    assert "mcp, http" in told(folder, UPSTREAM, "adapter")


def test_settings_are_checked_by_the_adapters_own_model(folder: Any, change: Any) -> None:
    class Settings(BaseModel):
        model_config = ConfigDict(extra="forbid", frozen=True)
        protocol: str = "auto"

    change(UPSTREAM, "settings", {"protocl": "auto"})
    said = told(folder, UPSTREAM, "settings.protocl", settings_model=lambda name: {"mcp": Settings}.get(name))
    assert "did you mean protocol?" in said
    assert folder.load(settings_model=lambda _: None)


def test_files_that_nobody_reads_are_refused(folder: Any) -> None:
    (folder.path / "actions").mkdir()
    (folder.path / "actions/order.close.yml").write_text("version: 1\n")
    assert "is never read" in told(folder, "actions/order.close.yml", "the document")


@pytest.mark.parametrize("key", ["actions", "upstreams"])
def test_a_folder_that_is_absent_or_empty_is_refused(folder: Any, change: Any, key: str) -> None:
    change(DAEMON, key, "absent")
    assert "cannot be read" in told(folder, "absent", "the document")
    (folder.path / "absent").mkdir()
    assert "contains no *.yaml" in told(folder, "absent", "the document")


def test_an_upstreams_file_name_is_its_name(folder: Any) -> None:
    folder.files["upstreams/Pay ments.yaml"] = copy.deepcopy(folder.files[UPSTREAM])
    assert "not a valid name" in told(folder, "upstreams/Pay ments.yaml", "the document")


# ---- principals and listeners


@pytest.mark.parametrize(
    ("path", "value", "key", "said"),
    [
        ("principals.1.id", "local:agent", "principals[1].id", "duplicate id"),
        ("principals.0.roles", ["finance"], "principals[0].roles", "could approve"),
        ("principals.0.roles", ["operator"], "principals[0].roles", "could approve"),
        ("principals.2.roles", ["operator", "finance"], "principals[2].roles", "one socket"),
        ("principals.0.tenant", "*", "principals[0].tenant", "all tenants"),
        ("principals.0.kind", "robot", "principals[0].kind", "'agent', 'person' or 'service'"),
        ("principals.0.owner", "", "principals[0].owner", "must match"),
        ("principals", [], "principals", "at least 1"),
        ("listeners.1.unix", "/run/kblockd/agent.sock", "listeners[1].unix", "give each principal its own socket"),
        (
            "listeners.1.unix",
            "/run/" + "x" * 103,
            "listeners[1].unix",
            "108 bytes, more than the 107",
        ),
        ("listeners.1.principal", "local:nobody", "listeners[1].principal", "no principal"),
        ("listeners.1.mode", 600, "listeners[1].mode", "must be a text"),
        ("listeners.1.mode", "600", "listeners[1].mode", "must match"),
        ("listeners.1.mode", "0666", "listeners[1].mode", "everybody"),
        ("listeners.1.mode", "0060", "listeners[1].mode", "owner"),
        ("listeners", [], "listeners", "nobody can call"),
        ("telemetry.trust_parent_sampling", ["x"], "telemetry.trust_parent_sampling[0]", "no principal"),
        ("telemetry.otlp", "127.0.0.1:4317", "telemetry.otlp", "URL"),
        ("telemetry.sample_ratio", 1.5, "telemetry.sample_ratio", "less than or equal to 1"),
        ("ledger.origin", "kblockd+prod/1", "ledger.origin", "must match"),
        ("ledger.origin", "kblockd prod/1", "ledger.origin", "must match"),
        ("policy.engine", "cedar", "policy.engine", "'embedded'"),
        ("clocks.sweep_seconds", 241, "clocks.sweep_seconds", "240"),
        ("limits.arguments_bytes", 1048577, "limits.arguments_bytes", "1048576"),
    ],
)
def test_unsafe_or_unknown_is_refused(folder: Any, change: Any, path: str, value: Any, key: str, said: str) -> None:
    """C3 (sweep), R010, R011, R249: who asks, who approves and who resolves never share a socket."""
    change(DAEMON, path, value)
    assert said in told(folder, DAEMON, key)


def test_a_socket_path_is_measured_after_it_is_resolved(folder: Any, change: Any) -> None:
    change(DAEMON, "listeners.1.unix", "x" * 104)
    assert "more than the 107 of a socket address" in told(folder, DAEMON, "listeners[1].unix")
    change(DAEMON, "listeners.1.unix", "/run/" + "x" * 102)
    assert folder.load()


@pytest.mark.parametrize("spelling", ["{}/a.sock", "./a.sock", "x/../a.sock"])
def test_two_spellings_of_one_socket_are_one_socket(folder: Any, change: Any, spelling: str) -> None:
    change(DAEMON, "listeners.0.unix", "a.sock")
    change(DAEMON, "listeners.1.unix", spelling.format(folder.path))
    assert "give each principal its own socket" in told(folder, DAEMON, "listeners[1].unix")


@pytest.mark.parametrize("address", ["127.0.0.1:0", "127.0.0.2:9300", "[::1]:9300"])
def test_loopback_is_taken_and_said_loudly(folder: Any, change: Any, address: str) -> None:
    change(DAEMON, "development.insecure_loopback", {"address": address, "principal": "local:agent"})
    read = folder.load()
    assert read.insecure_loopback.address == address
    (warning,) = read.warnings
    assert "insecure_loopback" in warning


@pytest.mark.parametrize("address", ["0.0.0.0:9300", "10.0.0.1:9300", "localhost:9300", "127.0.0.1", "[::]:1", ":1", "127.0.0.1:x", "127.0.0.1:65536"])  # fmt: skip  # noqa: E501
def test_what_is_no_loopback_is_refused(folder: Any, change: Any, address: str) -> None:
    change(DAEMON, "development.insecure_loopback", {"address": address, "principal": "local:agent"})
    assert "loopback address" in told(folder, DAEMON, "development.insecure_loopback.address")


@pytest.mark.parametrize(("principal", "said"), [("local:lead", "approve"), ("local:x", "no principal")])
def test_nobody_approves_over_an_open_port(folder: Any, change: Any, principal: str, said: str) -> None:
    change(DAEMON, "development.insecure_loopback", {"address": "127.0.0.1:1", "principal": principal})
    assert said in told(folder, DAEMON, "development.insecure_loopback.principal")


def test_every_development_switch_is_a_warning(folder: Any, change: Any) -> None:
    change(DAEMON, "development.failpoints", True)
    change(DAEMON, "development.unpinned_tools", True)
    change(UPSTREAM, "allow_addresses", ["0.0.0.0/0"])
    warnings = folder.load().warnings
    for word in ("failpoints", "unpinned_tools", "address guard"):
        assert any(word in warning for warning in warnings)


# ---- all at once


def test_all_faults_of_all_files_are_told_at_once_in_order(folder: Any, change: Any) -> None:
    change(DAEMON, "clocks.lease_ttl_seconds", "30s")
    change(DAEMON, "instance", 7)
    change(CONTRACT, "version", "five")
    change(UPSTREAM, "adapter", 3)
    faults = folder.faults()
    assert {(f.place.file.name, f.key) for f in faults} == {
        ("kblockd.yaml", "clocks.lease_ttl_seconds"),
        ("kblockd.yaml", "instance"),
        ("payment.refund.create.yaml", "version"),
        ("payments.yaml", "adapter"),
    }
    assert [f.place for f in faults] == sorted(f.place for f in faults)


def test_the_error_reads_like_a_compilers(folder: Any, change: Any) -> None:
    change(DAEMON, "clocks.lease_ttl_seconds", "30s")
    with pytest.raises(ConfigurationError) as caught:
        folder.load()
    line = folder.line(DAEMON, ("clocks", "lease_ttl_seconds"))
    assert str(caught.value) == (
        "1 fault in the configuration; nothing was started\n"
        f"{folder.path / DAEMON}:{line}:3: clocks.lease_ttl_seconds: must be a whole number, not the text '30s'; "
        "write a number of seconds, without a unit"
    )


def test_a_file_that_is_absent_is_one_fault(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read") as caught:
        load(tmp_path / "kblockd.yaml")
    assert len(caught.value.faults) == 1


def test_a_duplicate_key_refuses_although_the_values_are_fine(folder: Any) -> None:
    folder.load()
    with (folder.path / DAEMON).open("a") as stream:
        stream.write("\ninstance: kblockd-2\n")
    with pytest.raises(ConfigurationError, match="instance: duplicate key, also in line 1"):
        load(folder.path / DAEMON)


def test_the_shipped_files_load() -> None:
    """Tools of the example are not pinned: whoever runs it reviews them first."""
    (floor,) = load(SHIPPED / DAEMON, check_pins=False).warnings
    assert floor.startswith("approval_floor.critical")
    with pytest.raises(ConfigurationError, match="kblockd upstream pin payments"):
        load(SHIPPED / DAEMON)


# ---- LOC-05: owners that look alike


@pytest.mark.parametrize("key", ["id", "owner"])
@pytest.mark.parametrize(
    "text",
    ["team:b\u043et", "team:\u200bbot", "te\u0301am:bot", "t\u00e9am:bot", "\uff54eam:bot", "team bot", "team:bot\n"],
    ids=["cyrillic", "zero width", "NFD", "NFC", "full width", "blank", "line end"],
)
def test_loc_05_ids_and_owners_have_one_alphabet(folder: Any, change: Any, key: str, text: str) -> None:
    change(DAEMON, f"principals.0.{key}", text)
    assert "must match" in told(folder, DAEMON, f"principals[0].{key}")


@pytest.mark.parametrize("key", ["id", "owner"])
def test_loc_05_what_differs_by_its_case_alone_refuses_the_start(folder: Any, change: Any, key: str) -> None:
    """It would be two owners to separation of duties, and one to whoever reads it."""
    change(DAEMON, f"principals.0.{key}", "Team:Bot")
    change(DAEMON, f"principals.1.{key}", "team:bot")
    said = told(folder, DAEMON, f"principals[1].{key}")
    assert "'team:bot' differs from 'Team:Bot' (" in said
    assert "only in case; write both alike, or rename one" in said
    change(DAEMON, f"principals.1.{key}", "Team:Bot2")
    assert f"principals[1].{key}" not in {fault.key for fault in folder.faults()} if key == "id" else folder.load()


def test_principals_may_share_an_owner(folder: Any, change: Any) -> None:
    change(DAEMON, "principals.1.owner", "team:support-bot")
    folder.load()
