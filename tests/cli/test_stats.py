"""``regroup stats``: its JSON and text, runs and snapshots, what is refused."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from coordinator_core.lifecycle.cleaning import BlockerKind
from tests.cases import case
from tests.cli.test_commands import output_of
from tests.cli.test_damaged_input import outcome, write_segment
from tests.replay.histories import History

CASE = case("k431-compacted/A-uncleaned")
AT = [*CASE.command_line(), "--now-ms", "1795281921155"]
ROOT = Path(__file__).resolve().parent.parent.parent
Capture = pytest.CaptureFixture[bytes]


def document_of(arguments: list[str], capture: Capture) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(output_of(["stats", *arguments, "--format", "json"], capture))
    return found


def test_json(capfdbinary: Capture) -> None:
    document = document_of(AT, capfdbinary)
    first, second = document["partitions"]
    assert (first["size_bytes"], first["records"], first["last_stable_offset"]) == (1165727, 14445, 14445)
    assert first["compacted"]["size_bytes"] < first["cleaner"]["cleaned"]["size_bytes"] < 130_000
    (transaction, active) = second["cleaner"]["blockers"]
    assert (transaction["kind"], transaction["first_record_offset"]) == ("open_transaction", 7539)
    assert (active["kind"], active["held_bytes"]) == ("active_segment", 97596)
    sizes = [row["size_bytes"] for row in document["groups"]]
    assert sizes == sorted(sizes, reverse=True)
    assert {row["group_id"] for row in document["topics"]} == {row["group_id"] for row in document["groups"]} - {
        "k-meta-0",
        "k-meta-1",
    }
    heaviest = document["topics"][0]
    assert heaviest == {
        "offsets_partition": 0,
        "group_id": "k-load-10",
        "topic": "t-a",
        "records": 2280,
        "tombstones": 0,
        "commits": 2280,
        "size_bytes": 182000,
        "dead_records": 2240,
        "dead_bytes": 178800,
        "commits_per_second": 95.656,
        "first_timestamp_ms": 1795251346825,
        "last_timestamp_ms": 1795251370650,
    }


def test_one_group(capfdbinary: Capture) -> None:
    document = document_of([*AT, "--group", "k-load-10"], capfdbinary)
    for name in ("groups", "topics", "clients"):
        assert {row["group_id"] for row in document[name]} == {"k-load-10"}
    assert len(document["partitions"]) == 2


def test_a_run_has_the_stats_of_its_snapshot(tmp_path: Path, capfdbinary: Capture) -> None:
    replayed = output_of(["replay", *AT, "--output", str(tmp_path), "--cluster", "c", "--format", "json"], capfdbinary)
    assert document_of([json.loads(replayed)["run"]], capfdbinary) == document_of(AT, capfdbinary)


@pytest.mark.parametrize(
    "name",
    [
        "k431-compacted/A-uncleaned",
        pytest.param("k431-txn", marks=pytest.mark.full),
        "k241/before",
        "k0102-codecs/plain",
    ],
)
def test_compaction_leaves_what_is_predicted(name: str, tmp_path: Path, capfdbinary: Capture) -> None:
    """To the byte, but for records that compaction keeps because an answer depends on them."""
    arguments = [*case(name).command_line(), "--now-ms", "1795281921155"]
    predicted = {row["offsets_partition"]: row for row in document_of(arguments, capfdbinary)["partitions"]}
    output = ["--output", str(tmp_path / "out"), "--format", "json"]
    done = json.loads(output_of(["compact", *arguments, *output], capfdbinary))
    compared = 0
    for row in done["partitions"]:
        left = predicted[row["offsets_partition"]]["compacted"]
        if row["protected_records"]:
            assert left["records"] < row["output_records"]
        else:
            assert (left["size_bytes"], left["records"]) == (row["output_bytes"], row["output_records"])
            compared += 1
    assert compared > 0


def test_text(capfdbinary: Capture) -> None:
    lines = output_of(["stats", *AT, "--top", "3"], capfdbinary).splitlines()
    assert lines[0].split()[:4] == ["PARTITION", "BYTES", "RECORDS", "COMPACTED"]
    assert lines[4].split() == ["PARTITION", "BLOCKED-BY", "HELD-BYTES", "WHY"]
    assert lines[5].startswith("1         open_transaction 632780     producer 2 epoch 0 since record offset 7539")
    assert [line for line in lines if line.startswith("Heaviest")] == [
        "Heaviest groups: (and 31 more)",
        "Heaviest topics: (and 31 more)",
        "Heaviest clients: (and 35 more)",
    ]
    assert sum(line.startswith("k-load-10 ") for line in lines) == 3


def test_the_page_shows_what_is_printed(capfdbinary: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    page = (ROOT / "docs" / "forensics.md").read_text(encoding="utf-8")
    ((command, shown),) = re.findall(r"```\n\$ regroup (.+)\n((?:.*\n)*?)```", page)
    assert output_of(command.split(), capfdbinary) == shown
    assert [kind for kind in BlockerKind if f"`{kind}`" not in page] == []


def test_what_is_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, _, error = outcome(["stats", *AT, "--group", "no-such-group"], capfd)
    assert (code, "'no-such-group'" in error) == (2, True)
    assert outcome(["stats", *AT, "--min-cleanable-dirty-ratio", "1.5"], capfd)[0] == 2
    data = bytearray(b"".join(History().commit(1).commit(2).batches))
    data[-1] ^= 1
    damaged = str(write_segment(tmp_path, bytes(data)))
    assert outcome(["stats", damaged, "--kafka-version", "4.3.1"], capfd)[0] == 3
    code, _, error = outcome(["stats", damaged, "--kafka-version", "4.3.1", "--salvage"], capfd)
    assert (code, "--salvage does not go with stats; --partial" in error) == (2, True)
