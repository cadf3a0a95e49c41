"""Refuses, with a place, what the embedded engine would answer differently from OPA or not at all.

A branch that is not taken loads whatever it calls, so every call is looked up here. Source:
kblockd/policy/README.md#differences-from-opa.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from kblockd.policy.builtins import allowed
from kblockd.policy.faults import BundleFault
from kblockd.policy.rego import advice, affixes, bodies
from kblockd.policy.rego.negation import Negations
from kblockd.policy.rego.syntax import Module, Node, alias, reference, span, walk
from kblockd.policy.rego.text_paths import text_paths

_KEYWORDS: Final = frozenset({"contains", "every", "if", "in"})
_RESERVED: Final = frozenset({"input", "data"})
_VERB: Final = re.compile(r"%(?P<verb>.?)", re.DOTALL)
_EXACT: Final = 1 << 53

Functions = Mapping[str, int]


def lint(tree: Sequence[Mapping[str, Any]], data: Mapping[str, Any]) -> list[BundleFault]:
    """All faults of a bundle, by file and place; ``tree`` is the engine's ``get_ast_as_json()``."""
    modules = [Module.from_ast(row) for row in tree]
    functions = _functions(modules)
    negations, is_text = Negations(modules), text_paths(data)
    faults = [*_defaults(modules), *_data(modules, data)]
    for module in modules:
        faults += [*_imports(module), *_rules(module, functions)]
        faults += [*negations.faults(module), *negations.members(module)]
        if not module.file.endswith("_test.rego"):
            faults += affixes.faults(bodies.bodies(module), is_text)
        for kind, node in walk(module.rules):
            if check := _CHECKS.get(kind):
                faults += check(module, node, functions)
    return sorted(set(faults), key=lambda fault: (fault.file, fault.line, fault.column, fault.message))


def server_faults(tree: Sequence[Mapping[str, Any]], data: Mapping[str, Any]) -> list[BundleFault]:
    """Builtins that an OPA server would not answer from the input alone, and data that shadow the server's own."""
    own = (
        [BundleFault("data", 0, 0, "data.system is OPA's own", "give the document another name")]
        if "system" in data
        else []
    )
    return own + [
        module.fault(node, f"{name} may not be called", allowed.REFUSED_ON_SERVER[name])
        for module in map(Module.from_ast, tree)
        for kind, node in walk(module.rules)
        if kind == "Call" and (name := _name(module, reference(node["fcn"]) or ("",))) in allowed.REFUSED_ON_SERVER
    ]


def _name(module: Module, path: tuple[str, ...]) -> str:
    return ".".join((*module.aliases.get(path[0], path[:1]), *path[1:]))


def rule_names(module: Module) -> Iterator[tuple[tuple[str, ...], Node]]:
    """(path below the package, head or default) of every rule of a module."""
    for rule in module.rules:
        node = rule.get("Default") or span(rule["Spec"]["head"])
        yield reference(node["refr"]) or (), node


def _functions(modules: Sequence[Module]) -> Functions:
    """Arity of every function that the bundle defines, by full path."""
    return {
        ".".join((*module.package, *(reference(head["refr"]) or ()))): len(head["args"])
        for module in modules
        for kind, head in walk(module.rules)
        if kind == "Func"
    }


def _defaults(modules: Sequence[Module]) -> Iterator[BundleFault]:
    rows = [
        (".".join((*module.package, *(reference(rule["Default"]["refr"]) or ()))), module, rule["Default"])
        for module in modules
        for rule in module.rules
        if "Default" in rule
    ]
    count = Counter(name for name, _, _ in rows)
    for name, module, node in rows:
        if count[name] > 1:
            yield module.fault(node, f"{name} has {count[name]} defaults", "keep one of them")


def _data(modules: Sequence[Module], data: Mapping[str, Any]) -> Iterator[BundleFault]:
    """A base document under a package could stand in for a rule that is undefined."""
    for name in sorted({module.package[1] for module in modules if len(module.package) > 1} & set(data)):
        yield BundleFault("data", 0, 0, f"data.{name} is also a package", "give the document another name")


def _imports(module: Module) -> Iterator[BundleFault]:
    defined = {path[0] for path, _ in rule_names(module) if path}
    seen: set[str] = set()
    for node in module.imports:
        path = reference(node["refr"]) or ()
        if path[:2] == ("future", "keywords"):
            if path[2:3] == ("not",) or len(path) < 3 or path[2] not in _KEYWORDS:
                what = ".".join(path)
                yield module.fault(node, f"import {what} changes what `not` means in OPA only", "import rego.v1")
            continue
        if path == ("rego", "v1"):
            continue
        if not path or path[0] not in _RESERVED:
            yield module.fault(node, "only data and input can be imported", "correct the path")
            continue
        name = alias(node, module.contents)
        if name in seen or name in defined or (name in _RESERVED and len(path) > 1):
            yield module.fault(node, f"the import {name} shadows another name", "import it `as` a name of its own")
        seen.add(name)


