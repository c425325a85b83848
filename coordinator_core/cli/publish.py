"""A run published by this process, for commands that replay a snapshot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from coordinator_core.cli.options import ReplayOptions
from coordinator_core.cli.snapshot import warn_about_snapshot
from coordinator_core.runs.finding import find_snapshot
from coordinator_core.runs.local import replay_to_run
from coordinator_core.runs.place import RunPlace

if TYPE_CHECKING:
    from coordinator_core.runs.publish import Manifest


def publish_locally(paths: Sequence[str], place: RunPlace, options: ReplayOptions) -> Manifest:
    """Replay the snapshot at ``paths`` into a run at ``place``; its manifest."""
    snapshot = find_snapshot(paths)
    warn_about_snapshot(snapshot)
    return replay_to_run(
        snapshot,
        place,
        profile=options.profile,
        now_ms=options.now_ms,
        on_damage=options.on_damage,
        offsets_topic_num_partitions=options.offsets_topic_num_partitions,
        cache=options.fold_cache,
    )
