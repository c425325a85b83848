"""``regroup restore``."""

from __future__ import annotations

import click

from coordinator_core.cli.lazy import LazyGroup, Place

_COMMANDS = {
    "plan": Place("restore_plan", "Plan the offsets to write, and the consequences; write nothing."),
    "apply": Place("restore_apply", "Carry out a plan, or go on with it."),
    "verify": Place("restore_apply", "Prove from the log that exactly the plan was written."),
    "rollback": Place("restore_apply", "Plan the way back of an apply."),
}


@click.group("restore", cls=LazyGroup, places=_COMMANDS)
def restore_command() -> None:
    """Committed offsets put back: planned, applied, proved, undone."""
