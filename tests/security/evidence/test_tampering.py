"""RCP-06: every field of a RESULT and a RECEIPT, nested ones too, is changed, removed and added in turn."""

from __future__ import annotations

import base64
import copy
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kblockd.domain.canonical import canonical
from kblockd.evidence import dsse, verify_offline
from kblockd.evidence.errors import BadSignature, BadStatement
from kblockd.evidence.receipts import open_statement
from kblockd.evidence.statements import Receipt, Result, read
from tests.unit.evidence.samples import World

Path = tuple[str | int, ...]
KINDS = [("result", Result), ("receipt", Receipt)]


def _paths(value: Any, at: Path = ()) -> Iterator[Path]:
    if at:
        yield at
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, member in members:
        yield from _paths(member, (*at, key))


def _containers(value: Any) -> Iterator[Path]:
    yield ()
    for path in _paths(value):
        if isinstance(_at(value, path), dict | list):
            yield path


def _at(value: Any, path: Path) -> Any:
    for key in path:
        value = value[key]
    return value


def _other(value: Any) -> Any:
    """Another value of the same type, so that only the signature can tell."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, dict):
        return {}
    if isinstance(value, list):
        return value[1:]
    digits = str.maketrans("0123456789abcdef", "1234567890bcdefa")
    return value.translate(digits) if value.translate(digits) != value else value + "x"


def _mutants(payload: bytes) -> Iterator[tuple[str, bytes]]:
    document = json.loads(payload)
    for path in _paths(document):
        changed, removed = copy.deepcopy(document), copy.deepcopy(document)
        _at(changed, path[:-1])[path[-1]] = _other(_at(document, path))
        del _at(removed, path[:-1])[path[-1]]
        yield f"changed {path}", canonical(changed)
        yield f"removed {path}", canonical(removed)
    for path in _containers(document):
        added = copy.deepcopy(document)
        place = _at(added, path)
        place.append("added") if isinstance(place, list) else place.update(added="added")
        yield f"added {path}", canonical(added)


def _with_old_signature(envelope: bytes, payload: bytes) -> bytes:
    return canonical({**json.loads(envelope), "payload": base64.b64encode(payload).decode()})


def _verdict(world: World, **changed: bytes) -> verify_offline.ReceiptVerdict:
    return verify_offline.verify(**world.parts(**changed))  # type: ignore[arg-type]  # parts are named alike


def test_rcp_06_the_whole_verifies_and_there_is_much_to_change(world: World) -> None:
    assert _verdict(world).verdict == "verified"
    assert len(list(_mutants(world.result.payload))) > 120
    assert len(list(_mutants(world.receipt.payload))) > 80


@pytest.mark.parametrize(("name", "kind"), KINDS)
def test_rcp_06_every_change_breaks_the_signature(world: World, name: str, kind: Any) -> None:
    whole = getattr(world, name)
    for what, payload in _mutants(whole.payload):
        assert payload != whole.payload, what
        forged = _with_old_signature(whole.envelope, payload)
        with pytest.raises(BadSignature):
            open_statement(forged, kind, world.ring.keyset, index=world.index)
        found = _verdict(world, **{name: forged})
        assert (found.verdict, found.code) == ("not verified", "bad_signature"), what


@pytest.mark.parametrize(("name", "kind"), KINDS)
def test_rcp_06_even_the_right_key_cannot_change_what_is_logged(world: World, name: str, kind: Any) -> None:
    """A stolen result key signs the change: the binding and the ledger still notice."""
    for what, payload in _mutants(getattr(world, name).payload):
        forged = dsse.sign(dsse.STATEMENT_TYPE, payload, world.ring.result)
        assert _verdict(world, **{name: forged}).verdict == "not verified", what


@pytest.mark.parametrize(("name", "kind"), KINDS)
def test_rcp_06_the_strict_reader_notices_every_added_and_every_required_field(
    world: World, name: str, kind: Any
) -> None:
    whole = getattr(world, name)
    statement = read(whole.payload, kind)
    for what, payload in _mutants(whole.payload):
        try:
            found = read(payload, kind)
        except BadStatement:
            continue
        assert not what.startswith("added"), what
        assert found != statement, what


def _envelope_edits() -> list[tuple[str, Callable[[dict[str, Any]], Any]]]:
    return [
        ("payloadType changed", lambda d: d.update(payloadType="application/vnd.in-toto+json;v=2")),
        ("payloadType removed", lambda d: d.pop("payloadType")),
        ("payload removed", lambda d: d.pop("payload")),
        ("signatures removed", lambda d: d.pop("signatures")),
        ("signatures emptied", lambda d: d.update(signatures=[])),
        ("signature added", lambda d: d["signatures"].append({"keyid": "x", "sig": d["signatures"][0]["sig"]})),
        ("keyid changed", lambda d: d["signatures"][0].update(keyid="x")),
        ("keyid removed", lambda d: d["signatures"][0].pop("keyid")),
        ("sig removed", lambda d: d["signatures"][0].pop("sig")),
        ("sig changed", lambda d: d["signatures"][0].update(sig=base64.b64encode(bytes(64)).decode())),
        ("member added", lambda d: d.update(added="x")),
        ("member added to the signature", lambda d: d["signatures"][0].update(added="x")),
    ]


@pytest.mark.parametrize("name", ["result", "receipt", "keyset"])
@pytest.mark.parametrize(("what", "edit"), _envelope_edits())
def test_rcp_06_every_change_of_an_envelope_is_noticed(world: World, name: str, what: str, edit: Any) -> None:
    whole = world.parts()[name]
    assert isinstance(whole, bytes)
    document = json.loads(whole)
    edit(document)
    assert _verdict(world, **{name: canonical(document)}).verdict == "not verified", what


def test_every_member_of_the_key_set_is_signed_by_the_root(world: World) -> None:
    payload = world.ring.keyset.payload()
    for what, changed in _mutants(payload):
        forged = _with_old_signature(world.ring.keyset_envelope, changed)
        assert _verdict(world, keyset=forged).code == "bad_signature", what
