"""``kblockd policy``: each command has a module of its own and is registered here."""

from __future__ import annotations

import click

from kblockd.cli.policy_candidate import candidate
from kblockd.cli.policy_check import check, schema
from kblockd.cli.policy_diff import diff_
from kblockd.cli.policy_eval import eval_
from kblockd.cli.policy_standing import reload, status
from kblockd.cli.policy_test import test_


@click.group()
def policy() -> None:
    """The policy that decides."""


for _command in (check, test_, eval_, diff_, candidate, schema, reload, status):
    policy.add_command(_command)
