"""The expiry formula: a value and a column agree, and nothing else computes it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator_core.lifecycle.due import LONG_MAX, expiry_of
from coordinator_core.releases import Clock

CORE = Path(__file__).parents[2] / "coordinator_core"
LONGS = st.integers(-LONG_MAX - 1, LONG_MAX)
# Close together, or anywhere, or where 64 bits end.
TIMES = st.one_of(st.integers(0, 30), LONGS, st.integers(LONG_MAX - 30, LONG_MAX))
OFFSETS = st.lists(st.tuples(TIMES, st.one_of(st.none(), TIMES)), min_size=1, max_size=8)
NOW = st.one_of(st.integers(0, 40), st.integers(0, LONG_MAX))


@given(st.sampled_from(Clock), NOW, st.one_of(st.integers(0, 10), st.integers(0, 1 << 50)), OFFSETS)
def test_a_value_and_a_column_agree(
    clock: Clock, now_ms: int, retention_ms: int, offsets: list[tuple[int, int | None]]
) -> None:
    column = expiry_of(
        clock,
        now_ms=now_ms,
        retention_ms=retention_ms,
        base_ms=np.array([base for base, _ in offsets], np.int64),
        explicit_ms=np.array([explicit or 0 for _, explicit in offsets], np.int64),
        is_explicit=np.array([explicit is not None for _, explicit in offsets]),
    )
    assert column.due_ms.dtype == np.int64
    for row, (base, explicit) in enumerate(offsets):
        value = expiry_of(
            clock,
            now_ms=now_ms,
            retention_ms=retention_ms,
            base_ms=base,
            explicit_ms=explicit or 0,
            is_explicit=explicit is not None,
        )
        assert [type(each) for each in value] == [int, bool, bool, bool]
        assert value.ever == column.ever[row]
        assert value.is_due == column.is_due[row] == as_the_broker(clock, now_ms, retention_ms, base, explicit)
        assert value.is_explicit == column.is_explicit[row]
        if value.ever:
            assert value.due_ms == column.due_ms[row]


def as_the_broker(clock: Clock, now_ms: int, retention_ms: int, base_ms: int, explicit_ms: int | None) -> bool:
    """The comparisons of the brokers' own code, in its 64-bit arithmetic."""

    def long(number: int) -> int:
        return (number + LONG_MAX + 1) % (1 << 64) - LONG_MAX - 1

    if clock is Clock.GROUP:
        return now_ms >= explicit_ms if explicit_ms is not None else long(now_ms - base_ms) >= retention_ms
    if clock is Clock.VALUE and explicit_ms is not None:
        return explicit_ms < now_ms
    return long(base_ms + retention_ms) < now_ms


@pytest.mark.parametrize("clock, first", [(Clock.COMMIT, 1_501), (Clock.VALUE, 1_501), (Clock.GROUP, 1_500)])
def test_the_first_moment(clock: Clock, first: int) -> None:
    for now_ms in (first - 1, first):
        found = expiry_of(clock, now_ms=now_ms, retention_ms=500, base_ms=1_000, explicit_ms=0, is_explicit=False)
        assert (found.due_ms, found.is_due) == (first, now_ms == first)


def _mentions_retention(node: ast.AST) -> bool:
    names = [each.id for each in ast.walk(node) if isinstance(each, ast.Name)]
    names += [each.attr for each in ast.walk(node) if isinstance(each, ast.Attribute)]
    return any(re.search(r"(?<!delete_)retention(?!_check)", name) for name in names)


def test_nothing_else_adds_or_compares_a_retention() -> None:
    found = []
    for path in sorted(CORE.rglob("*.py")):
        source = path.read_text()
        for node in ast.walk(ast.parse(source)) if "retention" in source else ():
            if isinstance(node, ast.Compare):
                ordered = any(isinstance(op, ast.Lt | ast.LtE | ast.Gt | ast.GtE) for op in node.ops)
                used = ordered and _mentions_retention(node)
            else:
                used = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub)
                used = used and _mentions_retention(node)
            if used:
                found.append(str(path.relative_to(CORE)))
    # A request's own retention becomes the expire timestamp of its commits; a rule compares two retentions.
    assert [path for path in found if path != "lifecycle/due.py"] == ["coordinator/requests.py", "rules/timeline.py"]


@pytest.mark.parametrize(
    "path",
    ["lifecycle/expiry.py", "rules/expiry.py", "coordinator/java/offsets.py", "coordinator/scala/group.py"],
)
def test_every_sweep_asks_it(path: str) -> None:
    calls = [node.func for node in ast.walk(ast.parse((CORE / path).read_text())) if isinstance(node, ast.Call)]
    assert any(
        isinstance(function, ast.Name) and function.id in {"expiry_of", "expiry_of_commit"} for function in calls
    )
