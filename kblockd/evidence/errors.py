"""Errors for evidence that is not accepted.

::

    EvidenceError
      BadEnvelope      not a DSSE envelope of the strict form
      UnknownKey       signed with a key id that is not in the key set: a separate verdict (RCP-08)
      BadSignature     the signature is invalid
      KeyNotValid      a known key, but with the wrong role or outside its range of ledger indexes
      BadStatement     the payload is not the expected statement
      KeysRefused      stored keys that must not be used: missing, readable by others, unsigned (RCP-09)
"""

from __future__ import annotations


class EvidenceError(Exception):
    """Base of all; never carries key material."""


class BadEnvelope(EvidenceError):
    """Not a DSSE envelope of the strict form."""


class UnknownKey(EvidenceError):
    """The key id is not in the key set."""


class BadSignature(EvidenceError):
    """The signature is invalid for payload, payload type and key."""


class KeyNotValid(EvidenceError):
    """A known key with the wrong role, or outside its range of ledger indexes."""


class BadStatement(EvidenceError):
    """The payload is not the expected statement; the message names the member."""


class KeysRefused(EvidenceError):
    """Stored keys that must not be used; the message names the file and the next step."""
