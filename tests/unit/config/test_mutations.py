"""Each key of each shipped file removed, renamed, given another type, another unit: refused at its file, line, key."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kblockd.config import document

Path_ = tuple[str | int, ...]
SHIPPED = Path(__file__).parents[3] / "config"
DAEMON = "kblockd.yaml"
CONTRACT = "actions/payment.refund.create.yaml"
UPSTREAM = "upstreams/payments.yaml"

# What authors name themselves: the keys below these are theirs.
FREE = {
    CONTRACT: [
        *("tool.arguments_schema", "intent", "preconditions", "reads.snapshot.arguments", "reads.verify.arguments"),
        *("lookup.0.arguments", "verification.expected", "verification.tolerated", "verification.prohibited"),
    ],
    UPSTREAM: ["settings", "tools"],
    DAEMON: [],
}
# Without these the meaning is the one that the shipped file shows, or there is less proof; config/README.md says which.
OPTIONAL = {
    CONTRACT: [
        *("preconditions", "cancellation", "lookup.0.absent_final_after_seconds", "reads.snapshot.numbers"),
        "tool.errors",
        *("verification.tolerated", "verification.consistency_delay_seconds"),
        *("execution.retry_unknown_outcome", "execution.sandbox_profile", "execution.credential_source"),
        *("progress", "emergency", "owners", "preflight.reserve_authority_budget"),
        *("preflight.revalidate_identity", "preflight.revalidate_policy", "preflight.revalidate_approval"),
        *("preflight.require_no_conflicting_operation", "preflight.acquire_execution_lease"),
    ],
    UPSTREAM: ["allow_addresses", "tls", "tools", "credentials", "settings", "maximum_concurrent_calls", "breaker"],
    DAEMON: [],
}
NEEDED_ELSEWHERE = ("reads.snapshot.version", "intent")
# Every key of these sections is optional.
OPTIONAL_SECTIONS = ("evidence.", "progress.", "emergency.", "owners.", "tls.", "credentials.", "breaker.", "tools.")
WRONG = {str: ["list"], int: "thirty", float: "a quarter", bool: "yes", list: {"a": 1}, dict: "text", type(None): 5}


def keys(name: str, value: Any, at: Path_ = ()) -> Iterator[tuple[Path_, Any]]:
    for key, member in value.items() if isinstance(value, dict) else enumerate(value):
        path = (*at, key)
        yield path, member
        if isinstance(member, dict | list) and ".".join(map(str, path)) not in FREE[name]:
            yield from keys(name, member, path)


def rows() -> Iterator[Any]:
    for name in (DAEMON, CONTRACT, UPSTREAM):
        for path, value in keys(name, document.read(SHIPPED / name).value):
            yield pytest.param(name, path, value, id=f"{name.rpartition('/')[2]}-{'.'.join(map(str, path))}")


NAMED = [row for row in rows() if isinstance(row.values[1][-1], str)]
WITH_UNIT = [row for row in NAMED if row.values[1][-1].endswith(("_seconds", "_bytes", "_mib", "_ratio"))]


def parent(files: dict[str, Any], name: str, path: Path_) -> Any:
    node = files[name]
    for part in path[:-1]:
        node = node[part]
    return node


def told(folder: Any, name: str, path: Path_) -> list[Any]:
    """The faults that name this file, this key and the line where it stands (or its parent's, when it is gone)."""
    found = [
        fault for fault in folder.own_faults(name) if fault.place.file == folder.path / name and fault.path == path
    ]
    for fault in found:
        node = parent(folder.files, name, path)
        present = path[-1] in node if isinstance(node, dict) else True
        where = path if present else path[:-1]
        assert fault.place.line == (folder.line(name, where) if where else 1)
        assert f"{folder.path / name}:{fault.place.line}:" in str(fault)
        assert fault.next_step
    return found


def test_the_folder_loads_as_it_is(folder: Any) -> None:
    assert folder.load().contracts


@pytest.mark.parametrize(("name", "path", "value"), NAMED)
def test_removed(folder: Any, name: str, path: Path_, value: Any) -> None:
    dotted = ".".join(map(str, path))
    del parent(folder.files, name, path)[path[-1]]
    if dotted in OPTIONAL[name] or dotted.startswith(OPTIONAL_SECTIONS):
        assert folder.load(check_pins=False)
    elif dotted in NEEDED_ELSEWHERE:
        assert folder.faults()
    else:
        assert any("missing" in fault.message for fault in told(folder, name, path))


@pytest.mark.parametrize(("name", "path", "value"), [row for row in NAMED if row.values[1][:-1] != ("tools",)])
def test_renamed(folder: Any, name: str, path: Path_, value: Any) -> None:
    node = parent(folder.files, name, path)
    renamed = f"{path[-1]}x"
    node[renamed] = node.pop(path[-1])
    assert any("unknown key" in fault.message for fault in told(folder, name, (*path[:-1], renamed)))


@pytest.mark.parametrize(("name", "path", "value"), list(rows()))
def test_of_another_type(folder: Any, name: str, path: Path_, value: Any) -> None:
    parent(folder.files, name, path)[path[-1]] = copy.deepcopy(WRONG[type(value)])
    assert told(folder, name, path)


@pytest.mark.parametrize(("name", "path", "value"), WITH_UNIT)
def test_with_a_unit_in_the_value(folder: Any, name: str, path: Path_, value: Any) -> None:
    parent(folder.files, name, path)[path[-1]] = f"{value}s"
    assert told(folder, name, path)


@pytest.mark.parametrize(("name", "path", "value"), WITH_UNIT)
def test_with_another_unit_in_the_name(folder: Any, name: str, path: Path_, value: Any) -> None:
    key = str(path[-1])
    other = f"{key.rpartition('_')[0]}_ms"
    node = parent(folder.files, name, path)
    node[other] = node.pop(key)
    (fault,) = told(folder, name, (*path[:-1], other))
    assert key in fault.next_step


@pytest.mark.parametrize(("name", "path", "value"), WITH_UNIT)
def test_of_no_or_negative_amount(folder: Any, name: str, path: Path_, value: Any) -> None:
    parent(folder.files, name, path)[path[-1]] = -1
    assert told(folder, name, path)
