"""Groups of commands that import a command when it is run, so that help loads neither kernels nor Arrow."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, NamedTuple

import click

from coordinator_core.cli.outputs import refusing_inputs


class Place(NamedTuple):
    """Module of ``coordinator_core.cli`` with ``<name>_command``, and the line of the command in the help."""

    module: str
    summary: str


class LazyGroup(click.Group):
    """A group whose commands are in ``places``, by name."""

    def __init__(self, *args: Any, places: Mapping[str, Place], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._places = places

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(self._places)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._places:
            return None
        module = import_module(f"coordinator_core.cli.{self._places[cmd_name].module}")
        command: click.Command = getattr(module, f"{cmd_name.replace('-', '_')}_command")
        return refusing_inputs(command)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, self._places[name].summary) for name in self.list_commands(ctx)])
