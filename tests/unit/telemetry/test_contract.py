"""The contract: one table, nothing beside it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import kblockd.telemetry
from kblockd.telemetry import contract
from kblockd.telemetry.contract import ATTRIBUTES, SPANS, ContractViolation, Vocabulary, require
from kblockd.telemetry.recorder import Trace
from kblockd.upstream.adapter import Sent

STAGES = [
    "authenticate",
    "admit",
    "replay",
    "decide",
    "await_approval",
    "preflight",
    "lease",
    "read",
    "preconditions",
    "consume",
    "mark_sent",
    "dispatch",
    "classify",
    "reconcile",
    "verify",
    "recover",
    "seal",
]
WORKFLOW = "payment.refund.create"


def test_the_stages_a_hold_and_the_root_are_spans() -> None:
    names = [span.name for span in SPANS]
    assert names[:19] == ["kblock.execution", *(f"kblock.{name}" for name in STAGES), "kblock.hold"]
    assert len(set(names)) == len(names)


def test_each_telemetry_requirement_stands_in_the_table() -> None:
    """R508 to R528: every span and attribute that is asked for has a row that names it."""
    rows = " ".join([*(span.requirements for span in SPANS), *(rule.requirements for rule in ATTRIBUTES.values())])
    named = set(re.findall(r"R\d{3}", rows))
    assert {f"R{number}" for number in range(508, 529)} <= named


def test_the_words_are_those_of_the_plugin_api() -> None:
    assert ATTRIBUTES[contract.SENT].words == {sent.value for sent in Sent}


def test_the_readme_is_current() -> None:
    text = (Path(kblockd.telemetry.__file__).parent / "README.md").read_text()
    assert text.endswith("\n\n" + contract.markdown()), "run python -m kblockd.telemetry.contract and paste its tables"


def test_the_generator_prints_the_tables() -> None:
    command = [sys.executable, "-m", "kblockd.telemetry.contract"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == contract.markdown()


def test_what_is_not_in_the_table_is_refused() -> None:
    """R529, R530: in tests and development."""
    trace = Trace(attributes={"customer": "42"})
    with trace.stage(1, "admit") as row:
        row.attributes["kblock.attempt"] = "first"
    with trace.stage(2, "consumed") as row:
        row.attributes["kblock.result_class"] = "fine"
    with pytest.raises(ContractViolation) as refused:
        require(trace)
    for part in ("'customer'", "'kblock.attempt'", "2/'consumed'", "'kblock.result_class'", "contract.py"):
        assert part in str(refused.value)
    assert "42" not in str(refused.value)


def test_what_is_in_the_table_is_accepted() -> None:
    trace = Trace(attributes={contract.OPERATION: WORKFLOW})
    with trace.stage(13, "reconcile") as row:
        with trace.nested(row, "poll") as poll, trace.nested(poll, "upstream_call") as call:
            call.attributes[contract.CALL] = "poll"
        row.attributes[contract.FINDING] = "present"
    require(trace)


@pytest.mark.parametrize(
    ("name", "raw", "value"),
    [
        (contract.RESULT_CLASS, "unknown_outcome", "unknown_outcome"),
        (contract.RESULT_CLASS, "sk_live_secret", "other"),
        (contract.OPERATION, WORKFLOW, WORKFLOW),
        (contract.OPERATION, "sk_live_secret", "other"),
        (contract.TOOL, WORKFLOW, "other"),
        (contract.TOOL, "t" * 129, "other"),
        (contract.SERVER_VERSION, "1.2.3-rc.1", "1.2.3-rc.1"),
        (contract.SERVER_VERSION, "4111111111111111", "other"),
        (contract.SERVER_VERSION, "1.2.3\n", "other"),
        (contract.ERROR, "TARGET_BUSY", "TARGET_BUSY"),
        (contract.ERROR, "TimeoutError", "TimeoutError"),
        (contract.ERROR, "A_PLUGIN_CODE", "A_PLUGIN_CODE"),
        (contract.ERROR, "sk_live_secret", "other"),
        (contract.ATTEMPT, 2, 2),
        (contract.ATTEMPT, 4111111111111111, contract.MAX_COUNT),
        (contract.ATTEMPT, -1, 0),
        (contract.ATTEMPT, True, None),
        (contract.ATTEMPT, "2", None),
        (contract.REPLAYED, True, True),
        (contract.REPLAYED, 1, None),
        (contract.TOOL, b"refund", None),
        (contract.TOOL, ["refund"], None),
        ("customer", "42", None),
    ],
)
def test_values_are_bounded(name: str, raw: object, value: object) -> None:
    """R529: closed words, configured names, version numbers, counts, flags."""
    configured = {
        contract.OPERATION: {WORKFLOW},
        contract.TOOL: {"refund", "t" * 129},
        contract.ERROR: {"A_PLUGIN_CODE"},
    }
    got = Vocabulary(configured).value(name, raw)
    assert got == value
    assert type(got) is type(value)


def test_versions_are_few() -> None:
    """R529: an upstream that reports another version each time fills no index."""
    vocabulary = Vocabulary({})
    values = {vocabulary.value(contract.SERVER_VERSION, f"1.{n}") for n in range(1000)}
    assert len(values) == contract.MAX_VERSIONS + 1
    assert vocabulary.value(contract.SERVER_VERSION, "1.0") == "1.0"


def test_a_live_configuration_is_followed() -> None:
    configured = {contract.TOOL: frozenset({"refund"})}
    vocabulary = Vocabulary(configured)
    assert vocabulary.value(contract.TOOL, "transfer") == "other"
    configured[contract.TOOL] = frozenset({"transfer"})
    assert vocabulary.value(contract.TOOL, "transfer") == "transfer"
