"""Every command of the command line, for tests that each of them must be in."""

from __future__ import annotations

from collections.abc import Iterator

import click

WITH_A_BROKER = {
    "capture": "tests/cluster/test_lying_broker.py",
    "drill observe": "tests/drill/test_live_drill.py",
    "drill recover": "tests/drill/test_live_drill.py",
    "restore apply": "tests/restore/test_live_restore.py",
    "restore rollback": "tests/restore/test_live_restore.py",
    "restore verify": "tests/restore/test_live_restore.py",
}
"""Commands that need a cluster, and where they have one."""


def leaves(command: click.Command) -> Iterator[str]:
    """Names of the commands that do something, such as ``drill predict``."""
    return (name for name, _ in leaf_commands(command))


def leaf_commands(command: click.Command, name: str = "") -> Iterator[tuple[str, click.Command]]:
    """The commands that do something, with their names."""
    if not isinstance(command, click.Group):
        yield name, command
        return
    context = click.Context(command)
    for each in command.list_commands(context):
        found = command.get_command(context, each)
        assert found is not None
        yield from leaf_commands(found, f"{name} {each}".strip())
