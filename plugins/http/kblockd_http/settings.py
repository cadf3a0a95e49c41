"""The settings of an HTTP upstream, frozen; part of the definition that a person reviews and pins."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, field_validator, model_validator

Pointer = Annotated[str, StringConstraints(pattern=r"^(/([^~/]|~[01])*)*$")]  # RFC 6901; "" is the whole answer
HeaderName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}$")]
HeaderValue = Annotated[str, StringConstraints(pattern=r"^[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?$", max_length=1024)]
Status = Annotated[int, Field(ge=200, le=599)]

PLACEHOLDER: Final = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")
# Headers that determine framing, routing or identity belong to the transport and the credential.
RESERVED: Final = frozenset(
    {
        *("accept-encoding", "authorization", "connection", "content-encoding", "content-length", "content-type"),
        *("cookie", "expect", "host", "keep-alive", "proxy-authorization", "te", "trailer", "transfer-encoding"),
        "upgrade",
    }
)
_PATH: Final = re.compile(r"/(?:[A-Za-z0-9._~!$&'()*+,;=:@/%-]|\{[A-Za-z_][A-Za-z0-9_]*\})*")


class _Settings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Template(_Settings):
    """One request. Arguments named in ``path`` or ``query`` go there, escaped; all others go into a JSON body.

    A GET has no body, so there every other argument goes into the query.
    """

    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"] = "POST"
    path: str
    query: tuple[str, ...] = ()
    headers: Mapping[HeaderName, HeaderValue] = Field(default_factory=dict)

    @field_validator("path")
    @classmethod
    def _is_path(cls, path: str) -> str:
        if not _PATH.fullmatch(path):
            raise ValueError("must start with / and hold only path characters and {argument}s")
        if path.startswith("//") or any(segment in (".", "..") for segment in path.split("/")):
            raise ValueError("must not hold // at the start, . or ..")
        return path

    @field_validator("headers")
    @classmethod
    def _not_reserved(cls, headers: Mapping[str, str]) -> Mapping[str, str]:
        if reserved := sorted(name for name in headers if name.lower() in RESERVED):
            raise ValueError(f"{', '.join(reserved)} cannot be set here; secrets belong in credentials")
        return headers


class Equals(_Settings):
    """A place in the answer and its expected value."""

    pointer: Pointer
    equals: Any


class PollProgress(_Settings):
    """The work continues while the value at ``pointer`` of a poll's answer is one of ``running``. If the value is
    missing or null, the state is unknown and the poll is repeated."""

    pointer: Pointer
    running: tuple[Any, ...] = Field(min_length=1)


class ToolSettings(Template):
    """One tool: its request, and the meaning of its answers.

    ``success``: where the body of a 2xx says whether the call worked (HTP-04); if it does not say, or part of it cannot
    be stored, the outcome is unknown (UPS-12). ``operation``: where an answer with one of ``accepted_statuses`` names
    the work in progress. What an error proves is defined in the action contract (``tool.errors``), not here.
    ``description`` is for the reviewer, ``definition`` the place in the document that describes this tool.
    """

    description: str = ""
    definition: Pointer = ""
    success: Equals | None = None
    accepted_statuses: tuple[Status, ...] = (202,)
    operation: Pointer | None = None
    poll: Template | None = None
    progress: PollProgress | None = None
    cancel: Template | None = None

    @model_validator(mode="before")
    @classmethod
    def _moved(cls, given: Any) -> Any:
        if isinstance(given, Mapping) and "not_executed_statuses" in given:
            raise ValueError(
                "not_executed_statuses is no longer a setting: remove it, and declare in the action contract what the "
                "tool's own errors look like (tool.errors) and which of them come before any work "
                "(rejected_before_work)"
            )
        return given


class DefinitionDocument(_Settings):
    """A definition document (such as OpenAPI) on the upstream's own origin, fetched for every ``describe``.

    ``version`` points to its self-reported version.
    """

    path: str = Field(pattern=r"^/[^?#\s]*$")
    version: Pointer = "/info/version"


class Settings(_Settings):
    """``request_ids``: name to the answer's header with an identifier that the upstream knows (R202)."""

    tools: Mapping[str, ToolSettings] = Field(default_factory=dict)
    document: DefinitionDocument | None = None
    request_ids: Mapping[str, HeaderName] = Field(default_factory=dict)
