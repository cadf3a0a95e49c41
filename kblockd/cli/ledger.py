"""``kblockctl ledger read|checkpoint|proof`` and ``kblockctl receipt get|verify``."""

from __future__ import annotations

import base64
import json
import sys
from pathlib import Path
from typing import IO, NoReturn

import click
from rich.table import Table

from kblockd.cli.connection import DaemonAddress, connected
from kblockd.cli.exits import ERROR, OK, UNFINISHED, WITHOUT_EFFECT, code_of, guarded, say
from kblockd.cli.output import cell, emit, is_json, json_option, plain, show
from kblockd.client import Answer
from kblockd.domain.ledger import envelope
from kblockd.evidence import verify_offline

RESULT_FILE = "result.dsse.json"
RECEIPT_FILE = "receipt.dsse.json"
PROOF_FILE = "receipt.tlog-proof"
_EXITS = {verify_offline.VERIFIED: OK, verify_offline.NOT_LOGGED: UNFINISHED, verify_offline.REFUSED: ERROR}


@click.group()
def ledger() -> None:
    """Records and proofs."""


@ledger.command()
@click.argument("execution_id", required=False, default="")
@click.option("--from", "from_index", type=click.IntRange(0), default=0, help="First index.")
@click.option("--limit", type=click.IntRange(1, 1000), default=100, show_default=True)
@json_option
@connected
@guarded
def read(connection: DaemonAddress, execution_id: str, from_index: int, limit: int) -> None:
    """Shows records from an index on, or of one execution."""
    with connection.client() as client:
        page = client.read_ledger(from_index, limit, execution_id)
    if is_json():
        leaves = [{"index": index, "leaf": leaf.decode("utf-8", "backslashreplace")} for index, leaf in page.leaves]
        emit({"leaves": leaves, "next_index": page.next_index})
        return
    table = Table("index", "at", "type", "stage", "execution", box=None, pad_edge=False)
    for index, leaf in page.leaves:
        record = envelope(leaf)
        stage = "" if record.stage is None else str(record.stage)
        table.add_row(str(index), cell(record.at), cell(str(record.type)), stage, cell(record.execution))
    show(table)
    if page.next_index is not None:
        click.echo(f"more: --from {page.next_index}", err=True)


@ledger.command(short_help="Prints the newest signed tree head, to keep.")
@json_option
@connected
@guarded
def checkpoint(connection: DaemonAddress) -> None:
    """Prints the newest signed tree head: keep it, and nothing before it can be rewritten unseen."""
    with connection.client() as client:
        note = client.checkpoint()
    _note("checkpoint", note)


@ledger.command(short_help="Prints an inclusion or consistency proof.")
@click.argument("index", type=click.IntRange(0), required=False)
@click.option("--old-size", type=click.IntRange(1), help="A consistency proof from this size instead.")
@click.option("--new-size", type=click.IntRange(1), help="To this size; absent: the newest checkpoint's.")
@json_option
@connected
@guarded
def proof(connection: DaemonAddress, index: int | None, old_size: int | None, new_size: int | None) -> None:
    """Prints the proof that record INDEX is in the ledger, or that the ledger only grew since --old-size."""
    if (index is None) == (old_size is None):
        raise click.UsageError("give INDEX or --old-size, and not both")
    with connection.client() as client:
        if index is not None:
            _note("tlog_proof", client.inclusion_proof(index))
            return
        consistency = client.consistency_proof(old_size or 0, new_size or 0)
    hashes = [base64.b64encode(node).decode() for node in consistency.hashes]
    if is_json():
        emit({"hashes": hashes, "checkpoint": consistency.checkpoint})
    else:
        click.echo("\n".join(hashes))


@click.group()
def receipt() -> None:
    """Receipts: signed, logged, and checked without the daemon."""


