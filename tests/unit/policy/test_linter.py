"""Each thing that the embedded engine would do differently from OPA is refused, with its place and the next step."""

from __future__ import annotations

import json

import pytest
import regorus

from kblockd.policy.builtins.allowed import ARITY, REFUSED
from kblockd.policy.builtins.replacements import DecisionTime
from kblockd.policy.embedded.modules import Modules, load
from kblockd.policy.faults import BundleFault
from kblockd.policy.rego.linter import lint


def faults(rules: str, *, head: str = "package a\n\nimport rego.v1\n\n", **data: object) -> list[BundleFault]:
    """Of one module; the rules begin at line 5."""
    tree = load(Modules({"a.rego": head + rules}, {}), DecisionTime()).get_ast_as_json()
    return lint(json.loads(tree), data)


REFUSALS = {
    "http.send": (
        'x if {\n\ty := http.send({"url": "http://a"})\n\tnot y.blocked\n}',
        6,
        "http.send may not be called",
    ),
    "opa.runtime": ("x := opa.runtime()", 5, "opa.runtime"),
    "rand.intn": ('x := rand.intn("a", 5)', 5, "rand.intn"),
    "uuid.rfc4122": ('x := uuid.rfc4122("a")', 5, "uuid.rfc4122"),
    "net.lookup": ('x := net.lookup_ip_addr("a")', 5, "net.lookup_ip_addr"),
    "print": ('x if {\n\tprint("a")\n}', 6, "print"),
    "unsupported": ('x if io.jwt.decode("a")', 5, "io.jwt.decode is not a function"),
    "dead branch": ("x if {\n\tfalse\n\tcrypto.x509.parse_certificates(input.a)\n}", 7, "crypto.x509"),
    "below a comprehension": ("x := [y | y := graphql.parse(input.a)]", 5, "graphql.parse"),
    "in an else": ('x := 1 if false\n\nelse := uri.parse("a") if true', 7, "uri.parse"),
    "in a default argument": ('x := object.get(input, "a", rand.intn("a", 1))', 5, "rand.intn"),
    "with value": ("x if y with input.a as opa.runtime()\n\ny if input.a", 5, "opa.runtime"),
    "differs": ('x := json.match_schema("{}", "{}")', 5, "json.match_schema"),
    "lenient": ('x := time.parse_ns("2006-01-02", "2026-2-3")', 5, "time.parse_ns"),
    "unknown": ("x if {\n\tfalse\n\tnosuch(1)\n}", 7, "nosuch is not a function"),
    "unknown in data": ("x if {\n\tfalse\n\tdata.b.f(1)\n}", 7, "no file of the bundle defines the function data.b.f"),
    "too many arguments": ("x if {\n\tfalse\n\tcount(1, 2, 3)\n}", 7, "count takes 1"),
    "too few arguments": ("x if {\n\tfalse\n\tf(1)\n}\n\nf(a, b) if a == b", 7, "f takes 2"),
    "shadowed builtin": ("count(a) := a", 5, "the name of a builtin"),
    "rule named internal": ('internal if input.a in ["x"]', 5, "internal is a name of OPA's own"),
    "two defaults": ("default x := 1\n\ndefault x := 2", 5, "has 2 defaults"),
    "walk by assignment": ("x if {\n\t[p, v] := walk(input)\n\tp == v\n}", 6, "walk"),
    "json.patch": ('x := json.patch(input.args, [{"op": "remove", "path": "/a"}])', 5, "json.patch that does not fit"),
    "sprintf verb": ('x := sprintf("%5.2f", [1.5])', 5, "sprintf %5"),
    "float without fraction": ("x := 3.0", 5, "without its fraction"),
    "exponent": ("x := 1e6", 5, "without its exponent"),
    "large integer": ("x := 9007199254740993", 5, "beyond 2^53"),
    "key and value in": ('x if "k", 1 in input.a', 5, "differs when x is a set"),
    "with a function": ("x if f(1) with data.a.f as 2\n\nf(1) := true", 5, "cannot replace a function"),
    "with a builtin": ("x if count([]) == 1 with count as 1", 5, "input and data only"),
    "set below a variable": ("q[a].r contains 1 if some a in [1]", 5, "variable part"),
    "argument named input": ("f(input) := input", 5, "input cannot be shadowed"),
    "variable named data": ("x if {\n\tsome data in [1]\n\tdata == 1\n}", 6, "data cannot be shadowed"),
    "every named input": ("x if every input in [1] {\n\tinput == 1\n}", 5, "input cannot be shadowed"),
}


