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
    *(f"{name}({value})" for name in ("floor", "ceil") for value in (2, 2.1, 2.9, -1.5, -2.1)),
    *('regex.template_match("urn:{[a-z]+}:x", "urn:ab:x", "{", "}")', 'regex.template_match("a{b", "a", "{", "}")'),
    *('regex.template_match("a.b", "axb", "{", "}")', 'regex.template_match("{a{2}}", "aa", "{", "}")'),
    *(f"strings.count({texts})" for texts in ('"11111", "11"', '"é💶", ""', '"", ""', '"", "a"', '"aba", "a"')),
    *('crypto.sha256("aé")', 'crypto.hmac.sha256("aé", "k")', 'crypto.hmac.equal("a", "b")'),
]

CASES = ["İSTANBUL", "istanbul", "ΑΣ", "ΣΑΣ Σ", "straße", "ẞ", "ﬁ", "ǆ", "ǅ", "ŉ", "ΐ", "Ⅷ", "𐐀𐐨", "ꭰ", "A1\u00a0z", ""]
MARSHALLED = [
    *(
        '"<&>"',
        '"a\\u2028\\u2029\\u0000\\u007f\\b\\f\\n\\"\\\\/"',
        '"é💶"',
        "1",
        "-2.5",
        "null",
        "[]",
        "{}",
        "1767225600000000001",
    ),
    *('{"b": [1, true], "a<": {"&": null}}', '{"b", "a", "é"}', "[0.25, {}]", '{"é": 1, "z": 2, "Z": 3}'),
]
SMALL = [
    *(f"indexof({call})" for call in ('"é💶a", "a"', '"a", "b"', '"a", ""', '"aXa", "a"')),
    *(f"indexof_n({call})" for call in ('"aaa", "aa"', '"é💶a", "a"', '"a", ""', '"a", "b"')),
    *(f"glob.quote_meta({quote})" for quote in ('"*?[]{}\\\\-!,"', '"a:b"')),
    *(f"base64url.decode({text})" for text in ('"YQ"', '"YQ=="', '"YQ="', '"+/+/"', '"YWJj\\n"', '"w6k"', '""')),
    *(f"json.is_valid({text})" for text in ('"1e600000000"', '"NaN"', '"{}"', '"{"', '"[1,]"', '"\\"\\t\\""', '"01"')),
    *(f"array.slice([1, 2, 3], {at})" for at in ("0, 2", "-1, 2", "2, 9", "2, 1", "0, 1.5")),
    *(f"bits.{call}" for call in ("and(12, 10)", "or(12, 10)", "xor(12, 10)", "negate(5)", "negate(-1)", "lsh(1, 62)")),
    *(f"bits.{call}" for call in ("rsh(-9, 1)", "rsh(1, 70)", "lsh(0, 99)", "lsh(1, -1)", "and(1.5, 1)", "rsh(5, -1)")),
    *(f"replace({call})" for call in ('"aXbX", "X", "yy"', '"aaa", "aa", "b"', '"é", "é", "e"')),
    *(
        f"substring({call})"
        for call in ('"é💶abc", 1, 2', '"abc", 1, -1', '"abc", 9, 1', '"abc", -1, 1', '"abc", 0, 99')
    ),
    *(f"time.format({at})" for at in (0, 10, 1500000000, 1767225600000000000, 1767225600120000000, -1, 1.5)),
    *(f"urlquery.encode({text})" for text in ('"a b&c=*~-_./"', '"é💶"', '""', '"\\n"')),
    *(f"urlquery.decode({text})" for text in ('"a%20b+c&d"', '" 1 "', '"%zz"', '"%"', '"%C3%A9"', '"a\\nb"')),
    *(
        f"urlquery.decode_object({text})"
        for text in ('"a=1&b=2&a=3"', '"a"', '""', '"&&"', '"a=b=c"', '"a;b"', '"%20=+"')
    ),
    *(f"urlquery.encode_object({text})" for text in ('{"b": "x y", "a": ["1", "&"]}', '{"a": {"z", "y"}}', "{}")),
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
    yield from (f"{builtin}({quoted(text)})" for builtin in ("lower", "upper") for text in CASES)
    yield from (f"json.marshal({value})" for value in MARSHALLED)
    yield from SMALL
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
