"""OPA's responses, as replies or typed failures (POL-01, POL-05).

Statuses, bodies and messages of OPA are not passed on: an error of a rule quotes the input. Only places are.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from kblockd.domain.canonical import NotCanonical, parse
from kblockd.domain.errors import Reason
from kblockd.policy.deciding import PolicyFailure

RULE_ERRORS: Final = frozenset({"eval_builtin_error", "eval_type_error", "eval_conflict_error"})
"""OPA's codes of what a rule made of its input, as against a failure of OPA (a cancellation, a lack of memory)."""

_FILE: Final = re.compile(r"[A-Za-z0-9_./-]{1,200}")
_CODE: Final = re.compile(r"[a-z_]{1,40}")
_SHOWN: Final = re.compile(r"[A-Za-z0-9._:/-]{1,128}")


def reply(status: int, body: bytes, revision: str) -> Mapping[str, Any]:
    """``{"value": ...}`` or ``{"undefined": true}``, when ``revision`` decided; raises ``PolicyFailure`` otherwise."""
    found = answer(status, body)
    served = revision_of(found)
    if served != revision:
        message = f"OPA serves revision {shown(served)}, {shown(revision)} is in force"
        raise PolicyFailure(Reason.POLICY_DOWN, message)
    return {"value": found["result"]} if "result" in found else {"undefined": True}


def answer(status: int, body: bytes) -> dict[str, Any]:
    """The document of an answer; raises ``PolicyFailure`` for every status but 200 and for what is not strict JSON."""
    if 300 <= status < 400:
        raise PolicyFailure(Reason.POLICY_DOWN, f"OPA answered a redirect ({status}), which is never followed")
    if status in (401, 403):
        raise PolicyFailure(Reason.POLICY_DOWN, f"OPA does not take kblockd's credential ({status})")
    if status != 200:
        errors = _errors(body)
        reason = Reason.POLICY_ERROR if status == 500 and of_a_rule(errors) else Reason.POLICY_DOWN
        raise PolicyFailure(reason, f"OPA answered {status}{_places(errors)}")
    try:
        found: dict[str, Any] = parse(body)
    except (NotCanonical, RecursionError):
        raise PolicyFailure(Reason.POLICY_TYPE, "OPA's answer is not a JSON object") from None
    return found


def revision_of(found: Mapping[str, Any]) -> str:
    """The one revision in an answer's provenance; raises ``PolicyFailure`` when there is none, or more than one.

    A second bundle could hold what nobody checked.
    """
    said = found.get("provenance")
    provenance: Mapping[str, Any] = said if isinstance(said, dict) else {}
    bundles = provenance.get("bundles")
    if not isinstance(bundles, dict) or not bundles:
        raise PolicyFailure(Reason.POLICY_DOWN, "OPA names no revision: no bundle with a revision is active")
    if len(bundles) > 1 or provenance.get("revision"):
        raise PolicyFailure(Reason.POLICY_DOWN, f"OPA serves {len(bundles)} bundles; it must serve kblockd's alone")
    (bundle,) = bundles.values()
    revision = bundle.get("revision") if isinstance(bundle, dict) else None
    if not isinstance(revision, str) or not revision:
        raise PolicyFailure(Reason.POLICY_DOWN, "OPA names no revision: the bundle's manifest has none")
    return revision


def shown(revision: str) -> str:
    """A revision made safe for a message; OPA could return anything."""
    return revision if _SHOWN.fullmatch(revision) else "of an unreadable name"


def of_a_rule(errors: Sequence[Any]) -> bool:
    """Whether all errors that OPA names are those of rules over this input (AGT-08)."""
    return bool(errors) and all(isinstance(row, dict) and row.get("code") in RULE_ERRORS for row in errors)


def _errors(body: bytes) -> list[Any]:
    """The errors in the body of a failed question; empty where it names none."""
    try:
        found = json.loads(body[: 1 << 16])
    except (ValueError, RecursionError):
        return []
    errors = found.get("errors") if isinstance(found, dict) else None
    return errors if isinstance(errors, list) else []


def _places(errors: Sequence[Any]) -> str:
    """``: decision.rego:7:30: eval_builtin_error`` for each error of a rule."""
    try:
        found = [place for row in errors[:3] if (place := _place(row))]
    except (ValueError, TypeError, KeyError):
        return ""
    return f": {'; '.join(found)}" if found else ""


def _place(row: Mapping[str, Any]) -> str:
    code, location = str(row["code"]), row["location"]
    file = str(location["file"]).removeprefix("/")
    if not _CODE.fullmatch(code) or not _FILE.fullmatch(file):
        return ""
    return f"{file}:{int(location['row'])}:{int(location['col'])}: {code}"
