"""Documents of a bundle: where OPA hangs them, and the digests that OPA signs."""

from __future__ import annotations

import itertools

import pytest

from kblockd.policy.bundles import documents
from kblockd.policy.faults import BundleFault, BundleRefused

# As `opa sign` 1.22.3 wrote them.
SIGNED_BY_OPA = {
    "a/data.json": (
        '{"b": 1, "a": {"é": "<&>", "\\ud83d\\ude00": [], "\\uffff": {}}}',
        "9691a5fb925f33de7e0b688ce0aa1424c2a14a3e3b7ceec5bfdfd724ce5f1f78",
    ),
    "b/data.json": (
        "[1.50, 1e5, 1E+2, -0, -0.0, 100]",
        "090d862a42a37365452ce3993457fc33540db8c2c8fd16477fb225abdce555c1",
    ),
    "c/data.json": (
        r'"\u2028\u2029\u0008\f\u007f\u0001\t\/\\\""',
        "b70be3571c12975fe59b7ad1af15bcbffb48be23f8db9438dd31942294ad230d",
    ),
    "d/data.json": (" null ", "74234e98afe7498fb5daf1f36ac2d78acc339464f950703b8c019892f982b90b"),
    "e/data.yaml": (
        'x: 3.0\ny: [on, 2, 1.5e-7, 1.0e+20, 1.0e+21, 0.000001, -0.5, true, ~, "1"]\n',
        "b7b303b5b66c7f020db837f9b2e1d3b1d675dc7c131e4384efdcb394d95c1c72",
    ),
    "f/data.yml": ('{"a": 1.50}', "23ca677c678537da56740da929aa1be568e3cdf9fa01b726fdc57ba9ca372ce0"),
    "g/data.yaml": (
        "a: |\n  two\n  lines\nb: {}\n",
        "57a35f00aca16b7530f51e2ed0785402217fe79685dd3799b3923c1cda4af027",
    ),
    ".manifest": (
        '{"roots": [""], "revision": "v 1.0"}',
        "1edd432ec6c3af7c28e22e06fc61cf7a78ed90789fa0dd5a3596084d5a165be6",
    ),
}


def refused(**files: bytes) -> BundleFault:
    with pytest.raises(BundleRefused) as raised:
        documents.parsed({name.replace("__", "/").replace("_", "."): data for name, data in files.items()})
    return raised.value.faults[0]


@pytest.mark.parametrize("name", SIGNED_BY_OPA)
def test_digest_is_that_of_opa(name: str) -> None:
    """Order and blanks do not count, the literal of a number does; YAML is read first."""
    text, digest = SIGNED_BY_OPA[name]
    assert documents.digest(name, text.encode()) == digest


def test_other_files_are_digested_as_they_are() -> None:
    assert documents.digest("a.rego", b'{"a": 1}') != documents.digest("a.rego", b'{"a":1}')
    assert documents.digest("data.json", b'{"a": 1}') == documents.digest("x/data.json", b'{"a":1}\n')


def test_folders_become_keys_and_objects_merge() -> None:
    found = documents.parsed(
        {
            "data.json": b'{"a": {"x": 1}}',
            "data.yaml": b"b: on\n",
            "a/data.json": b'{"y": 2}',
            "a/z/data.yml": b"- 3\n",
            "other.json": b"not read",
        }
    )
    assert found.data == {"a": {"x": 1, "y": 2, "z": [3]}, "b": "on"}


def test_two_values_for_one_path() -> None:
    assert "a/x is also in another document" in refused(data_json=b'{"a": {"x": 1}}', a__data_json=b'{"x": 1}').message
    assert refused(data_json=b'{"a": [1]}', a__data_json=b'{"x": 1}').file in ("a/data.json", "data.json")
    assert "is also in another document" in refused(data_json=b'{"a": 1}', data_yaml=b"a: 1").message


def test_top_must_be_an_object_below_anything_goes() -> None:
    assert "must be an object" in refused(data_json=b"[1]").message
    assert documents.parsed({"a/data.json": b"[1]"}).data == {"a": [1]}


def test_yaml_that_would_explode_is_refused_before_it_is_built() -> None:
    """Each line is ten times the last one, and there may be many; a parser that takes its time is given little."""
    bomb = ["a: &a [x, x, x, x, x, x, x, x, x, x]"]
    bomb += [f"{new}: &{new} [{', '.join([f'*{old}'] * 10)}]" for old, new in itertools.pairwise("abcde")]
    assert "aliases" in refused(data_yaml="\n".join(bomb).encode()).message
    assert "write it as JSON" in refused(data_yaml=b"a: " + b"x" * documents.MAX_YAML).message
    for deep in (b"[" * 50_000, b"- " * 50_000, b"? " * 50_000, b'{"a":' * 20_000):
        assert "nested deeper" in refused(data_yaml=b"a:\n " + deep).message
    assert "nested deeper" in refused(data_json=b'{"a":' * 50_000).message


def test_remembered_yaml_is_not_shared() -> None:
    """What one bundle does to its data is not seen by the next."""
    first = documents.read("data.yaml", b"a: {b: 1}")
    first["a"]["b"] = 2
    assert documents.read("data.yaml", b"a: {b: 1}") == {"a": {"b": 1}}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"token: [Bearer-abcdef\n", "invalid YAML: expected ',' or ']', but got '<stream end>' at line 2, column 1"),
        (b"token: Bearer-abcdef\ntoken: 1\n", "a duplicate key at line 2, column 1"),
    ],
)
def test_a_refusal_of_yaml_names_the_place_and_quotes_nothing(content: bytes, said: str) -> None:
    with pytest.raises(BundleRefused) as refused:
        documents.read("data.yaml", content)
    assert said in str(refused.value)
    assert "abcdef" not in str(refused.value)
