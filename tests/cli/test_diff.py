"""``regroup diff``: what is said of two runs is what differs between their tables."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from coordinator_core.cli.app import run
from coordinator_core.log.discovery import discover
from coordinator_core.rules.differences import difference
from coordinator_core.runs.local import replay_to_run
from coordinator_core.runs.place import RunPlace
from coordinator_core.runs.read import Run
from tests.log.builders import NOW_MS, write_partition
from tests.rules.logs import (
    HEALTHY,
    Log,
    assignment,
    classic,
    commit,
    consumer_group,
    consumer_member,
    log_of,
    member,
    one,
    pending,
)


def said(arguments: list[str], capfd: pytest.CaptureFixture[str], *, code: int) -> str:
    assert run(arguments) == code
    return capfd.readouterr().out


@pytest.fixture
def runs(tmp_path: Path) -> tuple[Run, Run]:
    before = one(*HEALTHY, commit("gone", offset=1), commit("s", "u", offset=7), consumer_group("k"))
    now = one(
        classic("g", member(owns=assignment(t=[0, 1]))),
        commit(offset=60),
        commit(partition=1),
        commit("s", "u", offset=7),
        consumer_group("k"),
        consumer_member("k"),
    )
    return before.publish(tmp_path / "before"), now.publish(tmp_path / "now")


def test_equal_states_are_told_by_their_hash(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (one(*HEALTHY).publish(tmp_path / name) for name in "ab")
    # What the hashes say is believed once the files are those that were published: no table is decoded.
    monkeypatch.setattr(Run, "table", None)
    document = json.loads(said(["diff", first.path, second.path, "--format", "json"], capfd, code=0))
    assert document["identical"] is True
    assert document["changes"] == []
    assert document["counts"]["offsets"] == {"added": 0, "removed": 0, "changed": 0, "identical": 1}
    assert said(["diff", first.path, second.path], capfd, code=0).startswith("identical: state hash ")


def test_a_difference_beside_groups_and_offsets_is_named(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    logs = {"before": one(*HEALTHY), "now": one(*HEALTHY, pending(commit(offset=60)))}
    paths = [log.publish(tmp_path / name).path for name, log in logs.items()]
    assert "tables that differ: pending_offsets" in said(["diff", *paths], capfd, code=1)
    document = json.loads(said(["diff", *paths, "--format", "json"], capfd, code=1))
    assert (document["changes"], "pending_offsets" in document["differing_tables"]) == ([], True)
    assert set(document["differing_tables"]) & set(document["identical_tables"]) == set()
    same = json.loads(said(["diff", paths[0], paths[0], "--format", "json"], capfd, code=0))
    assert same["differing_tables"] == []


def test_groups_and_offsets_are_classified(runs: tuple[Run, Run], capfd: pytest.CaptureFixture[str]) -> None:
    paths = [one.path for one in runs]
    document: dict[str, Any] = json.loads(said(["diff", *paths, "--format", "json"], capfd, code=1))
    found = {(row["kind"], row["group_id"], row["topic"], row["partition"]): row for row in document["changes"]}
    assert {key: row["change"] for key, row in found.items()} == {
        ("group", "gone", None, None): "removed",
        ("group", "g", None, None): "changed",
        ("group", "k", None, None): "changed",
        ("offset", "gone", "t", 0): "removed",
        ("offset", "g", "t", 0): "changed",
        ("offset", "g", "t", 1): "added",
    }
    assert found["group", "g", None, None]["columns"] == ["members"]
    moved = found["offset", "g", "t", 0]
    assert (moved["before"]["committed_offset"], moved["after"]["committed_offset"]) == (50, 60)
    assert moved["columns"] == ["committed_offset"]
    assert document["counts"]["groups"] == {"added": 0, "removed": 1, "changed": 2, "identical": 1}


def test_text_and_csv_have_the_same_changes(runs: tuple[Run, Run], capfd: pytest.CaptureFixture[str]) -> None:
    paths = [one.path for one in runs]
    text = said(["diff", *paths], capfd, code=1)
    assert "changed  offset g t-0: committed_offset 50 -> 60" in text
    rows = list(csv.DictReader(io.StringIO(said(["diff", *paths, "--format", "csv"], capfd, code=1))))
    lines = said(["diff", *paths, "--format", "jsonl"], capfd, code=1).splitlines()
    assert [(row["kind"], row["change"], row["group_id"]) for row in rows] == [
        (change["kind"], change["change"], change["group_id"]) for change in map(json.loads, lines)
    ]


def test_added_and_removed_swap_when_the_runs_do(runs: tuple[Run, Run]) -> None:
    forth, back = difference(*runs).counts, difference(*reversed(runs)).counts
    for name in ("groups", "offsets"):
        assert forth[name]["added"] == back[name]["removed"]
        assert forth[name]["changed"] == back[name]["changed"]


def test_counts_are_those_of_the_tables(tmp_path: Path) -> None:
    """Against a comparison of rows as dictionaries."""
    logs = [
        Log(
            {
                0: one(
                    *(commit("g", f"t{n % 7}", n % 5, offset=n * step if n % 2 else n) for n in range(60))
                ).partitions[0]
            }
        )
        for step in (1, 3)
    ]
    before, now = (log.publish(tmp_path / str(n)) for n, log in enumerate(logs))

    def rows(of: Run) -> dict[tuple[Any, ...], dict[str, Any]]:
        hidden = {"ordering_offset"}
        return {
            (row["group_id"], row["topic"], row["partition"]): {k: v for k, v in row.items() if k not in hidden}
            for row in of.table("offsets").to_pylist()
        }

    old, new = rows(before), rows(now)
    expected = Counter("identical" if old[key] == new[key] else "changed" for key in old.keys() & new.keys())
    assert difference(before, now).counts["offsets"] == {
        "added": len(new.keys() - old.keys()),
        "removed": len(old.keys() - new.keys()),
        "changed": expected["changed"],
        "identical": expected["identical"],
    }
    assert expected["changed"]
    assert expected["identical"]


@pytest.mark.parametrize("numbers", [[4], [4, 7]])
def test_offsets_partitions_of_one_log_alone_are_told(
    numbers: list[int], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A copy that lacks a partition says nothing of its groups; one without a record has none."""
    for place, held in (("few", [3]), ("all", [3, *numbers])):
        for number in held:
            write_partition(tmp_path / place, {0: log_of(commit(f"g{number}"))}, partition=number)
    write_partition(tmp_path / "all", {0: b""}, partition=9)
    paths = {}
    for now_ms, (run_id, place) in enumerate([("a", "all"), ("b", "few")], NOW_MS):
        of_run = RunPlace(str(tmp_path / "runs"), "c", "w", run_id)
        replay_to_run(discover([str(tmp_path / place)]), of_run, profile=None, now_ms=now_ms)
        paths[run_id] = of_run.path
    named = "offsets partitions 4, 7 are" if numbers[1:] else "offsets partition 4 is"
    for before, now, change in (("a", "b", "removed"), ("b", "a", "added")):
        assert run(["diff", paths[before], paths[now], "--format", "json"]) == 1
        out, err = capfd.readouterr()
        alone = f"{named} in the log of {paths['a']} alone: what is there counts as {change}\n"
        assert err == f"regroup: warning: {alone}"
        document = json.loads(out)
        assert document["counts"]["groups"][change] == len(numbers)
        assert document["only_before" if before == "a" else "only_after"] == numbers
    assert run(["report", paths["b"], "--format", "markdown"]) == 0
    text = f"{named} in the log of run a alone: what is there counts as removed"
    assert f"- {text}\n" in capfd.readouterr().out
    assert run(["report", paths["b"], "--format", "html"]) == 0
    assert f"<p>O{text[1:]}.</p>" in capfd.readouterr().out
    assert run(["diff", paths["a"], paths["a"]]) == 0
    assert capfd.readouterr().err == ""
