"""Orders of Scala hash maps; ``tool_logs`` has a group of 30 members, printed by tools in these orders."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator_core.reports.scala_maps import MapOrder, scala_2_12_order, scala_2_13_order
from tests.examples import examples


def test_names_that_collide() -> None:
    # "Aa" and "BB" have the same hash code: Scala 2.12 puts the later one first, 2.13 keeps their order.
    assert scala_2_12_order(["Aa", "BB"]) == ["BB", "Aa"]
    assert scala_2_13_order(["Aa", "BB"]) == ["Aa", "BB"]


@pytest.mark.parametrize("order", [scala_2_12_order, scala_2_13_order])
@examples(50)
@given(keys=st.lists(st.text(max_size=5), max_size=60))
def test_every_key_once(order: MapOrder, keys: list[str]) -> None:
    assert sorted(order(keys)) == sorted(set(keys))
