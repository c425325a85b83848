"""``regroup drill``."""

from __future__ import annotations

import click

from coordinator_core.cli.lazy import LazyGroup, Place

_COMMANDS = {
    "predict": Place(
        "drill_predict", "Predict the effects of losing brokers, or of a rolling restart, on every group."
    ),
    "compare": Place("drill_compare", "Compare a prediction with an observed drill."),
    "observe": Place("drill_observe", "Do it on a real cluster, with probes and recovery."),
    "recover": Place("drill_observe", "Run the recover command of a drill that was cut off."),
}


@click.group("drill", cls=LazyGroup, places=_COMMANDS)
def drill_command() -> None:
    """Failover drills: say what losing a broker does to every group, do it, compare."""
