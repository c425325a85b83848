"""Truth about the groups of a generated log: the terms that the generator and the checks share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import NamedTuple

NOTHING: Mapping[int, int] = MappingProxyType({})


class Kind(IntEnum):
    """Kinds of groups. ``SIMPLE`` is a classic one without protocol type and members: it has only offsets, or
    its first member is still joining (``ClassicGroup.isSimpleGroup``)."""

    ABSENT = 0
    SIMPLE = 1
    CLASSIC = 2
    CONSUMER = 3


class State(IntEnum):
    """States of KIP-848 members as a record of type 8 has them."""

    STABLE = 0
    UNREVOKED = 1
    UNRELEASED = 2


class Member(NamedTuple):
    """A member of a group.

    A partition is named by its place among the offset keys of the group. ``assigned`` and ``revoking`` give the
    epoch in which each was assigned, to a classic member the generation. ``target`` is ``None`` for want of a
    record of type 7; a classic member has none, and neither epochs nor a state.
    """

    member_id: str
    instance_id: str | None = None
    epoch: int = 0
    previous_epoch: int = 0
    state: State = State.STABLE
    assigned: Mapping[int, int] = NOTHING
    revoking: Mapping[int, int] = NOTHING
    target: frozenset[int] | None = None


class GroupTruth(NamedTuple):
    """A group after one of its batches: ``epoch`` is the generation of a classic group.

    ``members`` are ``None`` where only their number is known.
    """

    kind: Kind
    epoch: int
    assignment_epoch: int
    member_count: int
    members: tuple[Member, ...] | None = None

    @classmethod
    def of(cls, kind: Kind, members: Iterable[Member], epoch: int, assignment_epoch: int = -1) -> GroupTruth:
        each = tuple(members)
        return cls(kind, epoch, assignment_epoch, len(each), each)


ABSENT = GroupTruth(Kind.ABSENT, -1, -1, -1)
