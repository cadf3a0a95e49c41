"""Configuration: YAML 1.2 files to one frozen ``Configuration``, or every fault at once with file, line and key.

    document       YAML to plain values, and where each key stands
    model          the keys of kblockd.yaml (contracts: kblockd.domain.contract; upstreams: kblockd.upstream.model)
    sources        the three kinds of files, each with its faults
    crosscheck     what must hold between files; clocks: C3 over all contracts
    ownership      nobody but root and the daemon's user may write what decides
    groups         the daemon's account, and the groups that its sockets are given to
    opa            policy.opa: which keys go together
    verification   whose signatures on a policy bundle count
    load           all of it together
    configuration  the result
    fault          one fault, and the error that refuses the start

The keys are explained in ``config/README.md``. May not live here: anything that opens a socket, a store or an
upstream, defaults that a file does not show, secrets.
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
