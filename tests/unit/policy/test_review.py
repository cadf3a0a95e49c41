"""The review of a policy: each finding stands where the fault is, and what is right is left alone."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from kblockd.authoring.review import review
from kblockd.authoring.review.annotations import annotated
from kblockd.authoring.reviewer import review as reviewed
from kblockd.authoring.reviewer import schema_text
from kblockd.policy.builtins.replacements import DecisionTime
from kblockd.policy.bundles.bundle import Bundle, read
from kblockd.policy.embedded.modules import Modules
from kblockd.policy.rego.shape import Shape
from tests.contract.policy.support import PATIENT, files, opa_binary, package
from tests.unit.policy.test_shipped import FOLDER

SCHEMA = json.loads(schema_text())


def found(*rules: str, file: str = "decision.rego") -> list[str]:
    """``line:column level code`` of the findings in the rules; the first of them stands in line 7."""
    texts = {**files(), file: package("decision", *rules)}
    findings = review(Modules(texts, {}), DecisionTime(), SCHEMA)
    return [f"{each.line}:{each.column} {each.level} {each.code}" for each in findings if each.file == file]


@pytest.mark.parametrize(
    "rule",
    [
        "a if data.kblock.decision.result.effect",
        "a if data.kblock.decision",
        "a if data.limits.eur.one > 1",
        "a if data.limits.list[0].x",
        "a if data.limits[input.args.currency]",
        "a if { some name in input.args; data.kblock[name] }",
        "f(x) := x\n\na if data.kblock.decision.f(1)",
    ],
)
def test_what_the_bundle_gives_is_left_alone(rule: str) -> None:
    assert missing(rule) == []


@pytest.mark.parametrize(
    ("rule", "place"),
    [
        ("a if data.kblock.decisions.result", "7:28"),
        ("a if data.kblock.decision.results", "7:27"),
        ("a if data.limits.gbp.one > 1", "7:22"),
        ("a if not data.kblock.actions.lost.refusals", "7:35"),
        ("a if data.limit[input.args.currency]", "7:11"),
    ],
)
def test_what_nothing_gives_is_undefined_for_ever(rule: str, place: str) -> None:
    """A file that was left out, or a name misspelt: a refusal that rests on it never happens."""
    assert missing(rule) == [f"{place} error data-path"]


def missing(rule: str) -> list[str]:
    """The findings about names below ``data`` in a bundle with a document."""
    texts = files(decision=package("decision", rule))
    findings = review(Modules(texts, {"limits": {"eur": {"one": 1}, "list": [{}]}}), DecisionTime(), SCHEMA)
    return [f"{each.line}:{each.column} {each.level} {each.code}" for each in findings if each.code == "data-path"]


@pytest.mark.parametrize(
    "rule",
    [
        "a if input.principal.id",
        'a if input["principal"].roles[0]',
        "a if some role in input.principal.roles",
        "a if input.args.whatever.it[_].holds",
        "a if input.contract.verification.expected.refunds > 1",
        "a if input.approval.approvers[_].owner",
        "a if input.outcome.output.id",
        "a if input.action.intent.note",
        "a if input[x] == 1",
        "a if { row := input.read; row.any }",
    ],
)
def test_paths_that_can_exist_are_left_alone(rule: str) -> None:
    assert found(rule) == []


@pytest.mark.parametrize(
    ("rule", "column"),
    [
        ("a if input.principle.id", 12),
        ('a if input["principle"]', 13),
        ("a if input.contract.tool.nam", 26),
        ("a if input.principal.roles.finance", 28),
        ("a if input.approval.approvers[_].ownr", 34),
        ("a if input.method.name", 19),
        ("a if not input.outcome.clas", 24),
        ("a contains x if some x in input.args[input.acton.type]", 44),
    ],
)
def test_a_path_that_the_input_never_has_is_an_error_at_its_part(rule: str, column: int) -> None:
    """Such a rule is undefined for ever; a refusal that rests on it never happens."""
    assert found(rule) == [f"7:{column} error input-path"]


def test_imports_of_the_input_are_followed_and_local_names_are_not() -> None:
    text = package("decision", "a if p.idd", "b if { q := {}; q.idd }").replace(
        "import rego.v1", "import rego.v1\nimport input.principal as p\nimport input.principal as q"
    )
    findings = review(Modules({**files(), "decision.rego": text}, {}), DecisionTime(), SCHEMA)
    assert [(each.line, each.column, each.code) for each in findings] == [(9, 8, "input-path")]
    assert "did you mean id?" in findings[0].next_step


def test_tests_bring_inputs_of_their_own() -> None:
    assert found("test_a if { input.foo }", "result := 1 if { 1 == 1 }", file="more_test.rego") == []


def test_opa_refuses_the_same_paths_with_the_schema(tmp_path: Path) -> None:
    """`opa check --schema` with our schema, over the shipped policies and over a misspelt one."""
    schema = tmp_path / "input.json"
    schema.write_text(schema_text())

    def checks(folder: Path) -> str:
        command = [opa_binary(), "check", "--schema", str(schema), str(folder)]
        return subprocess.run(command, capture_output=True, text=True).stderr

    assert checks(FOLDER) == ""
    wrong = ["input.principle.id", "input.principal.roles.finance", "input.method.name", "input.contract.tool.nam"]
    for name, rule in enumerate(wrong):
        folder = tmp_path / str(name)
        folder.mkdir()
        (folder / "a.rego").write_text(f"package a\nimport rego.v1\np if {rule}\n")
        assert "undefined ref: input." in checks(folder)


def annotation(*lines: str, above: str = "a := 1") -> list[str]:
    text = "\n".join(["package a", "", "# METADATA", *(f"# {line}" for line in lines), above])
    return [f"{each.line}:{each.column} {each.level} {each.code}" for each in annotated({"a": text}, Shape(SCHEMA))]


@pytest.mark.parametrize(
    "lines",
    [
        ["title: x", "scope: rule", "custom: {a: 1}"],
        ["scope: document", "schemas:", "  - input: schema.input"],
        ["schemas:", "  - input.args: {type: object, properties: {any: {type: string}}}"],
        ["schemas:", "  - data.limits: {type: object}"],
    ],
)
def test_annotations_that_say_what_is_are_left_alone(lines: list[str]) -> None:
    assert annotation(*lines) == []


@pytest.mark.parametrize(
    ("lines", "place"),
    [
        (["scope: rul"], "4:3 error metadata"),
        (["scope: package"], "4:3 error metadata"),
        (["titel: x"], "4:3 warning metadata"),
        (["title: ["], "4:11 error metadata"),
        (["- title"], "3:1 error metadata"),
        (["schemas:", "  - input: schema.inputs"], "5:7 error schema"),
        (["schemas:", "  - input.action: schema.input"], "5:7 error schema"),
        (["schemas:", "  - principal: schema.input"], "5:7 error schema"),
        (["schemas: {input: schema.input}"], "4:3 error schema"),
        (["schemas:", "  - input.foo: {type: string}"], "5:7 error schema"),
        (["schemas:", "  - input:", "      properties:", "        foo: {type: string}"], "7:11 error schema"),
    ],
)
def test_an_annotation_that_names_what_is_not_there_is_an_error_at_its_key(lines: list[str], place: str) -> None:
    assert annotation(*lines) == [place]


def test_an_annotation_above_nothing_or_without_words() -> None:
    assert annotation("title: x", above="") == ["3:1 error metadata"]
    assert annotation() == ["3:1 error metadata"]


def test_packages_that_no_entry_point_comes_to_are_named() -> None:
    texts = {
        **files(decision=package("decision", "a if data.used.x", "b if data.parent[_].y")),
        "used.rego": "package used\nimport rego.v1\nimport data.deep as d\nx if d.x",
        "deep.rego": "package deep\nx := 1",
        "below.rego": "package parent.below\ny := 1",
        "left.rego": "# left\npackage left\nimport rego.v1\nx if data.alone.x",
        "alone.rego": "package alone\nx := 1",
        "some_test.rego": "package some_test\nx := 1",
    }
    findings = review(Modules(texts, {}), DecisionTime(), SCHEMA)
    assert [(each.file, each.line, each.level, each.code) for each in findings] == [
        ("alone.rego", 1, "warning", "unused-package"),
        ("left.rego", 2, "warning", "unused-package"),
    ]


ALLOW = '{"effect": "allow"}'
GRANT = '{"tenants": [input.principal.tenant], "agents": ["*"]}'
CLEAR = [
    f"result := {ALLOW} if input.args.x",
    f"result := {ALLOW} if known\n\nknown if input.principal.id",
    f"result := {ALLOW} if is_known(input.principal)\n\nis_known(p) if p.id",
    'grants contains {"tenants": ["acme"], "agents": ["a"]} if input.method == "x"',
    f'grants contains {GRANT} if "finance" in input.principal.roles',
    f'grants contains {GRANT} if lead\n\nlead if "finance" in input.principal.roles',
    'result := {"effect": "deny"}',
    f"allowed(code) := {ALLOW}",
    "allow(x) if x > 1",
    f"yes := {ALLOW}\n\nresult := yes if input.method",
    f"yes(code) := {ALLOW}\n\nresult := yes(1) if input.method",
    'a if glob.match("refund.*", [], input.action.type)',
    'a if startswith(input.method, "/kblock")',
]
BROAD = [
    (f"default x := {ALLOW}", "7:1"),
    ("default allow := true", "7:1"),
    (f"result := {ALLOW}", "7:1"),
    (f"result := {ALLOW} if true", "7:1"),
    (f"result := {ALLOW} if flag\n\nflag if 1 == 1", "7:1"),
    (f"x := 1 if input.args else := {ALLOW}", "7:22"),
    ("allow if 1 == 1", "7:1"),
    (f"result := yes\n\nyes := {ALLOW}", "7:1"),
    (f"result := yes(1) if 2 > 1\n\nyes(code) := {ALLOW}", "7:1"),
    ('grants contains {"tenants": ["*"], "agents": ["a"]} if input.principal.id', "7:1"),
    (f"grants contains {GRANT} if input.method", "7:1"),
    (f"grants contains {GRANT} if input.principal.tenant", "7:1"),
    ('a if regex.match(".*", input.method)', "7:19"),
    ('a if glob.match("**", [], input.method)', "7:18"),
    ('a if startswith(input.method, "")', "7:32"),
]


@pytest.mark.parametrize("rule", CLEAR)
def test_an_allowance_that_looks_at_the_input_is_left_alone(rule: str) -> None:
    assert found(rule) == []


@pytest.mark.parametrize(("rule", "place"), BROAD)
def test_what_allows_more_than_it_seems_is_a_warning_where_it_stands(rule: str, place: str) -> None:
    assert [each.rpartition(" ")[0] for each in found(rule)] == [f"{place} warning"]


async def test_the_shipped_policies_have_no_finding() -> None:
    assert await reviewed(read(FOLDER), PATIENT) == ()


async def test_what_the_engine_cannot_read_is_a_note_and_its_annotations_are_still_read() -> None:
    text = "# METADATA\n# scope: packages\npackage a\n\nx := $`hello`\n"
    findings = await reviewed(Bundle.of({**files(), "a.rego": text}), PATIENT)
    assert {(each.file, each.level, each.code) for each in findings} == {
        (".", "note", "not-reviewed"),
        ("a.rego", "error", "metadata"),
    }


def over_the_missing(*rules: str) -> list[str]:
    """As ``found``, of a bundle that OPA decides by; only what this check says."""
    texts = {**files(), "decision.rego": package("decision", *rules)}
    findings = review(Modules(texts, {}), DecisionTime(), SCHEMA, server=True)
    return [f"{each.line} {each.level}" for each in findings if each.code == "undefined"]


@pytest.mark.parametrize(
    ("rule", "level"),
    [
        ('blocked if not input.args.region in {"eu"}', "error"),
        ('blocked if not startswith(input.args.region, "eu")', "error"),
        ("blocked if not input.args.amount > 5", "error"),
        ('blocked if input.args.region != "eu"', "warning"),
        ('blocked if "eu" != input.snapshot.region', "warning"),
        ("f(x) if { input.args.region != x }", "warning"),
        ('blocked if { input.args.other == 1; input.args.region != "eu" }', "warning"),
    ],
)
def test_apv_10_a_refusal_over_what_may_be_missing_is_told(rule: str, level: str) -> None:
    """With OPA as the engine a missing field must not turn into an allowance without a word."""
    assert over_the_missing(rule) == [f"7 {level}"]
    assert [each for each in found(rule) if "undefined" in each] == []  # the embedded engine's linter refuses or knows


@pytest.mark.parametrize(
    "rule",
    [
        'blocked if not input.args.region == "eu"',
        'blocked if { is_string(input.args.region); input.args.region != "eu" }',
        'blocked if { region := input.args.region; region != "eu" }',
        'blocked if input.principal.kind != "agent"',
        "blocked if { some x in input.args.list; x != 1 }",
        'known if input.args.region in {"eu"}\n\nblocked if not known',
    ],
)
def test_apv_10_what_says_what_a_missing_value_means_is_left_alone(rule: str) -> None:
    assert over_the_missing(rule) == []


def test_an_object_rule_where_a_set_is_meant_is_told() -> None:
    assert found('deny[msg] if { msg := "a" }') == ["7:1 warning object-rule"]
    assert found('deny contains msg if { msg := "a" }') == []
    assert found('deny[msg] := 1 if { msg := "a" }') == []


THIRD = "package third.policy\n\nimport rego.v1\n\nallow if input.request.user\n"


@pytest.mark.parametrize(
    ("call", "codes"),
    [
        ("ok if data.third.policy.allow with input as {}", []),
        ("ok if data.third.policy.allow", ["input-path"]),
        ("ok if data.third.policy.allow with input.args as {}", ["input-path"]),
        ("ok if data.third.policy.allow with input as {}\n\nalso if data.third.policy.allow", ["input-path"]),
    ],
)
def test_a_policy_that_is_asked_with_an_input_of_its_own_passes(call: str, codes: list[str]) -> None:
    """Third-party packages behind a rule of ours; asked as they are, their input is kblockd's."""
    texts = {**files(), "decision.rego": package("decision", call), "third.rego": THIRD}
    findings = review(Modules(texts, {}), DecisionTime(), SCHEMA)
    assert [each.code for each in findings if each.file == "third.rego"] == codes
    assert all("with input as" in each.next_step for each in findings if each.file == "third.rego")
