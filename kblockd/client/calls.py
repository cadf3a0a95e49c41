"""A call: the whole of what is asked for, so that it can be repeated exactly (R067, R068, R672)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from kblockd.domain.canonical import canonical
from kblockd.domain.envelope import SCHEMA_VERSION, Envelope, TargetPin


@dataclass(frozen=True, slots=True)
class Call:
    """``wait_seconds`` None is the client's default, 0 asks for no waiting. A call without a key gets one when it is
    executed, unless ``keyless``: then nothing protects a repeat once the first is closed, and it cannot be resumed.

    A key that the client makes comes back in answers and in errors of the call, not where the caller's own time-out,
    cancellation or Ctrl-C ends it (CancelledError, TimeoutError, KeyboardInterrupt): give one wherever that can be.
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
        """The usual way. ``pins_and_bounds`` are further fields of ``Envelope``.

        Raises ``NotCanonical`` (a ValueError) for arguments that have no canonical form, TypeError for a field that
        does not exist.
        """
        aim = target if isinstance(target, TargetPin) else TargetPin(id=target)
        envelope = Envelope(
            schema_version=SCHEMA_VERSION,
            environment=environment,
            operation=operation,
            target=aim,
            arguments_json=canonical(dict(arguments)),
            caller_key=key or "",
            has_caller_key=key is not None,
            **pins_and_bounds,
        )
        return cls(envelope, wait_seconds, keyless)

    @property
    def key(self) -> str | None:
        """The caller key, None before there is one."""
        return self.envelope.caller_key if self.envelope.has_caller_key else None

    def with_key(self, key: str) -> Call:
        """The same call under a key."""
        return replace(self, envelope=replace(self.envelope, caller_key=key, has_caller_key=True))
