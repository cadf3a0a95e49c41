"""No descriptor is closed twice. Between two closes the number may go to a file of the ledger, which then is closed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kblockd.client.answers import Completed
from tests.contract.policy.support import opa_binary
from tests.crash.power.disk import SOURCE, build_shim
from tests.harness import Site, refund
from tests.integration.pipeline.local import order, run_approved
from tests.upstreams.payments import PaymentsServer


def watched(folder: Path) -> tuple[Path, dict[str, str]]:
    """Where the numbers are noted, and the environment of the process to watch."""
    notes = folder / "closed-twice"
    notes.touch()
    shim = build_shim(folder, SOURCE.with_name("descriptors.c"))
    return notes, {"LD_PRELOAD": str(shim), "KBLOCK_DESCRIPTORS": str(notes)}


def test_a_second_close_is_noted(tmp_path: Path) -> None:
    """What the test below relies on."""
    notes, environment = watched(tmp_path)
    program = "import os\nos.close(0)\ntry:\n    os.close(0)\nexcept OSError:\n    pass"
    subprocess.run([sys.executable, "-c", program], env={**os.environ, **environment}, check=True)
    assert notes.read_text() == "0\n"


@pytest.mark.parametrize("engine", ["embedded", "opa"])
def test_a_daemon_closes_each_descriptor_once(payments: PaymentsServer, tmp_path: Path, engine: str) -> None:
    """From its start to its orderly stop, with an effect and a reload of policy; whatever decides."""
    notes, environment = watched(tmp_path)
    with Site.make() as site:
        site.configure(payments.url, daemon={"policy": _policy(site, engine)})
        site.pin()
        site.start(environment=environment)
        mine = order()
        assert isinstance(run_approved(site, refund(mine, key=mine)), Completed)
        rules = site.config.parent / "policy" / "decision.rego"
        rules.write_text(rules.read_text() + "\n# another revision\n")
        site.command("policy", "reload", "--config", str(site.config))
        assert site.stop() == 0
    assert notes.read_text() == ""


def _policy(site: Site, engine: str) -> dict[str, Any]:
    if engine == "embedded":
        return {"engine": "embedded"}
    return {"engine": "opa", "opa": {"command": str(opa_binary()), "run_dir": str(site.folder / "opa")}}
