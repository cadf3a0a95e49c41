"""Which builtins a policy may call, with their arity; whatever is not named here is refused at load.

An allow-list, because an unknown builtin in a branch that is not taken loads without a word.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kblockd.policy.builtins.replacements import REPLACED

_NATIVE: Final[Mapping[int, str]] = {
    0: "",
    1: """
        abs array.reverse base64.decode base64.encode base64.is_valid base64url.encode
        base64url.encode_no_pad count hex.decode hex.encode intersection
        is_array is_boolean is_null is_number is_object is_set is_string json.unmarshal
        max min net.cidr_expand net.cidr_is_valid object.keys object.union_n product round semver.is_valid
        sort strings.reverse sum time.clock time.date time.parse_duration_ns time.weekday trim_space
        type_name union walk
    """,
    2: """
        array.concat concat contains endswith format_int
        graph.reachable graph.reachable_paths json.patch
        numbers.range object.filter object.remove object.union semver.compare split
        startswith strings.any_prefix_match strings.any_suffix_match time.diff
        trim trim_left trim_prefix trim_right trim_suffix
    """,
    3: "numbers.range_step object.get",
}

ARITY: Final[Mapping[str, int]] = {
    **{name: arity for arity, names in _NATIVE.items() for name in names.split()},
    **{name: arity for name, (arity, _) in REPLACED.items()},
    "time.now_ns": 0,
}

ONLY_OPA: Final = (
    *("array.flatten", "crypto.", "graphql.", "io.jwt.", "net.cidr_contains_matches", "net.cidr_merge"),
    *("providers.aws.", "regex.globs_match", "rego.", "strings.render_template", "strings.split_n", "uri."),
)
"""Beginnings of the names of what OPA has and the embedded engine has not; deprecated ones are in neither."""

_OUTSIDE: Final = "a policy must decide from its input and data alone; put the fact into the input"
_DIFFERS: Final = "the embedded engine answers it differently from OPA; write it without, or set policy.engine to opa"

REFUSED: Final[Mapping[str, str]] = {
    "http.send": _OUTSIDE,
    "net.lookup_ip_addr": _OUTSIDE,
    "opa.runtime": _OUTSIDE,
    "rand.intn": _OUTSIDE,
    "uuid.rfc4122": _OUTSIDE,
    "print": "input could reach a log; remove the call",
    "trace": "input could reach a log; remove the call",
    "json.filter": _DIFFERS,
    "json.marshal_with_options": _DIFFERS,
    "json.match_schema": _DIFFERS,
    "json.verify_schema": _DIFFERS,
    "json.remove": _DIFFERS,
    "object.subset": _DIFFERS,
    "time.parse_ns": _DIFFERS,
    "units.parse": _DIFFERS,
    "units.parse_bytes": _DIFFERS,
    "uuid.parse": _DIFFERS,
    "yaml.is_valid": _DIFFERS,
    "yaml.marshal": _DIFFERS,
    "yaml.unmarshal": _DIFFERS,
}

# Only where an OPA server decides: the embedded engine has the decision's time there.
REFUSED_ON_SERVER: Final[Mapping[str, str]] = {
    "time.now_ns": "an OPA server answers its own clock, so a decision could not be replayed; use input.now",
}

OUTSIDE: Final[Mapping[str, str]] = {
    **{name: step for name, step in REFUSED.items() if step is not _DIFFERS},
    **REFUSED_ON_SERVER,
    "io.jwt.decode_verify": "an OPA server answers from its own clock; verify the signature and compare with input.now",
    "io.jwt.encode_sign": _OUTSIDE,
    "io.jwt.encode_sign_raw": _OUTSIDE,
    "json.match_schema": "a schema can fetch another from the network; write the checks as rules",
    "json.verify_schema": "a schema can fetch another from the network; write the checks as rules",
}
"""What no policy of an OPA server may call, with the next step; the ban itself is OPA's own list in ``opa.check``."""
