"""The rows that the fold makes, and their keys. The guarantees rest on them (kblockd/store/README.md#commits).

Every row but a counter carries ``records``: the indexes of exactly those records whose fold, from nothing, gives the
row again. That is what ``ledger verify`` does. Counters carry ``count`` alone.

A key knows the type of its row, so that a reader of ``execution(id)`` gets an ``ExecutionRow``. What has its default is
not written: a field that is added with a default leaves the rows that exist as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

import msgspec

from kblockd.domain.ledger.values import (
    Agreed,
    Contract,
    Erased,
    Fence,
    Life,
    Number,
    Person,
    Policy,
    Requested,
    SigningKey,
    Upstream,
    Value,
)
from kblockd.domain.states import Phase, ResultClass, State

Indexes = tuple[int, ...]
Key = tuple[str | int, ...]
"""Table name first, then parts."""


class Row(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A row of some table."""


R = TypeVar("R", bound=Row)
R_co = TypeVar("R_co", bound=Row, covariant=True)

if TYPE_CHECKING:

    class RowKey(Key, Generic[R_co]):
        """The key of a row of type ``R_co``, or the beginning of such keys."""

else:
    RowKey = tuple  # a plain one while it runs: it is made and hashed for every read


class Read(Protocol):
    """The rows as they are now."""

    def __call__(self, key: RowKey[R], /) -> R | None: ...


Changes = list[tuple[Key, Row | None]]


class Finding(Value, frozen=True):
    """What a look-up found; of one attempt."""

    finding: str
    by: str
    read_sha256: str


class Verification(Value, frozen=True):
    """What the authoritative system said; of one attempt."""

    verdict: str
    source: str
    read_sha256: str


class Resolution(Value, frozen=True):
    """An operator's finding."""

    finding: str
    operator: str
    owner: str
    reason_sha256: str


class LateAnswer(Value, frozen=True):
    """The last answer that came after its attempt's outcome."""

    result_class: ResultClass = msgspec.field(name="class")
    output_sha256: str
    index: Number


class LaterWord(Value, frozen=True):
    """The last disposition of a sealed unknown."""

    kind: str
    sha256: str
    index: Number


class ExecutionRow(Agreed, Row, frozen=True, kw_only=True):
    """The projection of one execution. What has a default is known later, or belongs to one attempt alone."""

    id: str
    tenant: str
    state: State
    phase: Phase
    result_class: ResultClass
    code: str
    attempt: Number
    marker: Number
    proposed_at: str
    approval_id: str
    records: Indexes
    fence: Fence | None = None
    holder: str = ""
    consumed_index: Number | None = None
    effect_key: str = ""
    snapshot_sha256: str = ""
    claimed_at: str = ""
    deadline_at: str = ""
    target_version: str = ""
    sent_at: str = ""
    boot: str = ""
    output_sha256: str = ""
    operation_id: str = ""
    finding: Finding | None = None
    verification: Verification | None = None
    recovery: str = ""
    resolution: Resolution | None = None
    late: LateAnswer | None = None
    wire_code: str = ""
    result_sha256: str = ""
    outcome_unknown: bool = False
    sealed_index: Number | None = None
    closed_at: str = ""
    disposition: LaterWord | None = None


class Decided(Value, frozen=True):
    """One approver's decision."""

    approver: str
    owner: str
    verdict: str
    dsse_sha256: str
    statement_sha256: str
    index: Number


class ApprovalRow(Requested, Row, frozen=True, kw_only=True):
    """An approval request and its decisions."""

    execution: str
    tenant: str
    state: str
    decisions: tuple[Decided, ...]
    records: Indexes


class LinkRow(Row, frozen=True):
    """Whose something is: an open execution, a keyless call, a deed, a target."""

    execution: str
    records: Indexes


class CallerKeyRow(LinkRow, frozen=True):
    """Which execution, and which call, a caller key stands for."""

    fingerprint: str


class ReceiptRow(LinkRow, frozen=True):
    """Where the receipt stands in the ledger."""

    index: Number


class ListedRow(Row, frozen=True):
    """A place in a list: the key says everything."""

    records: Indexes


class CounterRow(Row, frozen=True):
    """How many; the row goes at zero."""

    count: Number


class PolicyRow(Policy, Row, frozen=True):
    """The policy revision in force."""

    at: str
    records: Indexes


class ContractRow(Contract, Row, frozen=True):
    """The action contract in force."""

    at: str
    records: Indexes


class UpstreamRow(Upstream, Row, frozen=True):
    """The upstream's configuration in force, pins included."""

    at: str
    records: Indexes


class PrincipalRow(Person, Row, frozen=True):
    """The principal as configured."""

    at: str
    records: Indexes


class KeyRow(SigningKey, Row, frozen=True, kw_only=True):
    """A signing key and whether it is active, retired or revoked."""

    state: str
    records: Indexes


class DaemonRow(Life, Row, frozen=True):
    """The last life of the daemon."""

    at: str
    records: Indexes


class PrunedRow(Erased, Row, frozen=True):
    """How far a kind of payload has been erased."""

    at: str
    records: Indexes


