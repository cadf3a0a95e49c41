"""Builtins over integers as OPA has them. The engine's own are undefined for what OPA refuses (``array.slice`` at 1.5)
and for numbers beyond 64 bits, and undefined behind a ``not`` is true."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any, Final

from kblockd.policy.builtins.texts import integer

_INT64: Final = range(-(1 << 63), 1 << 63)
_MOST_SHIFTED: Final = 63

_AND: Final[Callable[[int, int], int]] = operator.and_
_OR: Final[Callable[[int, int], int]] = operator.or_
_XOR: Final[Callable[[int, int], int]] = operator.xor


def int64(value: int) -> int:
    """The value itself; raises ``ValueError`` beyond 64 bits, where the engine would go on with a float."""
    if value not in _INT64:
        raise ValueError("beyond 64 bits")
    return value


def bits_and(one: int, two: int) -> int:
    """``bits.and``."""
    return _AND(_whole(one), _whole(two))


def bits_or(one: int, two: int) -> int:
    """``bits.or``."""
    return _OR(_whole(one), _whole(two))


def bits_xor(one: int, two: int) -> int:
    """``bits.xor``."""
    return _XOR(_whole(one), _whole(two))


def bits_negate(value: int) -> int:
    """``bits.negate``."""
    return ~_whole(value)


def bits_lsh(value: int, by: int) -> int:
    """``bits.lsh``; a result beyond 64 bits is an error here."""
    shift = _shift(by)
    if _whole(value) and shift > _MOST_SHIFTED:
        raise ValueError("beyond 64 bits")
    return int64(value << shift) if value else 0


def bits_rsh(value: int, by: int) -> int:
    """``bits.rsh``, with the sign."""
    return _whole(value) >> _shift(by)


def floor(value: Any) -> int:
    """``floor``."""
    return int64(math.floor(_rounded(value)))


def ceil(value: Any) -> int:
    """``ceil``."""
    return int64(math.ceil(_rounded(value)))


def array_slice(array: list[Any], start: int, stop: int) -> list[Any]:
    """``array.slice``: bounds are clamped, and must be integers."""
    if not isinstance(array, list):
        raise TypeError("must be an array")
    end = min(max(integer(stop), 0), len(array))
    return array[min(max(integer(start), 0), end) : end]


def _whole(value: Any) -> int:
    return int64(integer(value))


def _rounded(value: Any) -> int | float:
    """Between -1 and 0 OPA answers one too many (``floor(-0.5)`` is 0), so that is an error here."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise TypeError("must be a number")
    if -1 < value < 0:
        raise ValueError("OPA does not round between -1 and 0 as arithmetic does")
    return value


def _shift(by: Any) -> int:
    if _whole(by) < 0:
        raise ValueError("a negative shift")
    return int(by)