def _rules(module: Module, functions: Functions) -> Iterator[BundleFault]:
    for path, head in rule_names(module):
        if path[:1] == ("internal",):  # with an `in` beside it OPA looks there for a function of its own
            yield module.fault(head, "internal is a name of OPA's own", "give the rule another name")
        if "args" in head and ".".join((*module.package, *path)) in functions and ".".join(path) in allowed.ARITY:
            yield module.fault(head, f"{'.'.join(path)} is the name of a builtin", "give the function another name")


def _call(module: Module, node: Node, functions: Functions) -> Iterator[BundleFault]:
    path = reference(node["fcn"])
    if path is None:
        yield module.fault(node, "the name of a function must be constant", "write the name out")
        return
    name = _name(module, path)
    local = ".".join((*module.package, name))
    count = len(node["params"])
    arity = functions.get(local, functions.get(name, allowed.ARITY.get(name)))
    if name in allowed.REFUSED and local not in functions:
        yield module.fault(node, f"{name} may not be called", allowed.REFUSED[name])
    elif arity is None:
        yield module.fault(node, *advice.undefined_function(name, (*functions, *allowed.ARITY)))
    elif count not in (arity, arity + 1):
        yield module.fault(node, f"{name} takes {arity} arguments, {count} are given", "correct the call")
    elif name == "walk" and count == 1:
        yield module.fault(node, "the engine cannot take the result of walk apart", "write walk(x, [path, value])")
    elif name == "time.format" and "Array" in node["params"][0]:
        yield module.fault(node, "time.format knows no zones and layouts here", "give it the nanoseconds alone (UTC)")
    elif name == "json.patch" and not module.file.endswith("_test.rego"):
        what = "json.patch that does not fit its document is undefined here, an error in OPA"
        yield module.fault(node, what, "call it in tests only; build the object with object.union")
    elif name == "sprintf":
        yield from _format(module, node)


def _format(module: Module, node: Node) -> Iterator[BundleFault]:
    literal = node["params"][0].get("String") or node["params"][0].get("RawString")
    for verb in _VERB.findall(literal["value"] if literal else ""):
        if verb not in ("s", "d", "v", "%"):
            yield module.fault(node, f"sprintf %{verb} is not the same in both engines", "use %s, %d or %v")


def _number(module: Module, node: Node, _: Functions) -> Iterator[BundleFault]:
    if "value" not in node or "span" not in node:
        return
    text = module.text(node["span"]).strip().lstrip("-")
    if re.fullmatch(r"\d+\.0*", text):
        yield module.fault(node, f"{text} is printed without its fraction", "write an integer")
    elif "e" in text.lower():
        yield module.fault(node, f"{text} is printed without its exponent", "write the number out")
    elif text.isdigit() and int(text) > _EXACT:
        yield module.fault(node, f"{text} is beyond 2^53", "compare such numbers as strings")


def _membership(module: Module, node: Node, _: Functions) -> Iterator[BundleFault]:
    if node.get("key") is not None:
        yield module.fault(node, "`key, value in x` differs when x is a set", "write x[key] == value")


def _with(module: Module, node: Node, functions: Functions) -> Iterator[BundleFault]:
    path = reference(node["refr"])
    resolved = path and (*module.aliases.get(path[0], path[:1]), *path[1:])
    if not resolved or resolved[0] not in _RESERVED:
        yield module.fault(node, "`with` can replace input and data only", "put the value into input or data")
    elif ".".join(resolved) in functions:
        yield module.fault(node, "`with` cannot replace a function", "put the value into input or data")


def _set_head(module: Module, node: Node, _: Functions) -> Iterator[BundleFault]:
    if "refr" in node and reference(node["refr"]) is None:
        yield module.fault(node, "a set rule below a variable part", "write an object rule whose value is a set")


def _names(module: Module, spans: Sequence[Node]) -> Iterator[BundleFault]:
    for each in spans:
        name = module.text(each)
        if name in _RESERVED:
            yield module.fault(each, f"{name} cannot be shadowed", "give the variable another name")


def _variables(nodes: Sequence[Any]) -> list[Node]:
    """Spans of the variables that a pattern binds."""
    return [node["span"] for kind, node in walk(list(nodes)) if kind == "Var"]


def _function_head(module: Module, node: Node, _: Functions) -> Iterator[BundleFault]:
    yield from _names(module, _variables(node["args"]))


def _assignment(module: Module, node: Node, _: Functions) -> Iterator[BundleFault]:
    if node.get("op") == "ColEq":
        yield from _names(module, _variables([node["lhs"]]))


def _some_vars(module: Module, node: Node, _: Functions) -> Iterator[BundleFault]:
    yield from _names(module, node["vars"])


def _some_in(module: Module, node: Node, _: Functions) -> Iterator[BundleFault]:
    yield from _names(module, _variables([each for each in (node["key"], node["value"]) if each]))


def _every(module: Module, node: Node, _: Functions) -> Iterator[BundleFault]:
    yield from _names(module, [each for each in (node["key"], node["value"]) if each])


_CHECKS: Final[Mapping[str, Callable[[Module, Node, Functions], Iterator[BundleFault]]]] = {
    "AssignExpr": _assignment,
    "Call": _call,
    "Every": _every,
    "Func": _function_head,
    "Membership": _membership,
    "Number": _number,
    "Set": _set_head,
    "SomeIn": _some_in,
    "SomeVars": _some_vars,
    "with_mods": _with,
}
