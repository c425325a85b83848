"""How long the brokers keep things, by options and by what a capture has."""

from __future__ import annotations

import click

from coordinator_core.cli.options import Whole
from coordinator_core.lifecycle.compact_plan import DAY_MS
from coordinator_core.rules.topics import Topics

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


def configured_retention_ms(topics: Topics | None) -> int | None:
    """``offsets.retention.minutes`` of the brokers, where the topics are from a capture that has it."""
    found = None if topics is None else topics.offsets_topic.thresholds.get("offsets_retention_ms")
    return None if found is None else int(found)
