"""``regroup restore``."""

from __future__ import annotations

import click

from coordinator_core.cli.lazy import LazyGroup, Place

_COMMANDS = {
    "plan": Place(
        "coordinator_core.cli.restore_plan:plan_command",
        "Say which offsets would be written where, and what follows; write nothing.",
    ),
    "apply": Place(
        "coordinator_core.cli.restore_apply:apply_command",
        "Carry out a plan, or go on with it.",
    ),
    "verify": Place(
        "coordinator_core.cli.restore_apply:verify_command",
        "Prove from the log that exactly the plan was written.",
    ),
    "rollback": Place(
        "coordinator_core.cli.restore_apply:rollback_command",
        "Plan the way back of an apply.",
    ),
}


@click.group("restore", cls=LazyGroup, places=_COMMANDS)
def restore_command() -> None:
    """Committed offsets put back: planned, applied, proved, undone."""
