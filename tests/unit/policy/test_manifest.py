"""``.manifest``: what acts, what is refused, and what its roots allow."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kblockd.policy.bundles.bundle import Bundle
from kblockd.policy.bundles.manifest import Manifest
from kblockd.policy.faults import BundleFault, BundleRefused

PLAIN = {"a.rego": "package kblock.a\n", "b.rego": "# two\n\npackage kblock.b.c\nx := 1\n"}


def bundle(manifest: Any, data: Any = None, **modules: str) -> Bundle:
    texts = {**PLAIN, **{f"{name}.rego": text for name, text in modules.items()}}
    return Bundle.of({**texts, ".manifest": json.dumps(manifest), "data.json": json.dumps(data or {})})


def refused(manifest: Any, data: Any = None, **modules: str) -> tuple[BundleFault, ...]:
    with pytest.raises(BundleRefused) as raised:
        bundle(manifest, data, **modules)
    return raised.value.faults


def test_what_opa_writes() -> None:
    found = bundle(
        {"revision": "v12", "roots": [""], "rego_version": 1, "file_rego_versions": {}, "metadata": {"a": 1}}
    )
    assert found.origin.bundle_revision == "v12"
    assert Manifest.read(None) == Manifest()


@pytest.mark.parametrize(
    ("manifest", "message"),
    [
        ({"rego_version": 0}, "version 1"),
        ({"rego_version": 2}, "version 1"),
        ({"file_rego_versions": {"*.rego": 0}}, "version 1"),
        ({"wasm": [{"entrypoint": "kblock/decision/result", "module": "/policy.wasm"}]}, "wasm"),
        ({"revision": 1}, "revision"),
        ({"roots": "kblock"}, "roots"),
        ({"rules": []}, "rules"),
        ({"roots": ["kblock", "kblock/a"]}, "overlap"),
        ({"roots": ["a", "a"]}, "overlap"),
        ({"roots": ["", "a"]}, "overlap"),
        ([], "must be an object"),
    ],
)
def test_what_would_act_otherwise_is_refused(manifest: Any, message: str) -> None:
    (fault,) = refused(manifest)
    assert fault.file == ".manifest"
    assert message in fault.message


def test_broken_manifest() -> None:
    with pytest.raises(BundleRefused, match="stands twice"):
        Bundle.of({**PLAIN, ".manifest": '{"revision": "a", "revision": "b"}'})


def test_roots_hold_packages_and_data() -> None:
    inside = {"kblock": {"limits": 1}}
    assert bundle({"roots": ["kblock"]}, inside).data == inside
    assert bundle({"roots": ["/kblock/a/", "kblock/b", "x/y"]}, {"x": {"y": 1}})
    faults = refused({"roots": ["kblock/a", "x/y"]}, {"x": {"y": 1, "z": 2}, "w": {}})
    told = {(fault.file, fault.message.partition(" is outside")[0]) for fault in faults}
    assert told == {("b.rego", "package kblock.b.c"), ("data", "data.x.z"), ("data", "data.w")}


@pytest.mark.parametrize(
    ("text", "within"),
    [
        ('package kblock["x/y"].z\n', True),
        ("package kblock\n", True),
        ("# package kblock.x\npackage other\n", False),
        ("package kblocked\n", False),
        ('package other["kblock"]\n', False),
        ("\n\t # a\r\n package\tkblock.x # package other\n", True),
    ],
)
def test_package_is_told_as_rego_does(text: str, within: bool) -> None:
    if within:
        assert bundle({"roots": ["kblock"]}, c=text)
    else:
        (fault,) = refused({"roots": ["kblock"]}, c=text)
        assert (fault.file, "outside the roots" in fault.message) == ("c.rego", True)


@pytest.mark.parametrize("text", ["", "x := 1\n", "package kblock.\n", "package kblock[x]\n", "package\n"])
def test_package_that_cannot_be_told_is_outside(text: str) -> None:
    (fault,) = refused({"roots": ["kblock"]}, c=text)
    assert "cannot be told" in fault.message
