"""The journal of a drill survives a kill, and says where it is damaged."""

from __future__ import annotations

from pathlib import Path

import pytest

from coordinator_core.drill.canaries import canaries
from coordinator_core.drill.journal import Journal, JournalBusyError, of_kind, read_journal
from coordinator_core.drill.load_lines import LoadLine, load_lines
from coordinator_core.errors import DamagedInputError, UsageError
from coordinator_core.groups.hashing import partition_for


def begun(path: Path) -> Path:
    with Journal(path) as journal:
        journal.write("drill", at_ms=1, journal_version=1, text="ünï\ud800")
        journal.write("probe", at_ms=2, api="Heartbeat")
    return path


def test_what_was_written_is_read(tmp_path: Path) -> None:
    events = read_journal(begun(tmp_path / "j"))
    assert [event["event"] for event in events] == ["drill", "probe"]
    assert events[0]["text"] == "ünï\ud800"
    assert of_kind(events, "probe", api="Heartbeat") == events[1:]
    assert of_kind(events, "probe", api="OffsetFetch") == []


@pytest.mark.parametrize("left", [1, 10, 20])
def test_a_line_cut_off_by_a_kill_is_left_out_and_then_taken_away(tmp_path: Path, left: int) -> None:
    path = begun(tmp_path / "j")
    whole = path.read_bytes()
    with path.open("ab") as file:
        file.write(b'{"at_ms": 3, "event": "verdict"}'[:left])
    assert len(read_journal(path)) == 2
    with Journal(path) as journal:
        journal.write("verdict", at_ms=4)
    assert path.read_bytes().startswith(whole)
    assert [event["at_ms"] for event in read_journal(path)] == [1, 2, 4]


def test_only_one_process_writes(tmp_path: Path) -> None:
    with Journal(tmp_path / "j"), pytest.raises(JournalBusyError, match="a drill is writing to it"):
        Journal(tmp_path / "j")
    with Journal(tmp_path / "j"):
        pass


@pytest.mark.parametrize(
    ("line", "detail"),
    [
        (b"{", "not JSON"),
        (b"[1]", "not an event"),
        (b'{"event": "x"}', "without its time"),
        (b"\xff", "JSON"),
    ],
)
def test_damage_is_named_by_its_byte(tmp_path: Path, line: bytes, detail: str) -> None:
    path = begun(tmp_path / "j")
    size = path.stat().st_size
    with path.open("ab") as file:
        file.write(line + b"\n")
    with pytest.raises(DamagedInputError, match=rf"byte {size}: journal: .*{detail}"):
        read_journal(path)


def test_what_is_no_journal(tmp_path: Path) -> None:
    path = tmp_path / "j"
    with pytest.raises(UsageError, match="No such file"):
        read_journal(path)
    path.write_text("")
    with pytest.raises(DamagedInputError, match="begins with the event drill"):
        read_journal(path)
    path.write_text('{"at_ms": 1, "event": "drill", "journal_version": 2}\n')
    with pytest.raises(UsageError, match="version 2"):
        read_journal(path)
    with pytest.raises(UsageError, match="Is a directory"):
        Journal(tmp_path)


@pytest.mark.parametrize("count", [1, 3, 50])
def test_canaries_belong_to_their_partitions(count: int) -> None:
    found = canaries("d", range(count), count)
    assert [one.offsets_partition for one in found] == list(range(count))
    assert [partition_for(one.group_id, count) for one in found] == list(range(count))
    assert len({one.group_id for one in found}) == count


def test_loads_are_read_from_logs_of_any_release() -> None:
    new = (
        "[GroupCoordinator id=1] Finished loading of metadata from __consumer_offsets-7 with epoch 3 in 25ms "
        "where 2ms was spent in the scheduler. Loaded 1000 records which total to 52000 bytes."
    )
    classic = (
        "[GroupMetadataManager brokerId=2] Finished loading offsets and group metadata from "
        "__consumer_offsets-0 in 12 milliseconds for epoch 4, of which 3 milliseconds was spent in the "
        "scheduler."
    )
    assert list(load_lines([new, "something else", classic])) == [
        LoadLine(7, 3, 25, 2, 1000, 52000),
        LoadLine(0, 4, 12, 3, None, None),
    ]
