"""A client process: many threads that make given calls at one moment, and one line of JSON for each answer.

``python callers.py SOCKET`` reads calls as JSON lines (operation, environment, order, amount, key or null, and the
fields of the envelope), says ``ready``, waits for a line, calls, and prints what each call got.
"""

from __future__ import annotations

import base64
import json
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from kblockd.client import Call, CallError, Client


def made(asked: dict[str, Any]) -> Call:
    """The call that a line asks for."""
    order = asked["order"]
    return Call.of(
        asked["operation"],
        asked["environment"],
        target=order,
        arguments={"order_id": order, "amount": asked["amount"], "currency": "EUR"},
        key=asked["key"],
        keyless=asked["key"] is None,
        **asked.get("fields", {}),
    )


def called(client: Client, call: Call, start: threading.Barrier) -> dict[str, Any]:
    """What the call got: a kind of answer, or a reason."""
    start.wait()
    try:
        answer = client.execute(call)
    except CallError as error:
        return {
            "kind": "error",
            "reason": error.reason,
            "code": error.code,
            "retryable": error.retryable,
            "execution": error.execution_id,
            "message": error.message,
        }
    return {
        "kind": type(answer).__name__,
        "execution": answer.execution_id,
        "result": base64.b64encode(answer.result_dsse).decode(),
        "class": answer.result_class,
        "replayed": answer.replayed,
    }


def main() -> None:
    """Reads, waits, calls, prints."""
    lines = iter(sys.stdin.readline, "\n")
    calls = [made(json.loads(line)) for line in lines]
    start = threading.Barrier(len(calls))
    with Client(f"unix:{sys.argv[1]}") as client, ThreadPoolExecutor(len(calls)) as threads:
        print("ready", flush=True)
        sys.stdin.readline()
        for answer in threads.map(lambda call: called(client, call, start), calls):
            print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
