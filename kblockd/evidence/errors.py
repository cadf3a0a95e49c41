"""Why evidence is not accepted.

::

    EvidenceError
      BadEnvelope      not a DSSE envelope of the strict form
      UnknownKey       signed with a key id that the key set does not hold: a verdict of its own (RCP-08)
      BadSignature     the signature does not fit
      KeyNotValid      a known key, but of another role or outside its range of ledger indexes
      BadStatement     the payload is not the statement that was expected
      KeysRefused      keys at rest that must not be used: missing, readable by others, unsigned (RCP-09)
"""

from __future__ import annotations


class EvidenceError(Exception):
    """Base of all; never carries key material."""


class BadEnvelope(EvidenceError):
    """Not a DSSE envelope of the strict form."""


class UnknownKey(EvidenceError):
    """The key id is not in the key set."""


class BadSignature(EvidenceError):
    """The signature does not fit payload, payload type and key."""


class KeyNotValid(EvidenceError):
    """A known key in a wrong role, or outside its range of ledger indexes."""


class BadStatement(EvidenceError):
    """The payload is not the statement that was expected; the message names the member."""


class KeysRefused(EvidenceError):
    """Keys at rest that must not be used; the message names the file and the next step."""