@pytest.mark.parametrize(("rules", "line", "message"), REFUSALS.values(), ids=REFUSALS.keys())
def test_refused(rules: str, line: int, message: str) -> None:
    found = faults(rules)
    assert found, "not refused"
    assert message in found[0].message
    assert (found[0].file, found[0].line) == ("a.rego", line)
    assert found[0].column > 0
    assert found[0].next_step


IMPORTS = {
    "future not": ("import future.keywords.not", "changes what `not` means"),
    "all of future": ("import future.keywords", "changes what `not` means"),
    "twice": ("import data.b\nimport input.b", "shadows another name"),
    "a rule": ("import data.x", "shadows another name"),
    "aliased to input": ("import data.b as input", "shadows another name"),
}


@pytest.mark.parametrize(("imports", "message"), IMPORTS.values(), ids=IMPORTS.keys())
def test_import_refused(imports: str, message: str) -> None:
    found = faults("x := 1\n", head=f"package a\n\n{imports}\n\n")
    assert found
    assert message in found[0].message


ALLOWED = [
    'x if startswith(input.method, "b")',
    'x if {\n\tis_string(input.a)\n\tstartswith(input.a, "b")\n}',
    "x := f(1)\n\nf(a) := a",
    "x := data.a.f(1)\n\nf(a) := a",
    "x if y with input as {} with data.b as 1\n\ny if input.a",
    "x if f(1, 2)\n\nf(a, b) if a == b",
    "x if {\n\twalk(input, [p, v])\n\tp == v\n}",
    'x := sprintf("%s is %d of %v%%", ["a", 1, 2])',
    "x := 3\n\ny := 3.5\n\nz := 9007199254740992",
    "x if 1 in input.a",
    "x := {y | some y in [1]; y in input.a}",
    "x := z in [1] if z := input.a",
    "x if some k, v in input.a",
    'x contains "a" if input.b',
    "x[k] := v if some k, v in input.a",
    "x := http\n\nhttp := 1",
    "default x := 1\n\nx := 2 if input.a",
]


@pytest.mark.parametrize("rules", ALLOWED)
def test_allowed(rules: str) -> None:
    assert faults(rules) == []


def test_imports_are_resolved() -> None:
    """A call through an alias of an import is a call of what was imported."""
    head = "package a\n\nimport data.b.f as g\nimport rego.v1\n\n"
    assert (
        "no file of the bundle defines the function data.b.f"
        in faults("x if {\n\tfalse\n\tg(1)\n}", head=head)[0].message
    )
    both = Modules({"a.rego": head + "x := g(1)", "b.rego": "package b\n\nf(a) := a"}, {})
    assert lint(json.loads(load(both, DecisionTime()).get_ast_as_json()), {}) == []


def test_data_under_a_package_is_refused() -> None:
    """A document could stand in for a rule that is undefined."""
    assert "data.a is also a package" in faults("x := 1", a={"x": 2})[0].message
    assert faults("x := 1", b={"x": 2}) == []


