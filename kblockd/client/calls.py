"""A call: a complete request, so that it can be repeated exactly (R067, R068, R672)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from kblockd.domain.canonical import canonical
from kblockd.domain.envelope import SCHEMA_VERSION, Envelope, TargetPin


@dataclass(frozen=True, slots=True)
class Call:
    """``wait_seconds`` None means the client's default, 0 no waiting. ``execute`` gives a call without a key a new one,
    unless it is ``keyless``: then a repeat after the first call is closed acts again, and it cannot be resumed.

    A key made by the client is returned in answers and errors, but is lost if the caller's own time-out, cancellation
    or Ctrl-C ends the call (CancelledError, TimeoutError, KeyboardInterrupt): pass your own key wherever that can
    happen.
    """

    envelope: Envelope
    wait_seconds: float | None = None
    keyless: bool = False

    @classmethod
    def of(
        cls,
        operation: str,
        environment: str,
        *,
        target: str | TargetPin,
        arguments: Mapping[str, Any],
        key: str | None = None,
        wait_seconds: float | None = None,
        keyless: bool = False,
        **pins_and_bounds: Any,
    ) -> Call:
        """The usual constructor. ``pins_and_bounds`` are further fields of ``Envelope``.

        Raises ``NotCanonical`` (a ValueError) for arguments without a canonical form, TypeError for an unknown field.
        """
        pin = target if isinstance(target, TargetPin) else TargetPin(id=target)
        envelope = Envelope(
            schema_version=SCHEMA_VERSION,
            environment=environment,
            operation=operation,
            target=pin,
            arguments_json=canonical(dict(arguments)),
            caller_key=key or "",
            has_caller_key=key is not None,
            **pins_and_bounds,
        )
        return cls(envelope, wait_seconds, keyless)

    @property
    def key(self) -> str | None:
        """The caller key, or None if there is none yet."""
        return self.envelope.caller_key if self.envelope.has_caller_key else None

    def with_key(self, key: str) -> Call:
        """The same call with a key."""
        return replace(self, envelope=replace(self.envelope, caller_key=key, has_caller_key=True))
