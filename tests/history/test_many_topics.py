"""Groups of very many topics: what is looked at does not grow by topics times partitions."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

from coordinator_core.groups.model import OffsetKey
from coordinator_core.history.model import GroupHistory
from coordinator_core.history.signs import Move
from coordinator_core.investigate.backwards import _topics_anew


class Counted(list[Any]):
    looked_at = 0

    def __iter__(self) -> Iterator[Any]:
        for one in super().__iter__():
            self.looked_at += 1
            yield one


def test_steps_back_in_many_topics() -> None:
    keys = [OffsetKey("g", f"t{number % 200}", number // 200) for number in range(400)]
    version = SimpleNamespace(first=SimpleNamespace(committed_offset=0), largest_step=1, generation=1)
    before = SimpleNamespace(last=SimpleNamespace(committed_offset=1_000), largest_step=1, generation=1)
    moves = Counted(SimpleNamespace(key=key, before=before, after=version) for key in keys)
    standing = dict.fromkeys([*keys, OffsetKey("g", "t7", 2)])
    group = cast(GroupHistory, SimpleNamespace(standing=standing))
    found = _topics_anew(group, cast(list[Move], moves))
    assert moves.looked_at == len(moves)
    assert [move.key for move in found] == sorted((key for key in keys if key.topic != "t7"), key=lambda key: key[1:])
