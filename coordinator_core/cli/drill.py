"""``regroup drill``."""

from __future__ import annotations

import click

from coordinator_core.cli.lazy import LazyGroup, Place

_COMMANDS = {
    "predict": Place(
        "coordinator_core.cli.drill_predict:predict_command",
        "Say what losing brokers, or a rolling restart, does to every group.",
    ),
    "compare": Place(
        "coordinator_core.cli.drill_compare:compare_command",
        "Compare a prediction with what was observed.",
    ),
    "observe": Place(
        "coordinator_core.cli.drill_observe:observe_command",
        "Do it on a real cluster, with probes and recovery.",
    ),
    "recover": Place(
        "coordinator_core.cli.drill_observe:recover_command",
        "Run the recover command of a drill that was cut off.",
    ),
}


@click.group("drill", cls=LazyGroup, places=_COMMANDS)
def drill_command() -> None:
    """Failover drills: say what losing a broker does to every group, do it, compare."""
