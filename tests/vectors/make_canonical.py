"""Makes ``canonical.json``: odd texts, and what must become of each. Run: ``python tests/vectors/make_canonical.py``.

The expected bytes come from Node, whose ``JSON.stringify`` and string order are the definition that RFC 8785 refers
to, so that neither our module nor the packages under it are their own judge. A refused text names why.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

HERE = Path(__file__).parent

NUMBERS = """
0 -0 0.0 -0.0 0e0 0e10 -0e-7 0.000 1 -1 1.0 10.0 100.00 1e0 1e1 1E1 1e+1 1e01 1.50 15e-1 0.15e1 1e-7 1E-7 0.0000001
1e20 1e21 1e22 1e+21 100000000000000000000.0 123456789012345680000.0 1.2345678901234568e20 1.2345678901234568e21
5e-324 0.00001 0.000001 1e-5 1e-6 1e-8 1.5e-9 9007199254740991 -9007199254740991
9007199254740991.0 9007199254740992.0 -9007199254740992.0 9007199254740994.0 1.7976931348623157e308
-1.7976931348623157e308 2.2250738585072014e-308 2.225073858507201e-308 0.1 0.2 0.3 0.30000000000000004 1.1 2.5
333333333.3333333 4.5 0.002 1e-27 1e23 1.0000000000000002 4.35 0.000001234 123.456 -123.456e3
123456789.125 1e15 1e16 1e17 999999999999999900000.0 295147905179352830000.0 4294967295 4294967296 -2147483648
"""

TEXTS = [
    "",
    " ",
    "a",
    "é",
    "e\u0301",  # not NFC: stays as it is
    "\u00c5",
    "\u212b",
    "ﬁ",
    "\u200b",
    "\u200d",
    "\u202e reversed",
    "\ufeff inside is a character",
    "\ufffd",
    "\ufffe",
    "\uffff",
    "\ue000",
    "😀",
    "👩‍👩‍👧",
    "\U0010ffff",
    "\u2028 \u2029",
    "</script>",
    "/",
    '"',
    "\\",
    "\\u0061",
    "\b\t\n\f\r",
    "".join(map(chr, range(0x20))),
    "\x7f",
    "\x80\x9f",
    "\u00a0",
    "İ ı",
    "ß",
    "Ω",
    "中文",
    "العربية",
    "हिन्दी",
    "null",
    "true",
    "NaN",
    "1e400",
    "9007199254740993",
    "10.00",
    "%s %n {0} ${x} `id`",
    "'; DROP TABLE refunds; --",
    "\x1b[31mred",
    "a" * 1000,
]

ESCAPED = [
    r'"A"',
    r'"\u0041"',
    r'"\u00e9"',
    r'"\/"',
    r'"\ud83d\ude00"',
    r'"\uD83D\uDE00"',
    r'"\u0000"',
    r'"\u001F"',
    r'"\u007f"',
    r'"\u2028"',
    r'"\ufeff"',
    r'"\ufdd0"',
    r'"\b\f\n\r\t\"\\"',
]

OBJECTS = [
    "{}",
    "[]",
    "null",
    "true",
    "false",
    '{"":""}',
    '{" ":1,"":2}',
    '{"b":1,"a":2}',
    '{"a":{"b":1},"a.b":2}',
    '{"B":1,"a":2,"A":3,"b":4}',
    '{"10":1,"9":2,"1":3}',
    '{"é":1,"z":2}',
    '{"e\u0301":1,"é":2}',
    '{"\\u0061":1,"b":2}',
    '{"\\ufb33":1,"\\ud83d\\ude00":2,"\\u20ac":3,"\\r":4,"1":5,"\\u0080":6,"\\u00f6":7}',  # RFC 8785, 3.2.3
    '{"\\ue000":1,"\\ud800\\udc00":2}',
    '{"\\uffff":1,"\\udbff\\udfff":2}',
    '{"\\uffff":1,"\\ufffe":2}',
    '{"a\\ud83d\\ude00":1,"a\\uffff":2,"a":3}',
    '{"\\u0000":1,"\\u0001":2}',
    '{"\\n":1,"\\t":2}',
    '{"__proto__x":1,"constructor":2,"toString":3}',
    '{"/":1,"~":2,"~1":3}',
    '{"a":[1,2.5,"x",null,true,{"c":[],"b":{}}]}',
    "[[[[[[]]]]]]",
    "[1,1.0,1e0,10e-1]",
    "[0,-0,0.0,-0.0]",
    "[null,[null],{}]",
    ' \t\r\n{ "a" : [ 1 , 2 ] } \n',
    '{"amount":"10.00","currency":"EUR","order_id":"o-1"}',
    '{"n":[1e20,1e21,1e-7,0.00001,5e-324,10.0,-0.0]}',
    '{"a":{"a":{"a":{"a":{"a":1}}}}}',
    "[" * 31 + "[]" + "]" * 31,
    '{"a":' * 31 + "{}" + "}" * 31,
    '{"k":"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[["}',
    '{"k":"\\"{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{{"}',
]

REFUSED = {
    '{"a":1,"a":2}': "twice",
    '{"a":1,"\\u0061":2}': "twice",
    '{"a":1,"a":1}': "twice",
    '{"x":[{"y":1,"y":1}]}': "twice",
    '{"\\ud83d\\ude00":1,"😀":2}': "twice",
    '{"":1,"":2}': "twice",
    "NaN": "not JSON",
    "Infinity": "not JSON",
    "-Infinity": "not JSON",
    '{"a":NaN}': "not JSON",
    "1e400": "beyond a double",
    "-1e400": "beyond a double",
    "[1e309]": "beyond a double",
    "1.7976931348623159e308": "beyond a double",
    "9007199254740992": "beyond 2^53-1",
    "9007199254740993": "beyond 2^53-1",
    "-9007199254740992": "beyond 2^53-1",
    "100000000000000000000": "beyond 2^53-1",
    "9007199254740993.0": "shortest form",
    "0.1000000000000000055511151231257827": "shortest form",
    "0.30000000000000000001": "shortest form",
    "1.10000000000000000001": "shortest form",
    "1e-400": "shortest form",
    "4.9406564584124654e-324": "shortest form",
    "2e-324": "shortest form",
    "9.999999999999999e22": "shortest form",  # the double of 1e23
    "1.00000000000000000000001": "shortest form",
    "333333333.33333329": "shortest form",
    '"\\ud800"': "surrogate",
    '"\\udc00"': "surrogate",
    '"\\ude00\\ud83d"': "surrogate",
    '{"\\ud800":1}': "surrogate",
    '["a\\udfffb"]': "surrogate",
    "\ufeff{}": "byte-order mark",
    "": "not JSON",
    " ": "not JSON",
    "{": "not JSON",
    "{}{}": "not JSON",
    "{} x": "not JSON",
    "{'a':1}": "not JSON",
    "{a:1}": "not JSON",
    '{"a":1,}': "not JSON",
    "[1,]": "not JSON",
    "01": "not JSON",
    "-": "not JSON",
    "+1": "not JSON",
    ".5": "not JSON",
    "1.": "not JSON",
    "1e": "not JSON",
    "0x10": "not JSON",
    "1_000": "not JSON",
    "١": "not JSON",
    "True": "not JSON",
    "nul": "not JSON",
    "// x\n1": "not JSON",
    '"\t"': "not JSON",
    '"\x00"': "not JSON",
    '"\\x41"': "not JSON",
    '"\\u12"': "not JSON",
    '"abc': "not JSON",
    "{}\x00": "not JSON",
    "[" * 33 + "]" * 33: "deeper than 32",
    "[" * 34 + "]" * 34: "deeper than 32",
    '{"a":' * 50 + "1" + "}" * 50: "deeper than 32",
    '{"a":[' * 100 + "]}" * 100: "deeper than 32",
}

BYTES = {
    "fffe7b007d00": "not UTF-8",  # UTF-16 with its mark
    "22ff22": "not UTF-8",
    "22c02f22": "not UTF-8",  # overlong
    "22eda08022": "not UTF-8",  # a surrogate in UTF-8
    "22f490808022": "not UTF-8",  # beyond U+10FFFF
    "efbbbf7b7d": "byte-order mark",
    "7b007d00": "not JSON",  # UTF-16 without a mark
}


def main() -> None:
    """Writes the corpus beside this file."""
    numbers = NUMBERS.split()
    accepted = [*numbers, *(json.dumps(t, ensure_ascii=False) for t in TEXTS), *ESCAPED, *OBJECTS]
    texts = [*accepted, *(f'{{"v":{text}}}' for text in numbers[:12])]
    node = subprocess.run(
        ["node", HERE / "canonical.js"], input=json.dumps(texts), capture_output=True, text=True, check=True
    )
    corpus = {
        "accepted": [{"text": t, "canonical": c} for t, c in zip(texts, json.loads(node.stdout), strict=True)],
        "refused": [{"text": text, "why": why} for text, why in REFUSED.items()],
        "refused_bytes": [{"hex": text, "why": why} for text, why in BYTES.items()],
    }
    (HERE / "canonical.json").write_text(json.dumps(corpus, indent=1) + "\n")


if __name__ == "__main__":
    main()
