"""What an answer proves, by status, JSON-RPC code and shape: tables that ``test_proofs`` plays and the document prints.

The words are written down here by hand, without a look at the code that is tested: ``before`` (it proves that nothing
happened, and the next attempt may follow at once), ``unknown`` (it is looked up), ``answered`` (it is verified), and
``refused`` (such a contract does not load).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

SWITCHES: Final = ("nothing", "effect free", "listed", "in progress")
"""What the contract says besides the shape of the tool's own errors: nothing; ``errors_are_effect_free``; this status
or code in ``rejected_before_work``; in ``in_progress``."""
Words = tuple[str, str, str, str]  # by ``SWITCHES``

UNKNOWN: Final[Words] = ("unknown", "unknown", "unknown", "unknown")
OWN: Final[Words] = ("unknown", "before", "before", "unknown")
ANSWERED: Final[Words] = ("answered", "answered", "refused", "refused")
NEVER: Final[Words] = ("unknown", "unknown", "refused", "refused")

STATUSES: Final = range(100, 600)
BODIES: Final = ("own", "gateway", "page", "empty")
UNFINISHED: Final = (-32700, -32603, -32001, -32000)
CODES: Final = (*range(-32768, -31999), -2147483648, -40000, -1)
TEXTS: Final = (
    # TypeScript SDK 1.32; "Output validation error" comes after the tool has run.
    "MCP error -32602: Tool refund not found",
    "MCP error -32602: Tool refund disabled",
    "MCP error -32602: Input validation error: Invalid arguments for tool refund: Required",
    "MCP error -32602: Output validation error: Tool refund has an output schema but no structured content",
    "MCP error -32602: Output validation error: Invalid structured content for tool refund: Required",
    "MCP error -32601: Tool refund requires task augmentation (taskSupport: 'required')",
    "MCP error -32603: Task t-1 not found during polling",
    # Python SDK 2.3
    "Unknown tool: refund",
    "Invalid request parameters",
    "Method not found",
    "Session not found",
    "Session terminated",
    # Go SDK; "validating tool output" comes after the tool has run.
    'invalid params: unknown tool "refund"',
    'invalid params: validating "arguments": required: missing properties: ["amount"]',
    'validating tool output: required: missing properties: ["refund_id"]',
    "JSON RPC method not found: no handler for tools/call",
    # Proxies, and tools that report what went wrong after the deed.
    "refund: the tool charged the card, but the receipt address was not found",
    "upstream connect error or disconnect/reset before headers",
    "tool 'refund' not found in any backend",
    "no such tool: refund",
    "Unknown tool",
    "not executed",
    "nothing was done",
    "rejected before execution",
    "The operation was cancelled before it started",
    "Validation failed; no changes were made",
    "dry run: no effect",
    "duplicate request",
    "",
    "\u202enoitucexe on",
)


@dataclass(frozen=True)
class Case:
    """One line of a table: whose answer it is, and what it proves under each switch."""

    shown: str
    body: str
    words: Words


def of_http(status: int, body: str) -> Words:
    """An answer of HTTP to the HTTP adapter, whose tool sets no ``success`` predicate."""
    if 200 <= status < 300:
        if status == 202 or (body == "page" and status != 204):
            return NEVER
        return ANSWERED
    if not 400 <= status < 500 or status in (407, 408):
        return NEVER
    return OWN if body == "own" else UNKNOWN


def of_mcp(status: int, body: str) -> Words:
    """An answer of HTTP to ``tools/call``; ``own`` is a JSON-RPC error under this call's id, with the declared data."""
    if not 400 <= status < 500 or status in (407, 408):
        usual = body == "own" and 200 <= status < 300 and status not in (202, 204)
        return ("unknown", "before", "refused", "refused") if usual else NEVER
    return OWN if body == "own" and status != 404 else UNKNOWN


def of_rpc(code: int) -> Words:
    """A JSON-RPC error under this call's id with the declared data, whatever its text says."""
    return NEVER if code in UNFINISHED else OWN


def tables() -> Iterator[str]:
    """For the document."""
    yield from _STATUS_WORDS
    for adapter, of in (("http", of_http), ("mcp", of_mcp)):
        bodies = BODIES if adapter == "http" else BODIES[:3]
        yield from (_line(adapter, case) for body in bodies for case in _cases(STATUSES, body, of))
    yield ""
    yield from _CODE_WORDS
    yield from (_line("mcp", case) for case in _cases(CODES, "own", lambda code, _: of_rpc(code)))
    yield from ("", "The texts:", "")
    yield from (f"- `{text}`" if text.isascii() and text else f"- {text!a}" for text in TEXTS)
    yield ""


def _cases(numbers: Iterable[int], body: str, of: Callable[[int, str], Words]) -> Iterator[Case]:
    """Neighbours of one kind share a line."""
    by_words: dict[Words, list[int]] = {}
    for number in sorted(numbers):
        by_words.setdefault(of(number, body), []).append(number)
    for words, alike in by_words.items():
        yield Case(", ".join(_ranges(alike)), body, words)


def _ranges(numbers: list[int]) -> Iterator[str]:
    first = last = numbers[0]
    for number in [*numbers[1:], None]:
        if number is not None and number == last + 1:
            last = number
            continue
        yield str(first) if first == last else f"{first} to {last}"
        if number is not None:
            first = last = number


def _line(adapter: str, case: Case) -> str:
    return f"| {' | '.join((case.shown, adapter, case.body, *case.words))} |"


_HEAD: Final = "nothing more | effect free | in `rejected_before_work` | in `in_progress` |"
_STATUS_WORDS: Final = (
    """## What an answer proves

An adapter cannot report that the upstream refused a call, and no answer proves a refusal unless the contract declares
it in `tool.errors`. The tests play the next two tables answer by answer through the real adapters, each with one and
with three attempts: every status from 100 to 599 with every kind of body, and every JSON-RPC code with thirty texts,
with and without a prior effect. There was never more than one effect unless its absence had been proved, and "nothing
happened" was never reported after an effect.

`before`: proves that nothing happened; the next attempt may follow at once. `unknown`: looked up. `answered`: verified.
`refused`: a contract that lists such a status or code does not load.

Bodies: `own` has the shape declared in `tool.errors` (for MCP, a JSON-RPC error with this call's id), `gateway` is JSON
from an intermediary, `page` is HTML. The columns are what the contract declares besides that shape.
""",
    f"| status | adapter | body | {_HEAD}",
    "|---|---|---|---|---|---|---|",
)
_CODE_WORDS: Final = (
    f"| JSON-RPC code | adapter | body | {_HEAD}",
    "|---|---|---|---|---|---|---|",
)
