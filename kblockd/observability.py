"""Tracing as configured: sampling, and the names that may appear in spans."""

from __future__ import annotations

import os
from importlib.metadata import version

from kblockd.config import Configuration
from kblockd.domain.ids import Ids
from kblockd.telemetry import contract as spans
from kblockd.telemetry.sampling import Sampling
from kblockd.telemetry.tracing import Tracing, open_tracing


def open_traces(configuration: Configuration, ids: Ids) -> Tracing:
    """Raises ValueError for a collector address that cannot be used."""
    telemetry = configuration.telemetry
    sampling = Sampling(telemetry.sample_ratio, telemetry.trust_parent_sampling, os.urandom(32))
    return open_tracing(
        telemetry.otlp,
        sampling,
        ids,
        instance=configuration.instance,
        version=version("kblockd"),
        configured=_vocabulary(configuration),
    )


def _vocabulary(configuration: Configuration) -> dict[str, set[str]]:
    """The configured names, by the attribute that may hold them."""
    contracts = configuration.contracts.values()
    tools = {contract.tool.name for contract in contracts}
    for contract in contracts:
        tools |= {read.tool for read in (contract.reads.snapshot, contract.reads.verify) if read is not None}
        tools |= {lookup.tool for lookup in contract.lookup}
    return {
        spans.AGENT: set(configuration.principals),
        spans.OPERATION: {contract.operation for contract in contracts},
        spans.ENVIRONMENT: {contract.environment for contract in contracts},
        spans.UPSTREAM: set(configuration.upstreams),
        spans.TOOL: tools,
    }
