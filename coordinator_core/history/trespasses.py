"""Requests of one member with partitions that another one owns by then."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from coordinator_core.groups.model import OffsetKey
from coordinator_core.history.model import Member, Place, Trespass, Version


class Commit(NamedTuple):
    """A commit of a batch: the partition's owner, its values, and of them the one before and the new one."""

    key: OffsetKey
    place: Place
    owner: Member
    generation: int | None
    versions: Sequence[Version]
    held: int | None
    committed: int


def trespasses(commits: Sequence[Commit], *, is_request: bool) -> list[Trespass]:
    """Partitions in a request of one member that another owns, and that the first one had in an earlier generation.

    ``is_request``: ``commits`` are of one request for sure. Else two members may have committed at the same time, and
    only a step back counts, to what the first one had committed as the owner.
    """
    by_id = {commit.owner.member_id: commit.owner for commit in commits}
    found = []
    for commit in commits if len(by_id) > 1 else ():
        generation = commit.generation
        others = (
            (by, version)
            for version in reversed(commit.versions)
            if version.member is not None
            and (by := by_id.get(version.member.member_id)) is not None
            and by.member_id != commit.owner.member_id
        )
        by, earlier = next(others, (commit.owner, None))
        if earlier is None or earlier.generation is None or generation is None or earlier.generation >= generation:
            continue
        goes_back = commit.held is not None and commit.committed < commit.held
        if is_request or (goes_back and commit.committed == earlier.last.committed_offset):
            values = commit.held, commit.committed
            found.append(Trespass(commit.key, commit.place, by, commit.owner, generation, earlier.generation, *values))
    # A request is of one member: where two had lost something to each other, nothing tells which one sent it.
    return found if len({one.by.member_id for one in found}) == 1 else []
