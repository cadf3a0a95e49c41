"""APV-08: a value of the wrong type must be an error or a refusal in both engines, never an allowance."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kblockd.policy.bundles.bundle import Bundle
from kblockd.policy.deciding.entrypoints import DECISION
from kblockd.policy.embedded.engine import check as check_embedded
from kblockd.policy.embedded.pool import EmbeddedLimits
from kblockd.policy.faults import BundleRefused
from kblockd.policy.opa.check import check as check_opa
from kblockd.policy.opa.process import OpaLimits
from kblockd.policy.opa.silence import silent_builtins
from kblockd.policy.opa.workshop import opened
from kblockd.policy.rego import affixes
from tests.contract.policy.support import ALLOW, deciding, document, kind_of, opa_binary, write

LIMITS = OpaLimits(5.0)
ALLOWED = f"result := {ALLOW} if not blocked"


async def refusals(engine: str, folder: Path, *rules: str) -> list[tuple[int, str]]:
    """(line, builtin) of every fault that names a value of another type."""
    bundle = Bundle.of(deciding(*rules))
    refused = BundleRefused([])
    try:
        if engine == "opa":
            await check_opa(bundle, opa_binary(), folder, LIMITS)
        else:
            await check_embedded(bundle, EmbeddedLimits())
    except BundleRefused as raised:
        refused = raised
    assert all("is_string" in fault.next_step for fault in refused.faults), refused
    return [(fault.line, fault.message.split(" ")[0]) for fault in refused.faults]


UNGUARDED = [
    'startswith(input.snapshot.status, "frozen")',
    'endswith(input.args.name, ".exe")',
    'strings.any_prefix_match(input.args.path, ["/etc", "/root"])',
    'strings.any_suffix_match(input.args.path, {".exe"})',
    'glob.match("a*", null, input.args.name)',
    'glob.match("a*", [":"], input.args.name)',
    'startswith(input.args["name"], "x")',
    '{ name := input.args.name; startswith(name, "x") }',
    '{ key := "name"; startswith(input.args[key], "x") }',
    '{ startswith(input.args.name, "x"); is_string(input.args.name) }',
    '{ is_string(input.args.other); startswith(input.args.name, "x") }',
    '{ input.args.name = name; startswith(name, "x") }',
    '{ startswith(name, "x"); name = other; other = input.args.name }',
    '{ args = input.args; startswith(args.name, "x") }',
    'false else := true if startswith(input.args.name, "x")',
]


@pytest.mark.parametrize("engine", ["embedded", "opa"])
@pytest.mark.parametrize("body", UNGUARDED)
async def test_apv_08_an_affix_of_what_may_be_no_string_is_refused(engine: str, body: str, tmp_path: Path) -> None:
    builtin = body[: body.rindex("(")].split(" ")[-1] if body.count("(") == 1 else body
    found = await refusals(engine, tmp_path, ALLOWED, f"blocked if {body}")
    assert [name for _, name in found] == [next(name for name in affixes.SILENT if name in builtin)]


async def test_apv_08_a_builtin_that_is_named_in_brackets_is_found_too(tmp_path: Path) -> None:
    """Where OPA takes it: it is as silent as the name with a dot."""
    rule = 'blocked if strings["any_prefix_match"](input.args.path, ["/etc"])'
    found = await refusals("opa", tmp_path, ALLOWED, rule)
    assert [name for _, name in found] == ["strings.any_prefix_match"]


GUARDED = [
    '{ is_string(input.args.name); startswith(input.args.name, "x") }',
    '{ name := input.args.name; is_string(name); endswith(name, "x") }',
    '{ is_string(input.args.name); name := input.args["name"]; glob.match("x*", null, name) }',
    'startswith(input.action.type, "x")',
    'endswith(lower(input.action.tool), "x")',
    'startswith(input.principal.id, "local:")',
    'startswith("abc", input.args.name)',
    '{ some name in ["a"]; startswith(name, "x") }',
    '{ input.args.name = name; is_string(name); startswith(name, "x") }',
]


@pytest.mark.parametrize("engine", ["embedded", "opa"])
@pytest.mark.parametrize("body", GUARDED)
async def test_apv_08_what_is_a_string_for_sure_is_taken(engine: str, body: str, tmp_path: Path) -> None:
    assert await refusals(engine, tmp_path, ALLOWED, f"blocked if {body}") == []


@pytest.mark.parametrize("engine", ["embedded", "opa"])
async def test_apv_08_an_argument_of_a_function_needs_a_guard_too(engine: str, tmp_path: Path) -> None:
    used = "blocked if bad(input.args.name)"
    assert await refusals(engine, tmp_path, ALLOWED, used, 'bad(name) if startswith(name, "x")') != []
    guarded = 'bad(name) if { is_string(name); startswith(name, "x") }'
    assert await refusals(engine, tmp_path, ALLOWED, used, guarded) == []


async def test_apv_08_the_probe_finds_all_of_the_table_and_nothing_else(tmp_path: Path) -> None:
    """A new OPA that indexes by another builtin changes this, and a bundle that uses it meets the probe at its load."""
    async with opened(Bundle.of(deciding()), opa_binary(), tmp_path, LIMITS, "probing it") as shop:
        assert await silent_builtins(shop, every=True) == affixes.SILENT.keys()
        assert await silent_builtins(shop) == set()  # only what the bundle names is asked


async def test_apv_08_an_activation_notices_a_builtin_that_the_table_does_not_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(affixes, "SILENT", {})
    rules = (ALLOWED, 'blocked if endswith(input.args.name, ".exe")')
    assert [name for _, name in await refusals("opa", tmp_path, *rules)] == ["endswith"]


@pytest.mark.parametrize("value", [7, None, ["frozen"], {"frozen": 1}])
async def test_apv_08_guarded_rules_decide_alike_for_other_types(value: Any, tmp_path: Path) -> None:
    """The mend that the refusal names: other types are refused by a rule of their own."""
    rules = (
        ALLOWED,
        'blocked if { is_string(input.args.status); startswith(input.args.status, "frozen") }',
        "blocked if not text",
        "text if is_string(input.args.status)",
    )
    folder = write(tmp_path / "policy", deciding(*rules))
    with kind_of("embedded") as one, kind_of("opa") as two:
        for engine in (one.engine(), two.engine()):
            try:
                await engine.activate(await engine.prepare(folder))
                assert (await engine.evaluate(DECISION, document(status=value))).result["effect"] == "deny"
                allowed = await engine.evaluate(DECISION, document(status="open"))
                assert allowed.result["effect"] == "allow"
            finally:
                await engine.close()
