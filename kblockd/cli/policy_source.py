"""The bundle and the engine of a ``kblockd policy`` command."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeVar

import click
from click.core import ParameterSource

from kblockd import decision_point
from kblockd.cli.options import config_option
from kblockd.config import PolicySettings, load
from kblockd.config.configuration import RemoteOpa, SupervisedOpa
from kblockd.policy.bundles.bundle import Bundle
from kblockd.policy.bundles.signatures import Trust, Unsigned

F = TypeVar("F", bound=Callable[..., Any])
ENGINES: Final = ("embedded", "opa")
_SECONDS: Final = 5.0
_MEMORY_MIB: Final = 512


@dataclass(frozen=True, slots=True)
class Choice:
    """The shared options; ``path`` and ``engine`` are None for the configured ones."""

    path: Path | None
    config: Path
    engine: str | None
    program: Path | None

    def settings(self) -> PolicySettings:
        """The configured settings; without a configuration (a PATH on a developer's machine) nothing needs a signature.

        Raises ``ConfigurationError``, or ``click.UsageError`` for an engine that is not available.
        """
        if self._configured():
            return self._with_engine(load(self.config, check_pins=False).policy)
        trust = Trust({}, "", Unsigned.ANYTHING)
        return self._with_engine(PolicySettings(None, self.path or Path(), trust, _SECONDS, 1, _MEMORY_MIB))

    def read(self, settings: PolicySettings) -> Bundle:
        """The bundle, verified by the settings; raises ``BundleRefused``."""
        return decision_point.read(settings, self.path)

    def draft(self, settings: PolicySettings) -> Bundle:
        """A bundle that will not come into force, so it need not be signed; raises ``BundleRefused``."""
        return decision_point.draft(settings, self.path or settings.bundle)

    def _configured(self) -> bool:
        source = click.get_current_context().get_parameter_source("config")
        return self.path is None or source is not ParameterSource.DEFAULT or self.config.exists()

    def _with_engine(self, settings: PolicySettings) -> PolicySettings:
        if self.engine == "embedded":
            return replace(settings, opa=None)
        if self.engine is None and self.program is None:
            return settings
        program = self.program or (settings.opa.command if settings.opa else None)
        if program is None:
            raise click.UsageError("--engine opa needs an OPA binary: give --opa PROGRAM, or policy.opa.command")
        if isinstance(settings.opa, RemoteOpa):
            return replace(settings, opa=replace(settings.opa, command=program))
        return replace(settings, opa=SupervisedOpa(program, Path()))


def source_options(command: F) -> F:
    """Adds ``[PATH] --config --engine --opa``, passed to the command as ``choice``."""

    @functools.wraps(command)
    def chosen(
        *args: Any, path: Path | None, config: Path, engine: str | None, program: Path | None, **kwargs: Any
    ) -> Any:
        return command(*args, choice=Choice(path, config, engine, program), **kwargs)

    decorated: Any = chosen
    for add in (
        click.option(
            "--opa",
            "program",
            type=click.Path(exists=True, dir_okay=False, resolve_path=True, path_type=Path),
            envvar="KBLOCKD_OPA",
            help="The OPA binary [KBLOCKD_OPA]; without it policy.opa.command.",
        ),
        click.option("--engine", type=click.Choice(ENGINES), help="Another engine than the configured one."),
        config_option,
        click.argument("path", type=click.Path(exists=True, path_type=Path), required=False),
    ):
        decorated = add(decorated)
    return decorated  # type: ignore[no-any-return]  # click's decorators keep the type


def checked(settings: PolicySettings) -> Bundle:
    """The configured bundle after all checks of a reload; raises ``BundleRefused``."""
    return asyncio.run(decision_point.check(settings, decision_point.read(settings)))
