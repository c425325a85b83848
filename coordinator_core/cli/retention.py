"""Options that say how long the brokers keep things."""

from __future__ import annotations

import click

from coordinator_core.cli.options import Whole
from coordinator_core.durations import DAY_MS

offsets_retention_option = click.option(
    "--offsets-retention-ms",
    type=Whole(min=1),
    metavar="MS",
    help="offsets.retention.minutes of the brokers, in milliseconds (default: that of the release).",
)
delete_retention_option = click.option(
    "--delete-retention-ms",
    type=Whole(min=1),
    default=DAY_MS,
    show_default=True,
    metavar="MS",
    help="delete.retention.ms of the topic: how long tombstones and end markers stay.",
)
