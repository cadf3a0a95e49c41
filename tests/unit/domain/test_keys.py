"""Digests and keys: values computed here by others' code, what changes them, and what must not
(kblockd/domain/digests.md)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from kblockd.domain import keys
from kblockd.domain.canonical import digest

TARGET = {"type": "order", "id": "A-1"}
ARGS = {"order_id": "A-1", "amount": "100.00", "currency": "EUR", "memo": "Grüße 🎁"}

CALL = {"tenant": "acme", "agent": "agent:a", "environment": "production", "operation": "payment.refund.create"}
FINGERPRINT = {**CALL, "tool": "refund", "target": TARGET, "args": ARGS}
TWIN = {"tenant": "acme", "upstream": "payments", "tool": "refund", "target": TARGET, "intent": {"amount": "100.00"}}
CALLER = {"tenant": "acme", "agent": "agent:a", "key": "k-1"}
SECRET = bytes(range(32))
EFFECT = {
    "tenant": "acme",
    "call": "b" * 64,
    "environment": "production",
    "operation": "payment.refund.create",
    "tool": "refund",
    "target": TARGET,
    "args_sha256": "a" * 64,
    "approval": 1,
    "workflow": "w",
    "run": "r",
    "callsite": "c",
}
ACTION = {
    **CALL,
    "upstream": "payments",
    "origin": "https://payments.example:443",
    "tool": "refund",
    "tool_version": "1.0.0",
    "definition_sha256": "d" * 64,
    "contract_sha256": "c" * 64,
    "target": TARGET,
    "args": ARGS,
    "limits": {"requestTimeoutMs": 30_000, "maximumAttempts": 1},
    "credential_ref": "payments/write",
    "salt": "5" * 32,
}


def effect_key(**parts: Any) -> str:
    """Of one tenant."""
    return keys.effect_key(SECRET, **parts)


def action_digest(**parts: Any) -> str:
    """As stage 3 makes it."""
    return digest(keys.action_document(**parts))


# Python's name of a part, and the name inside the digest where it is another.
SPELT = {
    "tool_version": "toolVersion",
    "definition_sha256": "toolDefinitionSha256",
    "contract_sha256": "contractSha256",
    "credential_ref": "credentialRef",
    "args_sha256": "argsSha256",
}
KINDS: list[tuple[str, Callable[..., str], Mapping[str, Any]]] = [
    ("kblockd.action/1", action_digest, ACTION),
    ("kblockd.call/1", keys.fingerprint, FINGERPRINT),
    ("kblockd.idem/1", keys.caller_key, CALLER),
    ("kblockd.twin/1", keys.twin, TWIN),
    ("kblockd.effect/2", effect_key, EFFECT),
]
IDS = [tag for tag, _, _ in KINDS]
PARTS = [(tag, function, parts, name) for tag, function, parts in KINDS for name in parts]

# Written down once, from rfc8785 and hashlib: a changed value would orphan every stored row and every approval.
GOLDEN = {
    "kblockd.action/1": "8ed55ae17777242a2043158862e0f9724455aaa700ec4994b3a189224d528e0b",
    "kblockd.call/1": "6f8b99254532b072307c1e37c476b56285351822936bf26a423736c71e3c39c4",
    "kblockd.idem/1": "25d7dfe26953534aab81b2aeebdfc2f115dbf7ffa4a0d48307ddf802e68d155b",
    "kblockd.twin/1": "1e846213cbe0f034c39f292ba3ad1302f3f4f4c6f9965f05fd62e5b86fc356e2",
    "kblockd.effect/2": "a0d202d67932895b69b6d5e2380aa4cd98aa4435ee938ed05a54c7acfd3cf37a",
}


def independent(tag: str, parts: Mapping[str, Any]) -> str:
    """By the table of kblockd/domain/digests.md, with the reference package for JCS; an effect key is an HMAC."""
    document = {"v": tag, **{SPELT.get(name, name): value for name, value in parts.items()}}
    if tag != "kblockd.effect/2":
        return hashlib.sha256(rfc8785.dumps(document)).hexdigest()
    data = rfc8785.dumps({**document, "approval": str(document["approval"])})
    inner, outer = (bytes(byte ^ pad for byte in SECRET.ljust(64, b"\0")) for pad in (0x36, 0x5C))
    return hashlib.sha256(outer + hashlib.sha256(inner + data).digest()).hexdigest()


@pytest.mark.parametrize(("tag", "function", "parts"), KINDS, ids=IDS)
def test_golden_vectors(tag: str, function: Callable[..., str], parts: Mapping[str, Any]) -> None:
    """R067, R128, R129: tag, names and values as kblockd/domain/digests.md has them."""
    assert function(**parts) == independent(tag, parts) == GOLDEN[tag]


@pytest.mark.parametrize(
    ("tag", "function", "parts", "name"), PARTS, ids=[f"{tag}-{name}" for tag, _, _, name in PARTS]
)
def test_each_part_changes_it(tag: str, function: Callable[..., str], parts: Mapping[str, Any], name: str) -> None:
    """R129: two calls that differ in one part never share a key."""
    value = parts[name]
    other = {**value, "more": "x"} if isinstance(value, dict) else value + 1 if isinstance(value, int) else f"{value}x"
    assert function(**{**parts, name: other}) != function(**parts)


@pytest.mark.parametrize("part", ["type", "id"])
@pytest.mark.parametrize(("tag", "function", "parts"), [k for k in KINDS if "target" in k[2]])
def test_both_halves_of_the_target_count(
    tag: str, function: Callable[..., str], parts: Mapping[str, Any], part: str
) -> None:
    assert function(**{**parts, "target": {**TARGET, part: "other"}}) != function(**parts)


def test_the_five_never_share_a_value() -> None:
    """The tag keeps a digest of one kind from being taken for another's."""
    same = {"tenant": "t", "agent": "a"}
    assert keys.caller_key(**same, key="k") != digest({"v": "kblockd.idem/2", **same, "key": "k"})
    assert len({function(**parts) for _, function, parts in KINDS}) == len(KINDS)


