"""Configuration: YAML 1.2 files to one frozen ``Configuration``, or all faults at once with file, line and key.

    document       YAML to plain values with the place of each key
    model          the keys of kblockd.yaml (contracts: kblockd.domain.contract; upstreams: kblockd.upstream.model)
    sources        the three kinds of files, each with its faults
    crosscheck     constraints between files; clocks: C3 over all contracts
    ownership      only root and the daemon's user may write files that affect decisions
    groups         the daemon's account and the groups of its sockets
    opa            policy.opa: which keys go together
    verification   whose signatures on a policy bundle count
    load           reads and checks everything
    configuration  the result
    fault          one fault, and the error that refuses the start

``config/README.md`` explains the keys. May not live here: anything that opens a socket, a store or an upstream,
defaults that no file shows, secrets.
"""

from kblockd.config.configuration import Configuration, Listener, Loopback, PolicySettings, TelemetrySettings
from kblockd.config.fault import ConfigurationError, ConfigurationFault, Place
from kblockd.config.groups import Account
from kblockd.config.load import load

__all__ = [
    "Account",
    "Configuration",
    "ConfigurationError",
    "ConfigurationFault",
    "Listener",
    "Loopback",
    "Place",
    "PolicySettings",
    "TelemetrySettings",
    "load",
]
