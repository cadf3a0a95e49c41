"""The building blocks of the contract's models: strict, frozen, and honest about what does not act yet.

A switch that silently does nothing is a defect. So a key of the policy (R556 to R603) either acts, or stands for what
kblockd always does (``Always``: only true is taken), or is refused with "not supported yet" (``NotYet``, ``Later``).
"""

from __future__ import annotations

import enum
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

from kblockd.domain import canonical, pointer

NOT_SUPPORTED_YET: Final = "kblockd_not_supported_yet"
ALWAYS: Final = "kblockd_always"
CUSTOM_ERRORS: Final = frozenset({NOT_SUPPORTED_YET, ALWAYS})

_DAY_SECONDS: Final = 86_400


class Added(enum.Enum):
    """What a key may be marked with."""

    LATER = "later"


ADDED: Final = Added.LATER
"""The key came after the first release: see ``additions``."""


class Part(BaseModel):
    """Frozen, strictly typed, and without a place for a key that nobody reads."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


def not_yet(value: object) -> object:
    """Raises for anything that switches on what a later version brings; false and null stay as they are."""
    if value is False or value is None:
        return value
    raise PydanticCustomError(NOT_SUPPORTED_YET, "not supported yet")


def later_words(*words: str) -> BeforeValidator:
    """Refuses words of the policy that a later version brings, so that they are not mistaken for a slip of the pen."""

    def refuse(value: object) -> object:
        if isinstance(value, str) and value in words:
            raise PydanticCustomError(NOT_SUPPORTED_YET, "not supported yet")
        return value

    return BeforeValidator(refuse)


def _always(value: bool) -> bool:
    if value is not True:
        raise PydanticCustomError(ALWAYS, "kblockd always does this; remove it or set true")
    return value


def _never(value: bool) -> bool:
    if value is not False:
        raise PydanticCustomError(ALWAYS, "kblockd never does this; remove it or set false")
    return value


def _pointer(value: str) -> str:
    pointer.parse(value)
    return value


def _from_list(value: object) -> object:
    """YAML has lists, frozen models have tuples; strict validation would refuse the one for the other."""
    return tuple(value) if isinstance(value, list) else value


def _json(value: Any) -> Any:
    canonical.check(value)
    return value


Always = Annotated[bool, AfterValidator(_always)]
Never = Annotated[bool, AfterValidator(_never)]
NotYet = Annotated[bool, BeforeValidator(not_yet)]
Later = Annotated[None, BeforeValidator(not_yet)]

FROM_LIST: Final = BeforeValidator(_from_list)
Pointer = Annotated[str, AfterValidator(_pointer)]
JsonObject = Annotated[dict[str, Any], AfterValidator(_json)]
Seconds = Annotated[int, Field(ge=1, le=_DAY_SECONDS)]
SecondsOrZero = Annotated[int, Field(ge=0, le=_DAY_SECONDS)]
Count = Annotated[int, Field(ge=1, le=1000)]
Text = Annotated[str, Field(min_length=1, max_length=1024)]
Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,63}$")]
ToolName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,128}$")]
ActionType = Annotated[str, Field(pattern=r"^[a-z0-9_]+(\.[a-z0-9_]+)*$", max_length=128)]
