"""The action contract: model, checks, derivations, limits.

    model      the frozen models, one class a section        reading    reads and lookups
    words      strict building blocks; what is "not supported yet"
    checks     what must hold between keys                   arguments  the schema of the arguments
    derive     target, intent, summary, read arguments, what shows
    limits     an envelope's bounds on top of a contract     fault      what is wrong, and where
    promise    a schema that nobody reviewed                 steps      the work that a check may take
    errors     the tool's own error answers, and what they prove     additions  keys that came later

``parse`` turns a plain document into a contract. May not live here: files, YAML, clocks, upstream calls.
"""

from kblockd.domain.contract.derive import (
    FaultKind,
    check_arguments,
    derive_intent,
    derive_target,
    permitted_recoveries,
    present,
    resolve,
    reveal,
    summary,
    validate_arguments,
)
from kblockd.domain.contract.fault import Fault, InvalidContract, Path, dotted
from kblockd.domain.contract.limits import RECORDS, EffectiveLimits, tighten
from kblockd.domain.contract.model import ActionContract
from kblockd.domain.contract.parse import parse, parse_stored
from kblockd.domain.contract.reading import Lookup, SnapshotRead, VerifyRead

__all__ = [
    "RECORDS",
    "ActionContract",
    "EffectiveLimits",
    "Fault",
    "FaultKind",
    "InvalidContract",
    "Lookup",
    "Path",
    "SnapshotRead",
    "VerifyRead",
    "check_arguments",
    "derive_intent",
    "derive_target",
    "dotted",
    "parse",
    "parse_stored",
    "permitted_recoveries",
    "present",
    "resolve",
    "reveal",
    "summary",
    "tighten",
    "validate_arguments",
]
