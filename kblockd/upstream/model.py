"""The configuration of one upstream, frozen. ``kblockd.config`` reads the YAML and reports file and line."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, field_validator, model_validator

from kblockd.upstream.exchange import HttpOrigin

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
_REFERENCE = re.compile(r"none|file:.+|env:[A-Za-z_][A-Za-z0-9_]*")


def _reference(reference: object) -> object:
    """Never quotes the value: somebody may have written the secret itself here."""
    if not isinstance(reference, str) or not _REFERENCE.fullmatch(reference):
        raise ValueError("must say where the credential is: none, file:PATH or env:NAME (the value is not shown)")
    return reference


CredentialRef = Annotated[str, BeforeValidator(_reference)]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Tls(_Frozen):
    """Only for https. ``ca_file`` (PEM) replaces the system's authorities, ``spki_sha256`` pins the server's key."""

    ca_file: Path | None = None
    spki_sha256: tuple[Sha256, ...] = ()


class ToolPin(_Frozen):
    """The reviewed definition; a tool without a digest is not pinned yet and is refused."""

    definition_sha256: Sha256 | None = None


class Credentials(_Frozen):
    """The source of each identity's Authorization value: ``none``, ``file:PATH`` or ``env:NAME`` (R636)."""

    write: CredentialRef = "none"
    read: CredentialRef = "none"


class BreakerLimits(_Frozen):
    """After ``failures`` transport failures in a row no new call starts for ``open_seconds`` (R203)."""

    failures: int = Field(default=5, ge=1)
    open_seconds: float = Field(default=30.0, gt=0)


class UpstreamConfig(_Frozen):
    """One file in the folder of upstreams; the file's name is the upstream's."""

    adapter: str = Field(min_length=1)
    url: str
    allow_addresses: tuple[Network, ...] = ()
    tls: Tls = Tls()
    tools: Mapping[str, ToolPin] = Field(default_factory=dict)
    credentials: Credentials = Credentials()
    settings: Mapping[str, Any] = Field(default_factory=dict)
    maximum_concurrent_calls: int = Field(default=16, ge=1)
    breaker: BreakerLimits = BreakerLimits()

    @cached_property
    def origin(self) -> HttpOrigin:
        """Scheme, host and port, for the action digest and the guard."""
        return HttpOrigin.of(self.url)

    @field_validator("url")
    @classmethod
    def _plain_url(cls, url: str) -> str:
        HttpOrigin.of(url)
        if "@" in url.split("://", 1)[1].split("/", 1)[0]:
            raise ValueError("must not carry a user or a password; use credentials")
        if "#" in url:
            raise ValueError("must not carry a fragment")
        return url

    @model_validator(mode="after")
    def _tls_only_for_https(self) -> Self:
        if self.origin.scheme == "http" and self.tls != Tls():
            raise ValueError("tls: only for https; the url says http")
        return self
