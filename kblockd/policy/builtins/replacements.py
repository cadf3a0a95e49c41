"""Builtins that the embedded engine lacks or answers differently from OPA, done again in Python.

An exception in a replacement is an error of the evaluation, never undefined. Source:
kblockd/policy/README.md#differences-from-opa.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import hmac
import ipaddress
import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from kblockd.policy.builtins import integers, patterns, texts, urlquery
from kblockd.policy.builtins.formats import sprintf
from kblockd.policy.builtins.integers import int64

_RFC3339: Final = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:\.(\d{1,9})\d*)?(?:Z|([+-])(\d\d):(\d\d))", re.ASCII
)
_NUMBER: Final = re.compile(r"-?(?:0|[1-9]\d*)(?P<fraction>\.\d+)?(?P<exponent>[eE][+-]?\d+)?", re.ASCII)
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_BILLION: Final = 1_000_000_000

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class DecisionTime:
    """``time.now_ns`` is the decision's time, ``input.now``, so that a decision can be replayed."""

    def __init__(self) -> None:
        self.document = b""

    def now_ns(self) -> int:
        """Nanoseconds since 1970; raises when the input has no ``now`` in RFC 3339."""
        now = json.loads(self.document).get("now") if self.document else None
        if not isinstance(now, str):
            raise ValueError("input.now must be a time in RFC 3339")
        return parse_rfc3339_ns(now)


def parse_rfc3339_ns(text: str) -> int:
    """``time.parse_rfc3339_ns`` as strict as Go's; digits beyond nanoseconds are cut."""
    found = _RFC3339.fullmatch(text)
    if not found:
        raise ValueError("not a time in RFC 3339")
    year, month, day, hour, minute, second = map(int, found.groups()[:6])
    moment = dt.datetime(year, month, day, hour, minute, second, tzinfo=dt.UTC)
    if found[8]:
        hours, minutes = int(found[9]), int(found[10])
        if hours > 23 or minutes > 59:
            raise ValueError("a zone beyond 23:59")
        shift = dt.timedelta(hours=hours, minutes=minutes)
        moment += -shift if found[8] == "+" else shift
    return int64(_nanoseconds(moment) + int((found[7] or "").ljust(9, "0")))


def time_format(value: int) -> str:
    """``time.format`` of nanoseconds, in UTC, without zeros at the end of the fraction. A zone or a layout is an error
    here: what an OPA makes of them depends on its database of zones."""
    seconds, fraction = divmod(int64(texts.integer(value)), _BILLION)
    moment = _EPOCH + dt.timedelta(seconds=seconds)
    digits = f".{fraction:09}".rstrip("0") if fraction else ""
    return f"{moment:%Y-%m-%dT%H:%M:%S}{digits}Z"


def add_date(nanoseconds: int, years: int, months: int, days: int) -> int:
    """``time.add_date``: Go's AddDate, where 31 January plus a month is the second or third of March."""
    for number in (nanoseconds, years, months, days):
        texts.integer(number)
    moment = _EPOCH + dt.timedelta(seconds=nanoseconds // _BILLION)
    year, month = divmod(moment.year * 12 + moment.month - 1 + years * 12 + months, 12)
    first = moment.replace(year=year, month=month + 1, day=1)
    shifted = first + dt.timedelta(days=moment.day - 1 + days)
    return int64(_nanoseconds(shifted) + nanoseconds % _BILLION)


def to_number(value: Any) -> Any:
    """``to_number``: a decimal integer stays exact; one beyond 64 bits is refused instead of rounded (POL-08)."""
    if value is None:
        return 0
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, int | float):
        return value
    found = _NUMBER.fullmatch(value) if isinstance(value, str) else None
    if not found:
        raise ValueError("not a decimal number")
    if not (found["fraction"] or found["exponent"]):
        return int64(int(value))
    number = float(value)
    if math.isinf(number):  # OPA refuses it; a comparison with infinity would answer
        raise ValueError("beyond what a number can hold")
    return number


def replace_n(replacements: Mapping[str, str], value: str) -> str:
    """``strings.replace_n``: one scan, the smallest key first at each place, nothing is scanned again."""
    if not isinstance(replacements, dict):
        raise TypeError("strings.replace_n takes an object first")
    for each in (value, *replacements, *replacements.values()):
        texts.text(each)
    if "" in replacements:
        raise ValueError("an empty string cannot be replaced")
    if not replacements:
        return value
    keys = sorted(replacements, key=lambda key: key.encode())
    return re.sub("|".join(map(re.escape, keys)), lambda found: replacements[found.group()], value)


def occurrences(value: str, search: str) -> int:
    """``strings.count``: without overlap, and an empty string is found before, between and after the characters."""
    if not isinstance(value, str) or not isinstance(search, str):
        raise TypeError("strings.count takes two strings")
    return value.count(search)


