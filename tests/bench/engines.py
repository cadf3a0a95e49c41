"""The policy engines in one run: embedded, an OPA that kblockd supervises, and an OPA that somebody else runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

from tests.bench import variants
from tests.bench.daemon import BenchSite, Subject, measure
from tests.bench.figures import Measured
from tests.bench.servers import Counterparts
from tests.bench.syncs import Syncs
from tests.bench.variants import PLAIN
from tests.contract.policy import remote
from tests.harness import ROOT

OPA: Final = ROOT / ".tools" / "bin" / "opa"


def run(with_: Counterparts) -> list[Measured]:
    """The plain variant under each engine, in turn at every number of callers; the embedded one first."""
    with ExitStack() as stack:
        subjects = [
            stack.enter_context(variants.serving(PLAIN, with_, name="embedded engine")),
            stack.enter_context(_supervised(with_)),
            stack.enter_context(_remote(with_)),
        ]
        return measure(subjects, with_)


@contextmanager
def _supervised(with_: Counterparts) -> Iterator[Subject]:
    with BenchSite.make() as site:
        opa = {"command": str(OPA), "run_dir": str(site.folder / "opa")}
        variants.prepare(site, PLAIN, with_, engine="opa", opa=opa)
        yield _started(site, "OPA, supervised on a Unix socket")


@contextmanager
def _remote(with_: Counterparts) -> Iterator[Subject]:
    with BenchSite.make() as site:
        server = remote.Server(site.folder)
        opa = {"url": server.url, "revisions": str(site.folder / "revisions.jsonl")}
        variants.prepare(site, PLAIN, with_, engine="opa", opa=opa)
        site.command("policy", "check", "--bundle", str(server.file), "--config", str(site.config))
        server.start()
        try:
            subject = _started(site, "OPA, remote on loopback")
            subject.policy = [server.pid]
            yield subject
        finally:
            server.close()


def _started(site: BenchSite, name: str) -> Subject:
    syncs = Syncs(site.folder)
    site.start(environment=syncs.environment)
    return Subject(Measured(name), site, syncs)