@pytest.mark.parametrize(("tag", "function", "parts"), KINDS, ids=IDS)
@given(st.data())
def test_the_order_of_members_does_not_count(
    tag: str, function: Callable[..., str], parts: Mapping[str, Any], data: st.DataObject
) -> None:
    """IDM-13: a client that serialises differently makes the identical call."""
    shuffled = {
        name: dict(data.draw(st.permutations(list(value.items())))) if isinstance(value, dict) else value
        for name, value in data.draw(st.permutations(list(parts.items())))
    }
    assert function(**shuffled) == function(**parts)


def test_idm_13_nothing_volatile_is_in_the_fingerprint() -> None:
    """R067: same agent, tool, target and arguments; no salt, no version, no time, no execution, no credential."""
    parameters = set(keys.fingerprint.__kwdefaults__ or ()) | set(keys.fingerprint.__annotations__) - {"return"}
    assert parameters == {"tenant", "agent", "environment", "operation", "tool", "target", "args"}


def test_r135_the_effect_key_knows_no_attempt() -> None:
    """The same for every attempt: neither number, fence, time nor policy revision goes in."""
    assert set(keys.effect_key.__annotations__) - {"return", "secret"} == EFFECT.keys()


def test_evi_15_nothing_random_and_no_version_is_in_the_effect_key_of_a_keyed_call() -> None:
    """EVI-15: a ledger that was put back from a copy knows none of them any more."""
    volatile = {"execution", "salt", "approval_id", "tool_version", "definition_sha256", "contract_sha256"}
    assert not volatile & set(keys.effect_key.__annotations__)


def test_evi_14_an_effect_key_cannot_be_tried_without_the_secret() -> None:
    """EVI-14: whoever holds a RESULT and knows every part of the call but one cannot try the values of that one."""
    assert keys.effect_key(bytes(32), **EFFECT) != effect_key(**EFFECT)
    assert effect_key(**EFFECT) != independent("kblockd.effect/1", EFFECT)


def test_c9_the_caller_key_is_scoped() -> None:
    """Another agent's or tenant's equal key is another key; the upstream learns an HMAC over it, never the key."""
    one = keys.caller_key(**CALLER)
    assert keys.caller_key(**{**CALLER, "agent": "agent:b"}) != one != keys.caller_key(**{**CALLER, "tenant": "other"})


def test_c10_a_reworded_memo_is_the_same_deed() -> None:
    """The twin is over the intent; agent and wording are not in it."""
    assert set(keys.twin.__annotations__) - {"return"} == TWIN.keys()
    assert keys.fingerprint(**{**FINGERPRINT, "args": {**ARGS, "memo": "other"}}) != keys.fingerprint(**FINGERPRINT)


def test_absent_parts_of_the_effect_key_are_empty_strings() -> None:
    """Not left out and not null: it has eleven parts and a tag, whatever there is."""
    short = {name: value for name, value in EFFECT.items() if name not in ("workflow", "run", "callsite")}
    absent = {**short, "workflow": "", "run": "", "callsite": ""}
    assert effect_key(**short) == independent("kblockd.effect/2", absent)


def test_a_part_cannot_be_moved_into_its_neighbour() -> None:
    """Length and place are in the form: "ab"+"c" is not "a"+"bc"."""
    assert keys.caller_key(tenant="ab", agent="c", key="k") != keys.caller_key(tenant="a", agent="bc", key="k")
    assert keys.caller_key(tenant="a", agent="b", key='","key":"') != keys.caller_key(tenant="a", agent="b", key="")


@given(st.text(st.characters(exclude_categories=["Cs"])), st.text(st.characters(exclude_categories=["Cs"])))
def test_different_keys_have_different_digests(one: str, other: str) -> None:
    """No folding of case, width or composition: keys are opaque."""
    same = keys.caller_key(tenant="t", agent="a", key=one) == keys.caller_key(tenant="t", agent="a", key=other)
    assert same == (one == other)


def test_a_document_is_json() -> None:
    """What is digested can be written down and read again: an auditor computes it from the stored call."""
    document = keys.action_document(**ACTION)
    assert json.loads(json.dumps(document)) == document
    assert document["target"] is not TARGET