def cidr_contains(network: str, other: str) -> bool:
    """``net.cidr_contains``: an address or a whole network within a network; families never mix."""
    outer, inner = _network(network), _network(other) if "/" in other else _address(other)
    if isinstance(outer, ipaddress.IPv4Network) and isinstance(inner, ipaddress.IPv4Network):
        return inner.subnet_of(outer)
    if isinstance(outer, ipaddress.IPv6Network) and isinstance(inner, ipaddress.IPv6Network):
        return inner.subnet_of(outer)
    return False


def cidr_intersects(one: str, two: str) -> bool:
    """``net.cidr_intersects``: two networks."""
    left, right = _network(one), _network(two)
    return type(left) is type(right) and left.overlaps(right)


def _network(text: str) -> Network:
    if "/" not in text:
        raise ValueError("not a network in CIDR notation")
    network = ipaddress.ip_network(text, strict=False)
    if isinstance(network, ipaddress.IPv6Network) and network.network_address.ipv4_mapped:
        raise ValueError("a network of IPv4-mapped addresses; write it as IPv4")
    return network


def _address(text: str) -> Network:
    """As the network of one address; an IPv4-mapped one is its IPv4 address, as Go has it."""
    address = ipaddress.ip_address(text)
    if isinstance(address, ipaddress.IPv6Address):
        if address.scope_id is not None:
            raise ValueError("an address with a zone")
        address = address.ipv4_mapped or address
    return ipaddress.ip_network(address)


def sha256(text: str) -> str:
    """``crypto.sha256``: lowercase hex."""
    return hashlib.sha256(text.encode()).hexdigest()


def hmac_sha256(text: str, key: str) -> str:
    """``crypto.hmac.sha256``: lowercase hex."""
    return hmac.new(key.encode(), text.encode(), hashlib.sha256).hexdigest()


def hmac_equal(one: str, two: str) -> bool:
    """``crypto.hmac.equal``: in constant time."""
    return hmac.compare_digest(one.encode(), two.encode())


def _nanoseconds(moment: dt.datetime) -> int:
    since = moment - _EPOCH
    return (since.days * 86_400 + since.seconds) * _BILLION


REPLACED: Final[Mapping[str, tuple[int, Callable[..., Any]]]] = {
    "regex.match": (2, patterns.match),
    "regex.is_valid": (1, patterns.is_valid),
    "regex.find_n": (3, patterns.find_n),
    "regex.find_all_string_submatch_n": (3, patterns.find_all_submatch_n),
    "regex.replace": (3, patterns.replace),
    "regex.split": (2, patterns.split),
    "regex.template_match": (4, patterns.template_match),
    "glob.match": (3, patterns.glob_match),
    "lower": (1, texts.lower),
    "upper": (1, texts.upper),
    "indexof": (2, texts.indexof),
    "indexof_n": (2, texts.indexof_n),
    "replace": (3, texts.replace),
    "substring": (3, texts.substring),
    "glob.quote_meta": (1, texts.quote_meta),
    "base64url.decode": (1, texts.base64url_decode),
    "json.is_valid": (1, texts.json_is_valid),
    "json.marshal": (1, texts.json_marshal),
    "urlquery.decode": (1, urlquery.decode),
    "urlquery.decode_object": (1, urlquery.decode_object),
    "urlquery.encode": (1, urlquery.encode),
    "urlquery.encode_object": (1, urlquery.encode_object),
    "array.slice": (3, integers.array_slice),
    "floor": (1, integers.floor),
    "ceil": (1, integers.ceil),
    "bits.and": (2, integers.bits_and),
    "bits.lsh": (2, integers.bits_lsh),
    "bits.negate": (1, integers.bits_negate),
    "bits.or": (2, integers.bits_or),
    "bits.rsh": (2, integers.bits_rsh),
    "bits.xor": (2, integers.bits_xor),
    "strings.replace_n": (2, replace_n),
    "strings.count": (2, occurrences),
    "sprintf": (2, sprintf),
    "to_number": (1, to_number),
    "time.parse_rfc3339_ns": (1, parse_rfc3339_ns),
    "time.add_date": (4, add_date),
    "time.format": (1, time_format),
    "net.cidr_contains": (2, cidr_contains),
    "net.cidr_intersects": (2, cidr_intersects),
    "crypto.sha256": (1, sha256),
    "crypto.hmac.sha256": (2, hmac_sha256),
    "crypto.hmac.equal": (2, hmac_equal),
}


def install(engine: Any, time: DecisionTime) -> None:
    """Overrides them in an engine, before its modules are added."""
    engine.add_extension("time.now_ns", 0, time.now_ns)
    for name, (arity, function) in REPLACED.items():
        engine.add_extension(name, arity, function)
