"""Commits put together to versions: consecutive ones of one writer that say nothing new.

``coordinator_core.kernels.versions`` does the same without an object for each commit.
"""

from __future__ import annotations

from coordinator_core.history.model import End, EndKind, Version

BORING_STEPS = 50
SMALL_STEP = 1000
FEW_COMMITS = 3
"""A step that is larger than this, and than so many times the largest one before, begins a new version once there are
a few commits."""


def add_version(versions: list[Version], version: Version) -> None:
    """Add a commit to the ``versions`` of its offset key: to the last one where it goes on, else as one of its own,
    which ends the last one."""
    previous = versions[-1] if versions else None
    if previous is not None and previous.end is None:
        if previous.last.committed_offset == version.last.committed_offset:
            version.still, version.stood = previous.still, previous.stood + 1
            version.retold = previous.retold + (version.told != previous.told)
        if _goes_on(previous, version):
            previous.largest_step = max(
                previous.largest_step, version.first.committed_offset - previous.last.committed_offset
            )
            if previous.second is None:
                previous.second = version.first.committed_offset
            previous.last, previous.last_place, previous.missing = version.last, version.place, version.missing
            previous.still, previous.stood = version.still, version.stood
            previous.told, previous.retold = version.told, version.retold
            previous.metadata = version.metadata
            previous.commits += 1
            return
        previous.end = End(EndKind.NEWER_VALUE, version.valid_from)
    versions.append(version)


def _goes_on(previous: Version, version: Version) -> bool:
    """Whether a commit says nothing new: the same writer went on, by no unusual step."""
    step = version.first.committed_offset - previous.last.committed_offset
    usual = max(SMALL_STEP, BORING_STEPS * previous.largest_step)
    return (
        step >= 0
        and (step <= usual or previous.commits < FEW_COMMITS)
        and previous.generation == version.generation
        and previous.had_members == version.had_members
        and (previous.member is None) == (version.member is None)
        and (version.member is None or previous.member is None or previous.member.member_id == version.member.member_id)
        and (previous.last.producer_id is None) == (version.last.producer_id is None)
        and (previous.last.leader_epoch is None) == (version.last.leader_epoch is None)
        and previous.last.expire_timestamp_ms == version.last.expire_timestamp_ms
    )
