"""Writes ``opa_vectors.json``: what OPA itself answers to calls of the builtins that kblockd replaces.

Needs the ``opa`` program (the checked-in file is by 1.22.3)::

    python tests/unit/policy/make_vectors.py /path/to/opa

Each row is [expression, value]; an expression that OPA answers with an error has no row's value but ``null`` in
``undefined``.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

OUT = Path(__file__).with_name("opa_vectors.json")

GLOBS = [
    *("a:*", "a:*:c", "a:**", "*:b", "a?c", "{a,b}:c", "{a,}c", "[abc]x", "[!a]x", "[a-c]x", "[!a-c]x", "\\\\*"),
    *("**.com", "{*.a,b}", "", "*", "**", "é*", "a{b,c{d,e}}f", "[", "{a", "a.*.c", "***", "?:?", "a}b", "a,b"),
]
GLOB_TEXTS = ["a:b", "a:b:c", "abc", "c", "ax", "dx", "*", "a.b.com", "", "é1", "acdf", "a.b.c", "a\n:b", "a}b", "a,b"]
PATTERNS = [
    *(r"\w+", r"\s", r"\d", "a*", "(a)(b)?", "^a", "b$", r"\bfoo\b", "(?i)ABC", "[é]", "(?P<n>a+)b", "", "(", "x|"),
    *("(?s).", r"\pL+", "a{2,3}", r"\Qa.b\E", "a**", "(?=a)", r"\1", "$", "^|b"),
]
TEXTS = ["baac", "abab", "foo bar", "é a", "", "abc ABC", "a\nb", "ééa", "a.b", "١"]
NETWORKS = ["10.0.0.0/8", "10.1.2.3", "10.1.2.3/8", "::1", "::/0", "::ffff:10.1.2.3", "bad", "10.0.0.0/33", "010.0.0.1"]
TIMES = [
    *("2026-11-29T10:00:00Z", "2026-11-29T10:00:00.123456789Z", "2026-11-29T10:00:00.5+02:00", "2026-11-29t10:00:00Z"),
    *(
        "2026-11-29 10:00:00Z",
        "2026-02-30T10:00:00Z",
        "2026-11-29T24:00:00Z",
        "2026-11-29T10:00:00",
        "2300-01-01T00:00:00Z",
    ),
    *("1969-12-31T23:59:59.5Z", "2026-11-29T10:00:60Z", "1600-01-01T00:00:00Z", "2026-11-29T10:00:00.1234567891Z"),
]
FORMATS = [
    *('"%s", ["a"]', '"%d", [1]', '"%v", [1.5]', '"%v", ["a"]', '"%v", [{"b": [1, "c", null, true], "a": 1}]'),
    *('"%s", [true]', '"%s", [null]', '"%%", []', '"%s-%d", ["é", -3]', '"%v", [123456789012]', '"%s", [["x\\"y"]]'),
]
OTHERS = [
    *('strings.replace_n({"a": "b", "b": "c"}, "ab")', 'strings.replace_n({"a": "1", "aa": "2"}, "aaa")'),
    *('strings.replace_n({"<": "&lt;", "&": "&amp;"}, "<&<")', 'strings.replace_n({}, "x")'),
    *(
        f"to_number({value})"
        for value in ('"1"', '"1.5"', '"abc"', '""', '" 1"', '"9007199254740993"', "true", "null", "2")
    ),
    *(f"time.add_date({at}, {by})" for at in (1769860800000000000, -1) for by in ("0, 1, 0", "0, 13, 0", "-1, -2, -3")),
    *('regex.template_match("urn:{[a-z]+}:x", "urn:ab:x", "{", "}")', 'regex.template_match("a{b", "a", "{", "}")'),
    *('regex.template_match("a.b", "axb", "{", "}")', 'regex.template_match("{a{2}}", "aa", "{", "}")'),
    *(f"strings.count({texts})" for texts in ('"11111", "11"', '"é💶", ""', '"", ""', '"", "a"', '"aba", "a"')),
    *('crypto.sha256("aé")', 'crypto.hmac.sha256("aé", "k")', 'crypto.hmac.equal("a", "b")'),
]


def quoted(text: str) -> str:
    """As a Rego string."""
    return json.dumps(text, ensure_ascii=False)


def expressions() -> Iterator[str]:
    """Every call that is compared."""
    for glob, delimiters, text in itertools.product(GLOBS, ('[":"]', "[]", "null", '[":", "."]'), GLOB_TEXTS):
        yield f'glob.match("{glob}", {delimiters}, {quoted(text)})'
    for pattern in map(quoted, PATTERNS):
        yield f"regex.is_valid({pattern})"
        for text in map(quoted, TEXTS):
            yield f"regex.match({pattern}, {text})"
            yield f"regex.find_n({pattern}, {text}, -1)"
            yield f"regex.find_all_string_submatch_n({pattern}, {text}, 2)"
            yield f'regex.replace({text}, {pattern}, "[$1${{n}}$$x$n_]")'
            yield f"regex.split({pattern}, {text})"
    for one, two in itertools.product(map(quoted, NETWORKS), repeat=2):
        yield f"net.cidr_contains({one}, {two})"
        yield f"net.cidr_intersects({one}, {two})"
    yield from (f"time.parse_rfc3339_ns({quoted(text)})" for text in TIMES)
    yield from (f"sprintf({call})" for call in FORMATS)
    yield from OTHERS


def main(opa: str) -> None:
    """One module with a rule a call; what is an error to OPA is undefined."""
    calls = list(expressions())
    rules = [f"r{number} := {call}" for number, call in enumerate(calls)]
    with tempfile.NamedTemporaryFile("w", suffix=".rego") as module:
        module.write("\n\n".join(["package vectors", "import rego.v1", *rules]))
        module.flush()
        command = [opa, "eval", "--format", "values", "--data", module.name, "data.vectors"]
        (found,) = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    answers = [[call, found[f"r{number}"]] for number, call in enumerate(calls) if f"r{number}" in found]
    undefined = [call for number, call in enumerate(calls) if f"r{number}" not in found]
    rows = [json.dumps(row, ensure_ascii=False) for row in answers]
    text = '{"answers": [\n' + ",\n".join(rows) + '\n], "undefined": [\n'
    OUT.write_text(text + ",\n".join(json.dumps(call, ensure_ascii=False) for call in undefined) + "\n]}\n")


if __name__ == "__main__":
    main(sys.argv[1])
