"""The variants of one run: each a fresh daemon over the same upstream."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.bench.daemon import BenchSite, Subject, measure
from tests.bench.figures import Measured
from tests.bench.profile import Profile
from tests.bench.servers import Counterparts, Server
from tests.bench.syncs import Syncs


@dataclass(frozen=True, slots=True)
class Variant:
    """How the effect is made, and whether an independent read proves it."""

    name: str
    adapter: str
    verified: bool

    def url(self, server: Server) -> str:
        """Where the adapter finds the upstream."""
        return f"{server.url}/mcp" if self.adapter == "mcp" else server.url


VARIANTS: Final = {
    "plain": Variant("plain: HTTP, no verification read", "http", False),
    "verified": Variant("verified: HTTP, with a verification read", "http", True),
    "mcp": Variant("mcp: MCP over Streamable HTTP, no verification read", "mcp", False),
}
PLAIN: Final = VARIANTS["plain"]


@contextmanager
def serving(
    variant: Variant,
    with_: Counterparts,
    *,
    name: str = "",
    profile: Path | None = None,
    profiler: str = BenchSite.profiler,
    **policy: Any,
) -> Iterator[Subject]:
    """A fresh daemon that serves; ``policy`` goes over what the shipped configuration says of it."""
    with BenchSite.make() as site:
        site.profile, site.profiler = profile, profiler
        prepare(site, variant, with_, **policy)
        syncs = Syncs(site.folder)
        site.start(environment=syncs.environment)
        yield Subject(Measured(name or variant.name), site, syncs)


def prepare(site: BenchSite, variant: Variant, with_: Counterparts, **policy: Any) -> None:
    """Writes its configuration."""
    site.prepare(variant.adapter, variant.url(with_.upstream), with_.rpc, verified=variant.verified, policy=policy)


def run(variant: Variant, with_: Counterparts) -> Measured:
    """All numbers of callers."""
    with serving(variant, with_) as subject:
        return measure([subject], with_)[0]


def profiled(variant: Variant, with_: Counterparts, target: Path) -> tuple[Profile, int]:
    """The loop under a profiler at the last number of callers; the profile and how many executions it saw."""
    number = with_.callers[-1]
    with serving(variant, with_, profile=target) as subject:
        subject.load(with_, number)
    return Profile.read(target), subject.measured.figures[number].seen.done