def test_every_builtin_of_the_engine_is_allowed_or_refused() -> None:
    """A new version of the engine cannot bring one in unseen."""
    query = regorus.Engine().eval_query_as_json("opa.runtime().builtins")
    names = set(json.loads(query)["result"][0]["expressions"][0]["value"])
    known = set(ARITY) | set(REFUSED)
    assert {name for name in names - known if not name.startswith("__builtin_")} == set()
    assert not set(ARITY) & set(REFUSED)


@pytest.mark.parametrize("name", sorted(ARITY))
def test_arity_is_that_of_the_engine(name: str) -> None:
    """With one argument too few the engine itself objects, unless it is a builtin without arguments."""
    engine = load(Modules({}, {}), DecisionTime())
    few = ", ".join(["1"] * (ARITY[name] - 1))
    many = ", ".join(["1"] * (ARITY[name] + 2))
    for arguments in [few, many] if ARITY[name] else [many]:
        with pytest.raises(RuntimeError):
            engine.eval_query_as_json(f"{name}({arguments})")


SAME = [
    "x if not input.a",
    'x if not input.a.b["c"]',
    "x if not input.a == 1",
    "x if not input.a == input.b",
    "x if not input.a = 1",
    "x if not y\n\ny if input.a",
    "x if {\n\ty := input.a\n\tnot y in known\n}\n\nknown := {1}",
    "x if {\n\ty := input.a\n\tnot f(y)\n}\n\nf(1) := true",
    "x if not 1 in [y | y := input.a]",
    "x if not 1 in known\n\nknown contains input.a",
    "x if not f(known)\n\ndefault known := 1\n\nknown := input.a\n\nf(1) := true",
    "x if {\n\tsome y in input.a\n\tnot input.b[y]\n}",
]
DIFFERENT = [
    "x if not input.a in known\n\nknown := {1}",
    "x if not 1 in input.a",
    "x if not input.a > 1",
    "x if not input.a != 1",
    "x if not f(input.a)\n\nf(1) := true",
    "x if not f([input.a])\n\nf([1]) := true",
    'x if not f({"a": input.a})\n\nf(1) := true',
    'x if not startswith(input.a, "b")',
    "x if not input.a + 1 == 2",
    "x if not input.b[input.a]",
    "x if not count(input.a) > 1",
    "x if not f(y)\n\ny := input.a\n\nf(1) := true",
    "x if not y in known\n\ny := 1 if input.a\n\nknown := {1}",
    "x if not 1 in known\n\nknown := input.a",
]


@pytest.mark.parametrize("rules", SAME)
def test_not_that_is_the_same_in_both_engines(rules: str) -> None:
    assert faults(rules) == []


@pytest.mark.parametrize("rules", DIFFERENT)
def test_not_over_an_undefined_operand_is_refused(rules: str) -> None:
    """OPA answers undefined, this engine true: a rule that denies fails open in one of them."""
    found = faults(rules)
    assert [fault.message for fault in found] == ["`not` over an operand that may be undefined differs from OPA"]
    assert found[0].line == 5 or "\n\ty" in rules


@pytest.mark.parametrize(
    "rules",
    [
        'x if (input.a in ["b"]) == false',
        'x if {\n\ty := input.a in ["b"]\n\tnot y\n}',
        "x := 1 in input.a",
        'x if f(input.a in ["b"])\n\nf(false) := true',
        'x := [input.a in ["b"]]',
    ],
)
def test_in_as_a_value_over_an_undefined_operand_is_refused(rules: str) -> None:
    """OPA answers undefined, this engine false: what rests on that false allows in one of them."""
    found = [fault.message for fault in faults(rules)]
    assert found == ["the value of `in` over an operand that may be undefined differs from OPA"]


def test_json_patch_in_a_test_is_taken() -> None:
    text = 'package a\n\nimport rego.v1\n\ntest_x if json.patch({"a": 1}, [{"op": "remove", "path": "/a"}]) == {}\n'
    tree = load(Modules({"a_test.rego": text}, {}), DecisionTime()).get_ast_as_json()
    assert lint(json.loads(tree), {}) == []
