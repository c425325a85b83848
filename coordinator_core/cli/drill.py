"""``regroup drill``."""

from __future__ import annotations

import click

from coordinator_core.cli.lazy import LazyGroup

_COMMANDS = {
    "predict": "coordinator_core.cli.drill_predict:predict_command",
    "compare": "coordinator_core.cli.drill_compare:compare_command",
    "observe": "coordinator_core.cli.drill_observe:observe_command",
    "recover": "coordinator_core.cli.drill_observe:recover_command",
}


@click.group("drill", cls=LazyGroup, places=_COMMANDS)
def drill_command() -> None:
    """Failover drills: say what losing a broker does to every group, do it, compare."""
