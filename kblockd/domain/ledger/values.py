"""What records and rows are made of: the bases of both, and the values that stand in both.

``msgspec`` writes and reads them in microseconds and is strict about types, but it silently takes the last of two equal
keys, so it reads only what this daemon wrote itself.
"""

from __future__ import annotations

from typing import Annotated, TypedDict

import msgspec

from kblockd.domain.canonical import MAX_INTEGER

Number = Annotated[int, msgspec.Meta(ge=-MAX_INTEGER, le=MAX_INTEGER)]
"""An integer that has a canonical form."""
Timings = tuple[tuple[Number, Number], ...]
"""(stage, microseconds) of what ended since the commit before."""


class Value(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Immutable, and strict about what it is read from."""


class Fence(Value, order=True, frozen=True):
    """The fencing token of a claim; a newer one is greater."""

    incarnation: Number
    counter: Number


class Target(Value, frozen=True):
    """What an action acts on."""

    type: str
    id: str

    def document(self) -> dict[str, str]:
        """As policies, digests and presentations have it."""
        return {"type": self.type, "id": self.id}


class Floor(Value, frozen=True):
    """The approval floor that stood under a decision, and what policy itself had said."""

    count: Number
    roles: tuple[str, ...]
    raised: bool
    policy_effect: str
    policy_count: Number


class DecisionFields(TypedDict):
    """The fields that every record of a policy decision has."""

    policy_engine: str
    policy_revision: str
    decision_id: str
    input_sha256: str
    input_payload: str
    policy_us: int
    reasons: tuple[str, ...]


class Agreed(Value, frozen=True):
    """What was proposed and decided on: in the record of the proposal and in the execution's row."""

    action_id: str
    agent: str
    requester: str
    owner: str
    environment: str
    operation: str
    risk_tier: str
    upstream: str
    origin: str
    place_sha256: str
    tool: str
    tool_version: str
    definition_sha256: str
    contract_sha256: str
    contract_version: Number
    target: Target
    twin: str
    fingerprint: str
    caller_key: str
    action_sha256: str
    call_sha256: str
    reasons_sha256: str
    effect: str
    observe_until: str
    not_after: str
    trace_id: str
    policy_engine: str
    policy_revision: str
    decision_id: str
    input_sha256: str
    policy_us: Number
    floor: Floor | None = None  # version 0.1.0 had none


class Requested(Value, frozen=True):
    """What an approval asks for: in the record of the request and in the approval's row."""

    approval_id: str
    action_sha256: str
    presented_sha256: str
    presentation_payload: str
    count: Number
    roles: tuple[str, ...]
    requester: str
    owner: str
    agent: str
    not_before: str
    not_after: str
    floor_roles: tuple[str, ...] = ()  # version 0.1.0 had none of these three
    raised: bool = False
    target_version: str = ""


class Policy(Value, frozen=True):
    """A policy revision that came into force."""

    revision: str
    engine: str
    tests: Number
    bundle_sha256: str
    bundle_revision: str
    signer: str
    signature_scope: str


class Contract(Value, frozen=True):
    """An action contract in force; its document is a payload."""

    operation: str
    environment: str
    version: Number
    contract_sha256: str


class Upstream(Value, frozen=True):
    """An upstream's configuration, by digest."""

    name: str
    adapter: str
    origin: str
    config_sha256: str


class Person(Value, frozen=True):
    """A principal as configured; ``disabled`` when it is gone from the configuration."""

    id: str
    kind: str
    tenant: str
    owner: str
    roles: tuple[str, ...]
    organization: str
    disabled: bool


class SigningKey(Value, frozen=True):
    """A signing key's public part. The effect secret's has neither range nor key set, since it verifies nothing."""

    kid: str
    role: str
    public_key: str = msgspec.field(name="publicKey")
    from_index: Number | msgspec.UnsetType = msgspec.field(name="fromIndex", default=msgspec.UNSET)
    to_index: Number | msgspec.UnsetType = msgspec.field(name="toIndex", default=msgspec.UNSET)
    keyset_sha256: str | msgspec.UnsetType = msgspec.field(name="keysetSha256", default=msgspec.UNSET)


class Life(Value, frozen=True):
    """One life of the daemon."""

    incarnation: Number
    instance: str
    version: str
    after_clean_stop: bool


class Erased(Value, frozen=True):
    """How far a kind of payload has been erased."""

    what: str
    before_index: Number
    older_than: str
    count: Number
