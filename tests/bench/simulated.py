"""Common parts of simulated groups: records that a request makes the coordinator write, and clients."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Iterator, Sequence
from random import Random
from typing import NamedTuple, Protocol

from tests.bench.group_bytes import Record
from tests.bench.group_truth import GroupTruth

LONGEST_PAUSE_MS = 600
"""Between two requests of a group in a rebalance."""


class Step(NamedTuple):
    """Records that the coordinator writes for one request, and the time of the group's next one.

    Without records nothing is written. ``ends`` is the end of the group: all of them are tombstones, and its
    offsets have theirs before them.
    """

    records: Sequence[Record]
    next_ms: int
    ends: bool = False


class SimulatedGroup(Protocol):
    """A group in a coordinator. The owner sets the clock before each step."""

    now_ms: int

    @property
    def truth(self) -> GroupTruth:
        """The group once all of its steps are written."""

    def rebalance(self) -> Iterator[Step]:
        """Requests of one rebalance, or of the creation or the end of the group."""


class Clients:
    """Clients of one group: their addresses and ids."""

    def __init__(self, group_id: str, random: Random) -> None:
        self.is_static = random.random() < 0.3
        """Whether its members have group instance ids."""
        self._random = random
        self._client_id = f"{group_id[-20:]}-client"
        self._instances = 0

    def host(self) -> str:
        address = self._random.randrange(4 << 16)
        return f"/10.{address >> 16}.{address >> 8 & 255}.{address & 255}"

    def client_id(self) -> str:
        return f"{self._client_id}-{self._random.randrange(1, 10)}"

    def new_instance_id(self) -> str | None:
        """A group instance id that no member had before, if members have one."""
        if not self.is_static:
            return None
        self._instances += 1
        return f"{self._client_id}-{self._instances}"

    def chance(self, share: float) -> bool:
        return self._random.random() < share

    def pause_ms(self) -> int:
        return self._random.randrange(5, LONGEST_PAUSE_MS)

    def classic_member_id(self, client_id: str, instance_id: str | None) -> str:
        """Member id as the coordinator makes it."""
        number = uuid.UUID(bytes=self._random.randbytes(16), version=4)
        return f"{client_id if instance_id is None else instance_id}-{number}"

    def consumer_member_id(self) -> str:
        """Member id as a client of KIP-848 makes it: a ``Uuid``, which never begins with a dash."""
        text = base64.urlsafe_b64encode(self._random.randbytes(16))[:22].decode()
        return text if text[0] != "-" else "A" + text[1:]


def balanced(held: dict[str, frozenset[int]], places: frozenset[int]) -> dict[str, frozenset[int]]:
    """``places`` dealt out evenly; a member keeps what it held as far as its share goes."""
    least, one_more = divmod(len(places), len(held))
    found: dict[str, list[int]] = {}
    sizes: dict[str, int] = {}
    free = set(places)
    for index, member_id in enumerate(sorted(held, key=lambda member_id: -len(held[member_id]))):
        sizes[member_id] = least + (index < one_more)
        found[member_id] = sorted(held[member_id])[: sizes[member_id]]
        free.difference_update(found[member_id])
    rest = sorted(free, reverse=True)
    for member_id, mine in found.items():
        while len(mine) < sizes[member_id]:
            mine.append(rest.pop())
    return {member_id: frozenset(found[member_id]) for member_id in held}