@receipt.command("get", short_help="Prints or writes result, receipt and proof.")
@click.argument("execution_id")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), help="Folder to write the files to.")
@json_option
@connected
@guarded
def get(connection: DaemonAddress, execution_id: str, out: Path | None) -> None:
    """Prints the receipt of a closed execution, or writes RESULT, receipt and proof as files."""
    result, signed, tlog_proof = _from_daemon(connection, execution_id)
    if out is not None:
        _write(out, {RESULT_FILE: result, RECEIPT_FILE: signed, PROOF_FILE: tlog_proof})
    if is_json():
        emit({"result_dsse": _json(result), "receipt_dsse": _json(signed), "proof": tlog_proof})
    elif out is None:
        click.echo(json.dumps(_json(signed), indent=2))
        click.echo(_lines(tlog_proof.decode()))


@receipt.command("verify", short_help="Verifies against a pinned root key.")
@click.argument("execution_id", required=False)
@click.option(
    "--dir", "folder", type=click.Path(exists=True, file_okay=False, path_type=Path), help="Files of receipt get."
)
@click.option("--root", required=True, type=click.File("rb"), help="The pinned public root key, PEM.")
@click.option("--keyset", required=True, type=click.File("rb"), help="The key set, DSSE.")
@click.option("--action", help="The action digest that is expected.")
@click.option("--state", type=click.Choice(["succeeded", "failed"]), help="The state that is expected.")
@json_option
@click.pass_context
@guarded
def verify(
    context: click.Context,
    execution_id: str | None,
    folder: Path | None,
    root: IO[bytes],
    keyset: IO[bytes],
    action: str | None,
    state: str | None,
) -> None:
    """Verifies RESULT and receipt of EXECUTION_ID, or of the files in --dir, against a pinned root key."""
    if (execution_id is None) == (folder is None):
        raise click.UsageError("give EXECUTION_ID or --dir, and not both")
    result, signed, tlog_proof = (
        _from_folder(folder) if folder else _from_daemon(context.find_object(DaemonAddress), str(execution_id))
    )
    verdict = verify_offline.verify(
        result=result,
        receipt=signed,
        proof=tlog_proof or None,
        root=root.read(),
        keyset=keyset.read(),
        action=action,
        state=state,
    )
    if is_json():
        emit(verdict.document())
    else:
        click.echo(plain(f"{verdict.verdict}: {verdict.reason}"))
    sys.exit(_EXITS[verdict.verdict])


def _from_daemon(connection: DaemonAddress | None, execution_id: str) -> tuple[bytes, bytes, bytes]:
    """From the execution itself, so that reading the ledger need not be permitted."""
    if connection is None:
        raise click.UsageError("no connection")
    with connection.client() as client:
        answer = client.get(execution_id=execution_id).answer
    if not answer.receipt_dsse:
        _no_receipt(answer)
    return answer.result_dsse, answer.receipt_dsse, answer.receipt_proof.encode()


def _no_receipt(answer: Answer) -> NoReturn:
    """Says why there is no receipt and whether there will be one: an execution that ended before it ran gets none."""
    why = answer.no_receipt_reason or f"the execution is {answer.state}"
    code = code_of(answer)
    ended = code == WITHOUT_EFFECT and not answer.consumed
    say(
        f"there is no receipt{', and there will be none' if ended else ' yet'}: {why}",
        {"error": "NO_RECEIPT", "message": why, "state": answer.state, "execution_id": answer.execution_id},
    )
    sys.exit(WITHOUT_EFFECT if ended else UNFINISHED)


def _from_folder(folder: Path) -> tuple[bytes, bytes, bytes]:
    proof_file = folder / PROOF_FILE
    proof_bytes = proof_file.read_bytes() if proof_file.exists() else b""
    return (folder / RESULT_FILE).read_bytes(), (folder / RECEIPT_FILE).read_bytes(), proof_bytes


def _write(out: Path, files: dict[str, bytes]) -> None:
    out.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        if data:
            (out / name).write_bytes(data)
            click.echo(f"wrote {out / name}", err=True)


def _note(name: str, text: str) -> None:
    if is_json():
        emit({name: text})
    else:
        click.echo(_lines(text))


def _lines(text: str) -> str:
    return "\n".join(map(plain, text.split("\n"))).rstrip("\n")


def _json(data: bytes) -> object:
    return json.loads(data) if data else None
