"""Options that say how long the brokers keep things."""

from __future__ import annotations

from collections.abc import Sequence

import click

from coordinator_core.cli.options import Whole, note
from coordinator_core.cli.source import found_beside
from coordinator_core.durations import DAY_MS, span
from coordinator_core.releases import Profile
from coordinator_core.rules.topics import configured_retention_ms, read_topics

offsets_retention_option = click.option(
    "--offsets-retention-ms",
    type=Whole(min=1),
    metavar="MS",
    help="offsets.retention.minutes of the brokers, in milliseconds (default: that of a capture, else of the release).",
)
delete_retention_option = click.option(
    "--delete-retention-ms",
    type=Whole(min=0),
    default=DAY_MS,
    show_default=True,
    metavar="MS",
    help="delete.retention.ms of the topic: how long tombstones and end markers stay.",
)


def retention_ms(given: int | None, paths: Sequence[str], profile: Profile) -> int:
    """:func:`given_or_captured_ms`, else the default of the release."""
    return given_or_captured_ms(given, paths) or profile.expiry.default_offsets_retention_ms


def given_or_captured_ms(given: int | None, paths: Sequence[str]) -> int | None:
    """``offsets.retention.minutes`` in milliseconds: as ``given``, else as a capture at ``paths`` has it; standard
    error names that one."""
    topics = None if given else found_beside(paths).topics
    found = None if topics is None else configured_retention_ms(read_topics(topics))
    if found is not None:
        note(f"regroup: offsets.retention.minutes of the brokers is {span(found)}, as the capture has it")
    return given or found
