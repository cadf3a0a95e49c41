"""``kblockctl execute|get|list|watch|timeline|resolve``."""

from __future__ import annotations

import contextlib
import sys
import uuid
from collections.abc import Iterator, Sequence
from typing import IO, Any

import click

from kblockd.cli import tables, timeline
from kblockd.cli.connection import DaemonAddress, connected
from kblockd.cli.exits import code_of, guarded, interrupted
from kblockd.cli.options import Seconds
from kblockd.cli.output import emit, emit_line, is_json, json_option, plain, show
from kblockd.client import Answer, ApprovalPending, Call
from kblockd.domain.canonical import NotCanonical, parse
from kblockd.domain.envelope import TargetPin
from kblockd.domain.outcome import Finding
from kblockd.domain.states import State

_STATES = [str(state) for state in State]


@click.command()
@click.argument("operation")
@click.option("--environment", "-e", required=True, help="Selects the contract, together with OPERATION.")
@click.option("--target", "-t", required=True, help="Id of the action's target.")
@click.option("--target-type", default="", help="Pin: kind of the target.")
@click.option("--target-version", default="", help="Pin: version of the target.")
@click.option(
    "--args", "-a", "arguments", type=click.File("rb"), help="File with the arguments, a JSON object; - is stdin."
)
@click.option("--args-json", "-j", help="The arguments as text.")
@click.option("--key", help="Caller key. Default: a new one, printed first; give it to repeat the call.")
@click.option("--wait", type=Seconds(0, 86_400), help="Seconds to wait for the end; 0 does not wait.")
@click.option("--approval-wait", type=Seconds(0), help="Seconds to wait for an approval before continuing.")
@click.option("--approval-id", default="", help="Pin: the approval.")
@click.option("--policy-revision", default="", help="Pin: the policy's revision.")
@click.option("--request-timeout", type=Seconds(0, min_open=True), help="Bound: seconds of the exchange.")
@click.option("--maximum-attempts", type=click.IntRange(min=1), default=None, help="Bound: attempts.")
@json_option
@connected
@guarded
def execute(connection: DaemonAddress, /, operation: str, environment: str, **options: Any) -> None:
    """Requests one action and waits for its end. If in doubt, repeat it unchanged with the same --key."""
    if options["key"] is None:
        options["key"] = uuid.uuid4().hex
        click.echo(f"key {options['key']}", err=True)  # before the call, so that an interrupted call can be resumed
    call = _call(operation, environment, options)
    with _resumable(options["key"]), connection.client() as client:
        answer = client.execute(call)
        if isinstance(answer, ApprovalPending) and options["approval_wait"] is not None:
            if not is_json():
                click.echo(f"waiting for approval {plain(answer.approval_id)}", err=True)
            answer = client.wait_for_approval(answer, options["approval_wait"])
    _print(answer)
    sys.exit(code_of(answer))


@click.command()
@click.argument("execution_id", required=False, default="")
@click.option("--key", default="", help="Look it up by its caller key instead.")
@json_option
@connected
@guarded
def get(connection: DaemonAddress, execution_id: str, key: str) -> None:
    """Shows one execution."""
    if bool(execution_id) == bool(key):
        raise click.UsageError("give EXECUTION_ID or --key, and not both")
    with connection.client() as client:
        story = client.get(execution_id=execution_id, caller_key=key)
    if is_json():
        emit(story)
    else:
        show(tables.outcome(story.answer))
    sys.exit(code_of(story.answer))


@click.command("list")
@click.option("--state", "states", multiple=True, type=click.Choice(_STATES), help="Only these; may be repeated.")
@click.option("--limit", type=click.IntRange(1, 100), default=50, show_default=True)
@click.option("--page-token", default="", help="Where the page before ended.")
@json_option
@connected
@guarded
def list_(connection: DaemonAddress, states: Sequence[str], limit: int, page_token: str) -> None:
    """Lists executions, newest first."""
    with connection.client() as client:
        page = client.list(states, page_size=limit, page_token=page_token)
    if is_json():
        emit(page)
        return
    show(*tables.outcomes(page.items))
    if page.next_token:
        click.echo(f"more: --page-token {plain(page.next_token)}", err=True)


@click.command()
@click.argument("execution_id")
@click.option("--after", type=click.IntRange(0), default=0, help="Only records with a greater ledger index.")
@json_option
@connected
@guarded
def watch(connection: DaemonAddress, execution_id: str, after: int) -> None:
    """Prints each durable record of an execution until it is closed."""
    with connection.client() as client:
        for event in client.watch(execution_id, after):
            if is_json():
                emit_line(event)
            else:
                click.echo(plain(timeline.line(event)))


@click.command("timeline")
@click.argument("execution_id")
@json_option
@connected
@guarded
def timeline_(connection: DaemonAddress, execution_id: str) -> None:
    """Shows the stages of an execution with their durations."""
    with connection.client() as client:
        story = client.get(execution_id=execution_id)
    if is_json():
        emit({"execution_id": story.answer.execution_id, "events": story.events})
    else:
        show(timeline.Timeline(story.events))


@click.command()
@click.argument("execution_id")
@click.option("--finding", required=True, type=click.Choice([str(finding) for finding in Finding]))
@click.option("--reason", required=True, help="How you know; stored with the execution.")
@json_option
@connected
@guarded
def resolve(connection: DaemonAddress, execution_id: str, finding: str, reason: str) -> None:
    """Closes a held execution with an operator's finding."""
    with connection.client() as client:
        _print(client.resolve(execution_id, Finding(finding), reason))


@contextlib.contextmanager
def _resumable(key: str) -> Iterator[None]:
    """On Ctrl-C, says that the action may go on and how to resume it."""
    try:
        yield
    except KeyboardInterrupt:
        interrupted(key)


def _call(operation: str, environment: str, options: dict[str, Any]) -> Call:
    return Call.of(
        operation,
        environment,
        target=TargetPin(options["target_type"], options["target"], options["target_version"]),
        arguments=_arguments(options["arguments"], options["args_json"]),
        key=options["key"],
        wait_seconds=options["wait"],
        approval_id=options["approval_id"],
        policy_revision=options["policy_revision"],
        request_timeout=options["request_timeout"],
        maximum_attempts=options["maximum_attempts"] or 0,
    )


def _arguments(file: IO[bytes] | None, text: str | None) -> Any:
    if (file is None) == (text is None):
        raise click.UsageError("give --args FILE or --args-json TEXT, and not both")
    try:
        return parse(file.read() if file is not None else str(text).encode("utf-8", "surrogateescape"))
    except NotCanonical as error:
        raise click.UsageError(f"{'--args' if file is not None else '--args-json'}: {error}") from None


def _print(answer: Answer) -> None:
    if is_json():
        emit(answer)
    else:
        show(tables.outcome(answer))
