"""Keys of the rows that the fold makes. The guarantees rest on them (kblockd/store/README.md#commits).

Every row but a counter carries ``records``: the indexes of exactly those records whose fold, from nothing, gives the
row again. That is what ``ledger verify`` does. Counters carry ``count`` alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

Key = tuple[str | int, ...]
Row = Mapping[str, Any]
Read = Callable[[Key], Row | None]
Changes = list[tuple[Key, Row | None]]

COUNTERS: Final = frozenset({"pending", "running"})


def execution(execution_id: str) -> Key:
    """The projection of one execution."""
    return ("execution", execution_id)


def open_execution(execution_id: str) -> Key:
    """Present while the execution is not terminal: what the start and the sweep go through."""
    return ("open", execution_id)


def caller_key(digest: str) -> Key:
    """Binds a caller key to its execution and fingerprint; from stage 3, through the replay window."""
    return ("caller_key", digest)


def open_call(fingerprint: str) -> Key:
    """A keyless call in the making; from stage 3 until closed."""
    return ("open_call", fingerprint)


def twin(digest: str) -> Key:
    """One deed at a time; from stage 9 until sealed, kept while the outcome is unknown."""
    return ("twin", digest)


def target(tenant: str, upstream: str, type_: str, id_: str) -> Key:
    """The target's lock; from stage 9 until sealed or held for manual work."""
    return ("target", tenant, upstream, type_, id_)


def approval(approval_id: str) -> Key:
    """An approval request and its decisions."""
    return ("approval", approval_id)


def listed_execution(tenant: str, agent: str, state: str, execution_id: str) -> Key:
    """The execution in the list of its agent and state."""
    return ("listed_execution", tenant, agent, state, execution_id)


def listed_approval(tenant: str, agent: str, state: str, approval_id: str) -> Key:
    """The approval in the list of its agent and state."""
    return ("listed_approval", tenant, agent, state, approval_id)


def agent(tenant: str, agent: str) -> Key:
    """Present once the agent has had an execution: whose lists there are."""
    return ("agent", tenant, agent)


def policy_input(execution_id: str, digest: str) -> Key:
    """What is kept of the input of a policy question; one about no execution has a scope of its own."""
    return payload(execution_id or "policy_inputs", digest)


def receipt(execution_id: str) -> Key:
    """Where the receipt stands in the ledger."""
    return ("receipt", execution_id)


def refusal(execution_id: str, index: int) -> Key:
    """A refused call that concerned a known execution; it does not touch the execution's own row."""
    return ("refusal", execution_id, index)


def pending(tenant: str, agent: str) -> Key:
    """Counter of an agent's pending approvals."""
    return ("pending", tenant, agent)


def running(tenant: str, operation: str, environment: str) -> Key:
    """Counter of the executing actions of one contract."""
    return ("running", tenant, operation, environment)


def policy() -> Key:
    """The policy revision in force."""
    return ("policy",)


def contract(operation: str, environment: str) -> Key:
    """The action contract in force."""
    return ("contract", operation, environment)


def upstream(name: str) -> Key:
    """The upstream's configuration in force, pins included."""
    return ("upstream", name)


def principal(principal_id: str) -> Key:
    """The principal as configured."""
    return ("principal", principal_id)


def key(key_id: str) -> Key:
    """A signing key's public part and range."""
    return ("key", key_id)


def active_key(role: str) -> Key:
    """Which key of a role signs; a seal is conditioned on it."""
    return ("active_key", role)


def daemon() -> Key:
    """The last life of the daemon."""
    return ("daemon",)


def pruned(what: str) -> Key:
    """How far a kind of payload has been erased."""
    return ("pruned", what)


def payload(scope: str, digest: str) -> Key:
    """Deletable bytes; ``scope`` is an execution id, or a word such as ``contract`` for shared ones."""
    return ("payload", scope, digest)
