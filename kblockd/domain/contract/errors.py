"""``tool.errors``: what the tool's own error answer looks like, and which of them prove that nothing was done.

Gateways, proxies and protocol libraries answer in a tool's place, in JSON as well, and often after the tool has acted.
So an error answer counts as the tool's own only if it has the shape that is declared here, and it proves an absence
only if the contract says so besides. ``kblockd.execution.absence`` compares; a 5xx never gets that far (UPS-01 to
UPS-06).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Final, Literal

from pydantic import Field

from kblockd.domain.contract import arguments
from kblockd.domain.contract.arguments import ArgumentsValidator
from kblockd.domain.contract.fault import Fault, Path
from kblockd.domain.contract.words import FROM_LIST, JsonObject, Part, Pointer

if TYPE_CHECKING:
    from kblockd.domain.contract.model import Tool

OF_A_PROXY: Final = frozenset({407, 408})
"""Statuses below 500 that say nothing of the tool's work: the proxy's own, and a time-out while it may go on."""
UNFINISHED_RPC: Final = frozenset({-32603, -32700, -32000, -32001})
"""JSON-RPC codes of a crash, a broken message, a closed connection and a time-out: what a 5xx is to HTTP."""

_AT: Final[Path] = ("tool", "errors")
MediaType = Annotated[str, Field(pattern=r"^[a-z0-9!#$&^_.+-]{1,63}/[a-z0-9!#$&^_.+-]{1,63}$")]
Codes = Annotated[tuple[int | str, ...], FROM_LIST]
NotEmpty = Annotated[Pointer, Field(min_length=1)]


class ToolErrors(Part):
    """The shape of the tool's own errors, and the codes that mean something.

    ``place`` (``in``): the body of an HTTP answer, an MCP result with ``isError`` (its structured content, or the
    object in its text), or the ``error`` object of JSON-RPC. ``has`` and ``code`` point into that, ``json_schema``
    (``schema``) describes it. A code is an HTTP status, a JSON-RPC code (negative) or a text that stands at ``code``.
    """

    place: Literal["body", "tool_result", "rpc_error"] = Field(alias="in")
    media_type: MediaType | None = None
    has: NotEmpty | None = None
    json_schema: JsonObject | None = Field(default=None, alias="schema")
    code: NotEmpty | None = None
    rejected_before_work: Codes = ()
    in_progress: Codes = ()

    @cached_property
    def validator(self) -> ArgumentsValidator | None:
        """The compiled ``schema``."""
        return ArgumentsValidator(self.json_schema) if self.json_schema is not None else None


def may_be_own(status: int | None, rpc_code: int | None = None) -> bool:
    """Whether an answer with this status and JSON-RPC code can be the tool's own error at all."""
    of_tool = status is not None and (200 <= status < 300 or (400 <= status < 500 and status not in OF_A_PROXY))
    return of_tool and rpc_code not in UNFINISHED_RPC


def faults(tool: Tool, *, stored: bool) -> Iterator[Fault]:
    """Every fault of ``tool.errors``. Of a ``stored`` contract of an older version it is no fault that it declares no
    shape: its errors then prove nothing."""
    errors = tool.errors
    if errors is None:
        if tool.errors_are_effect_free and not stored:
            yield Fault(
                ("tool", "errors_are_effect_free"),
                "tool.errors does not say what the tool's own errors look like, so any gateway could prove an absence",
                "declare tool.errors, or set false",
            )
        return
    yield from _shape(errors)
    for key in ("rejected_before_work", "in_progress"):
        for position, code in enumerate(getattr(errors, key)):
            yield from _code(errors, (*_AT, key, position), code)
    for position, code in enumerate(errors.in_progress):
        if code in errors.rejected_before_work:
            message = f"{code} is in rejected_before_work as well"
            yield Fault((*_AT, "in_progress", position), message, "keep it in one of them")


def _shape(errors: ToolErrors) -> Iterator[Fault]:
    if errors.has is None and errors.json_schema is None:
        yield Fault(_AT, "any JSON would do", "set has, a pointer to what only this tool's errors hold, or schema")
    if errors.place == "body" and errors.media_type is None:
        yield Fault((*_AT, "media_type"), "missing", "name the media type of the tool's errors")
    if errors.place != "body" and errors.media_type is not None:
        yield Fault((*_AT, "media_type"), "the protocol sets it", "remove it, or set in: body")
    if errors.json_schema is not None:
        yield from arguments.faults(errors.json_schema, (*_AT, "schema"))


def _code(errors: ToolErrors, at: Path, code: int | str) -> Iterator[Fault]:
    if isinstance(code, str):
        if errors.code is None:
            yield Fault(at, f"{code[:64]!r} is looked for nowhere", "set tool.errors.code to where it stands")
    elif code < 0:
        if errors.place != "rpc_error":
            yield Fault(at, f"{code} is a code of JSON-RPC", "set in: rpc_error, or name a status")
        elif code in UNFINISHED_RPC:
            yield Fault(at, f"{code} may come after the work has begun, as a 5xx", "remove it")
    elif 500 <= code < 600:
        yield Fault(at, f"{code}: a 5xx proves nothing, and gateways send it", "remove it")
    elif not 400 <= code < 500 or code in OF_A_PROXY:
        yield Fault(at, f"{code} is not a status by which a tool refuses a call", "name one of 400 to 499 but 407, 408")
    elif errors.place == "tool_result":
        yield Fault(at, "a tool result has no status of its own", "name a text that stands at tool.errors.code")
