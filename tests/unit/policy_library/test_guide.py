"""The guide's example is one that works: what a newcomer copies loads in both engines, and its tests hold."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

from kblockd.policy.bundles.bundle import read
from kblockd.policy.embedded.engine import check
from tests.contract.policy.support import PATIENT, opa_binary
from tests.unit.policy_library.mutants import dies, mutants
from tests.unit.policy_library.test_mutants import FOLDER, without

GUIDE = (FOLDER / "README.md").read_text()
FILE, LINES, TEST = re.findall(r"^```rego\n(.*?)^```$", GUIDE, re.DOTALL | re.MULTILINE)[-3:]
NAME = "actions/unlock_account.rego"


def followed(folder: Path) -> Path:
    """The library after the four steps, but for the contract."""
    made = Path(shutil.copytree(FOLDER, folder / "policy"))
    (made / NAME).write_text(FILE)
    (made / "actions/unlock_account_test.rego").write_text(TEST)
    with (made / "actions.rego").open("a") as index:
        index.write("\n" + LINES)
    return made


async def test_r072_whoever_follows_the_guide_has_a_policy_that_works(tmp_path: Path) -> None:
    """R072: the checks of an activation, and OPA's own; without the tests' file there are four tests fewer."""
    made = followed(tmp_path)
    with_guide = (await check(read(made), PATIENT)).tests
    (made / "actions/unlock_account_test.rego").unlink()
    assert with_guide == (await check(read(made), PATIENT)).tests + 4
    followed_again = followed(tmp_path / "again")
    for command in (["check", "--strict"], ["test"]):
        done = subprocess.run([opa_binary(), *command, str(followed_again)], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_tests_of_the_guide_miss_no_mutant() -> None:
    """It shows how to test, so it has to be tested as it says."""
    engine = without("actions.rego")
    index = (FOLDER / "actions.rego").read_text() + "\n" + LINES
    engine.add_policy("actions.rego", index)
    engine.add_policy("actions/unlock_account_test.rego", TEST)
    tests = [f"data.kblock.actions.unlock_account_test.{name}" for name in re.findall(r"^test_\w+", TEST, re.MULTILINE)]
    alive = [
        str(m) for m in mutants(NAME, FILE) if not dies(engine, tests, NAME, m) and (m.was, m.now) != ("", "mutant")
    ]
    assert alive == []