TABLES: Final[Mapping[str, type[Row]]] = {
    "execution": ExecutionRow,
    "open": LinkRow,
    "caller_key": CallerKeyRow,
    "open_call": LinkRow,
    "twin": LinkRow,
    "target": LinkRow,
    "refusal": LinkRow,
    "receipt": ReceiptRow,
    "approval": ApprovalRow,
    "listed_execution": ListedRow,
    "listed_approval": ListedRow,
    "agent": ListedRow,
    "pending": CounterRow,
    "running": CounterRow,
    "policy": PolicyRow,
    "contract": ContractRow,
    "upstream": UpstreamRow,
    "principal": PrincipalRow,
    "key": KeyRow,
    "active_key": KeyRow,
    "daemon": DaemonRow,
    "pruned": PrunedRow,
}
COUNTERS: Final = frozenset({"pending", "running"})

Decode = Callable[[str, bytes], Any]
"""``decode(table, data)`` is the row; raises ValueError."""

_DECODERS: Final = {table: msgspec.json.Decoder(row) for table, row in TABLES.items()}
_UNKNOWN: Final[msgspec.json.Decoder[Any]] = msgspec.json.Decoder()
encode: Final = msgspec.json.Encoder().encode


def decode(table: str, data: bytes) -> Any:
    """The row, of the type of its table (JSON values where no table has that name); raises ValueError."""
    return _DECODERS.get(table, _UNKNOWN).decode(data)


def under(row: type[R], table: str, *parts: str | int) -> RowKey[R]:
    """The beginning of the keys of a table whose rows are ``row``."""
    return RowKey((table, *parts))


def execution(execution_id: str) -> RowKey[ExecutionRow]:
    """The projection of one execution."""
    return RowKey(("execution", execution_id))


def open_execution(execution_id: str) -> RowKey[LinkRow]:
    """Present while the execution is not terminal: what the start and the sweep go through."""
    return RowKey(("open", execution_id))


def caller_key(digest: str) -> RowKey[CallerKeyRow]:
    """Binds a caller key to its execution and fingerprint; from stage 3, through the replay window."""
    return RowKey(("caller_key", digest))


def open_call(fingerprint: str) -> RowKey[LinkRow]:
    """A keyless call in the making; from stage 3 until closed."""
    return RowKey(("open_call", fingerprint))


def twin(digest: str) -> RowKey[LinkRow]:
    """One deed at a time; from stage 9 until sealed, kept while the outcome is unknown."""
    return RowKey(("twin", digest))


def target(tenant: str, upstream: str, type_: str, id_: str) -> RowKey[LinkRow]:
    """The target's lock; from stage 9 until sealed or held for manual work."""
    return RowKey(("target", tenant, upstream, type_, id_))


def approval(approval_id: str) -> RowKey[ApprovalRow]:
    """An approval request and its decisions."""
    return RowKey(("approval", approval_id))


def listed_execution(tenant: str, agent: str, state: str, execution_id: str) -> RowKey[ListedRow]:
    """The execution in the list of its agent and state."""
    return RowKey(("listed_execution", tenant, agent, str(state), execution_id))


def listed_approval(tenant: str, agent: str, state: str, approval_id: str) -> RowKey[ListedRow]:
    """The approval in the list of its agent and state."""
    return RowKey(("listed_approval", tenant, agent, state, approval_id))


def agent(tenant: str, agent: str) -> RowKey[ListedRow]:
    """Present once the agent has had an execution: whose lists there are."""
    return RowKey(("agent", tenant, agent))


def policy_input(execution_id: str, digest: str) -> Key:
    """What is kept of the input of a policy question; one about no execution has a scope of its own."""
    return payload(execution_id or "policy_inputs", digest)


def receipt(execution_id: str) -> RowKey[ReceiptRow]:
    """Where the receipt stands in the ledger."""
    return RowKey(("receipt", execution_id))


def refusal(execution_id: str, index: int) -> RowKey[LinkRow]:
    """A refused call that concerned a known execution; it does not touch the execution's own row."""
    return RowKey(("refusal", execution_id, index))


def pending(tenant: str, agent: str) -> RowKey[CounterRow]:
    """Counter of an agent's pending approvals."""
    return RowKey(("pending", tenant, agent))


def running(tenant: str, operation: str, environment: str) -> RowKey[CounterRow]:
    """Counter of the executing actions of one contract."""
    return RowKey(("running", tenant, operation, environment))


def policy() -> RowKey[PolicyRow]:
    """The policy revision in force."""
    return RowKey(("policy",))


def contract(operation: str, environment: str) -> RowKey[ContractRow]:
    """The action contract in force."""
    return RowKey(("contract", operation, environment))


def upstream(name: str) -> RowKey[UpstreamRow]:
    """The upstream's configuration in force, pins included."""
    return RowKey(("upstream", name))


def principal(principal_id: str) -> RowKey[PrincipalRow]:
    """The principal as configured."""
    return RowKey(("principal", principal_id))


def key(key_id: str) -> RowKey[KeyRow]:
    """A signing key's public part and range."""
    return RowKey(("key", key_id))


def active_key(role: str) -> RowKey[KeyRow]:
    """Which key of a role signs; a seal is conditioned on it."""
    return RowKey(("active_key", role))


def daemon() -> RowKey[DaemonRow]:
    """The last life of the daemon."""
    return RowKey(("daemon",))


def pruned(what: str) -> RowKey[PrunedRow]:
    """How far a kind of payload has been erased."""
    return RowKey(("pruned", what))


def payload(scope: str, digest: str) -> Key:
    """Deletable bytes; ``scope`` is an execution id, or a word such as ``contract`` for shared ones."""
    return ("payload", scope, digest)


def indexes(row: Any) -> Indexes:
    """The records that made the row; none of a counter's."""
    found: Indexes = getattr(row, "records", ())
    return found
