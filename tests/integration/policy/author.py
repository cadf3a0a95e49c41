"""A policy author's desk: the shipped library in a folder of one's own, a daemon, and the real commands between."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from click.testing import CliRunner, Result

from kblockd.cli.kblockctl import kblockctl
from kblockd.cli.kblockd import kblockd
from tests.contract.policy.bundles import KeyPair, packed, put, signed
from tests.contract.policy.support import opa_binary
from tests.harness import ROOT, Site
from tests.upstreams.payments import PaymentsServer

RULES: Final = "actions/issue_refund.rego"
TESTS: Final = "actions/issue_refund_test.rego"
RELEASE: Final = KeyPair("release-2026")


@dataclass(frozen=True)
class Desk:
    """``library`` is what the author edits; the daemon looks at ``archive`` and believes ``RELEASE`` alone."""

    site: Site
    engine: str

    @property
    def library(self) -> Path:
        return self.site.folder / "policies"

    @property
    def archive(self) -> Path:
        return self.site.folder / "policy.tar.gz"

    def policy(self, *arguments: object) -> Result:
        """``kblockd policy …`` with the daemon's configuration, so by its engine."""
        command = ["policy", *map(str, arguments), "--config", str(self.site.config)]
        return CliRunner().invoke(kblockd, command, env={"COLUMNS": "200"})

    def draft(self, command: str, *options: object) -> Result:
        """``check``, ``test`` or ``eval`` of the library, which nobody has signed yet."""
        unsigned = ("--draft",) if command == "check" else ()
        return self.policy(command, self.library, *unsigned, *options)

    def document(self, *arguments: object) -> tuple[int, Any]:
        """Exit code and what ``--json`` prints."""
        done = self.policy(*arguments, "--json")
        return done.exit_code, json.loads(done.stdout)

    def edit(self, name: str, old: str, new: str) -> None:
        """One place of one file."""
        file = self.library / name
        text = file.read_text()
        assert text.count(old) == 1, (name, old)
        file.write_text(text.replace(old, new))

    def line(self, name: str, text: str) -> int:
        """Where a text stands that the file has once, counted from 1."""
        before, found, after = (self.library / name).read_text().partition(text)
        assert found, (name, text)
        assert text not in after, (name, text)
        return before.count("\n") + 1

    def pack_by_hand(self) -> None:
        """Signed like any release, without a look at what is in it: the daemon must look by itself."""
        files = [file for file in sorted(self.library.rglob("*")) if file.is_file()]
        content = {str(file.relative_to(self.library)): file.read_bytes() for file in files}
        manifest = b'{"revision":"by-hand","roots":["kblock"]}'
        put(self.archive, packed(signed({".manifest": manifest, **content}, RELEASE)))

    def build(self, revision: str) -> None:
        """As the guide says: ``opa build`` with the release's key, and a rename into place."""
        fresh = self.archive.with_name(".new")
        self.opa(
            *("build", "--bundle", ".", "--revision", revision, "--output", fresh),
            *("--signing-key", self.site.folder / f"{RELEASE.id}.pem", "--signing-alg", "ES256"),
            *("--verification-key-id", RELEASE.id),
        )
        fresh.rename(self.archive)

    def opa(self, *arguments: object) -> str:
        """In the library's folder; raises ``CalledProcessError``."""
        command = [opa_binary(), *map(str, arguments)]
        return subprocess.run(command, cwd=self.library, capture_output=True, text=True, check=True).stdout

    def records(self, type_: str) -> list[Mapping[str, Any]]:
        """Bodies of the ledger's records of a type, in order, as ``kblockctl`` shows them."""
        found: list[dict[str, Any]] = []
        after: int | None = 0
        while after is not None:
            options = ("--socket", str(self.site.socket("operator")), "ledger", "read", "--json", "--from", str(after))
            page = json.loads(CliRunner().invoke(kblockctl, options, catch_exceptions=False).stdout)
            found += [json.loads(row["leaf"]) for row in page["leaves"]]
            after = page["next_index"]
        return [record["body"] for record in found if record.get("type") == type_]


@contextmanager
def desk(engine: str, *, whole: bool) -> Iterator[Desk]:
    """With the shipped library in force as release ``v1``; without ``whole`` only refunds are left of its worked
    examples, which are a second at each of some thirty checks."""
    with Site.make() as site, PaymentsServer.start(site.folder) as payments:
        found = Desk(site, engine)
        shutil.copytree(ROOT / "config" / "policy", found.library)
        if not whole:
            _leave_refunds(found.library)
        _, public = RELEASE.write(site.folder)
        found.build("v1")
        key = {"id": RELEASE.id, "algorithm": RELEASE.algorithm, "file": str(public)}
        policy: dict[str, Any] = {
            "bundle": str(found.archive),
            "verification": {"allow_unsigned": False, "scope": "", "keys": [key]},
        }
        if engine == "opa":
            policy |= {"engine": "opa", "opa": {"command": str(opa_binary()), "run_dir": str(site.folder / "opa")}}
        site.configure(payments.url, daemon={"policy": policy, "development": {"unpinned_tools": True}})
        site.start()
        yield found


def _leave_refunds(library: Path) -> None:
    for file in (library / "actions").iterdir():
        if file.name not in (Path(RULES).name, Path(TESTS).name):
            file.unlink()
    (library / "shared" / "times.rego").unlink()  # of the others alone
    index = library / "actions.rego"
    others = re.compile(r"^\w+ := data\.kblock\.actions\.(?!issue_refund\.).*\n\n?", re.MULTILINE)
    index.write_text(others.sub("", index.read_text()))
