"""Reports say what was measured: samples, ratios, Markdown, and the figures in the documents."""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path

import pytest

from coordinator_core.log.discovery import discover
from coordinator_core.log.reader import read_records
from tests.bench import documents, profile
from tests.bench.compaction import CLEANED
from tests.bench.kafka import LOADED
from tests.bench.measure import Sample, in_turn, ratio, run_process
from tests.bench.plans import FULL, QUICK, Row
from tests.bench.references import READERS
from tests.bench.report import BOUNDS, CLAIMS, growth, headline, promises, report, table
from tests.bench.results import ROOT, Result, read_results, write_results

MACHINE = {"cores": "2", "Kafka": "4.3.1"}
LOG = {
    "bytes": 1_000_000_000,
    "records": 10_000_000,
    "batches": 400_000,
    "groups": 5_000,
    "live_committed_offsets": 176_000,
    "partitions": 1,
    "segments": 10,
}


def samples(*seconds: float, **details: float) -> list[Sample]:
    return [Sample(each, 2 * each, 100 * each, details) for each in seconds]


def result(plan: str = "replay", megabytes: int = 1000, **rows: list[Sample]) -> Result:
    log = {**LOG, "bytes": megabytes * 1_000_000}
    return Result(plan, "Title", log, {Row[row]: taken for row, taken in rows.items()}, MACHINE, "abc")


REPLAY = result(
    BROKER=samples(10, 20, 12, process_cpu_seconds=30),
    LOCAL=samples(2, 5, 4),
    SPARK=samples(10, 10, 10, jvm_peak_mib=500, worker_peak_mib=300),
    KERNEL=samples(1, 1, 1),
)


def test_everything_is_taken_in_turn_after_one_round() -> None:
    taken: list[str] = []

    def take(name: str) -> Sample:
        taken.append(name)
        return Sample(len(taken), 0, 0)

    found = in_turn(2, {"a": lambda: take("a"), "b": lambda: take("b")})
    assert taken == ["a", "b"] * 3
    assert {name: [sample.seconds for sample in each] for name, each in found.items()} == {
        "a": [3, 5],
        "b": [4, 6],
    }


def test_the_ratio_is_the_median_of_the_pairs() -> None:
    assert ratio(samples(10, 20, 12), samples(2, 5, 4)) == 4
    assert ratio(samples(10), samples(4), lambda sample: sample.peak_mib) == 2.5


def test_a_process_is_measured_with_those_it_starts(tmp_path: Path) -> None:
    held = bytearray(b"x") * (300 << 20)  # what the bench itself holds does not count
    inner = "import time; held = bytearray(150 << 20); time.sleep(1); sum(range(20_000_000))"
    outer = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {inner!r}]); print('done')"
    sample = run_process([sys.executable, "-c", outer], tmp_path / "out")
    assert len(held) == 300 << 20
    assert (tmp_path / "out").read_text() == "done\n"
    assert sample.seconds > 1
    assert sample.cpu_seconds > 0.05
    assert 150 < sample.peak_mib < 250
    assert 150 < sample.details["python_peak_mib"] < 250


def test_a_process_that_fails_is_told(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"ended with 3: why\n"):
        run_process([sys.executable, "-c", "import sys; sys.stderr.write('why\\n'); sys.exit(3)"], tmp_path / "out")


def test_results_survive_their_file(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "results.jsonl"
    assert read_results(path) == []
    write_results(path, [REPLAY, result("dump", KAFKA_DUMP=samples(6), DUMP=samples(2))])
    assert read_results(path)[0] == REPLAY
    assert [each.plan for each in read_results(path)] == ["replay", "dump"]


def test_a_table() -> None:
    lines = table(REPLAY).splitlines()
    assert lines[2] == (
        "1 000 MB, 1 partition, 10 segments, 400 000 batches, 10 000 000 records, 5 000 groups, "
        "176 000 live committed offsets. Taken 3 times, at revision abc."
    )
    assert lines[-4:] == [
        f"| {Row.BROKER} | 10.00 / 12.00 / 20.00 | 24.0 (whole process 30.0) | 2000 | 1.0 |",
        f"| {Row.LOCAL} | 2.00 / 4.00 / 5.00 | 8.0 | 500 | 4.0 |",
        f"| {Row.SPARK} | 10.00 / 10.00 / 10.00 | 20.0 | 1000 (JVM 500, a worker 300) | 1.2 |",
        f"| {Row.KERNEL} | 1.00 / 1.00 / 1.00 | 2.0 | 100 | 12.0 |",
    ]


def test_promises_are_measured_on_their_own_tables() -> None:
    lines = promises([REPLAY, result("dump", KAFKA_DUMP=samples(6), DUMP=samples(1))]).splitlines()
    assert "| one partition, local engine | 9 | **4.0** (missed) | 3.0 – 5.0 |" in lines
    assert "| dump | 5 | **6.0** | 6.0 – 6.0 |" in lines
    assert "| local engine, one partition | 1536 | **500** |" in lines
    assert "| a Spark worker, one partition | 1024 | **300** |" in lines
    assert not any("zstd" in line for line in lines)


def test_growth_is_a_fit_by_least_squares() -> None:
    linear = [
        result(f"linear-{megabytes}", megabytes, LOCAL=samples(0.5 + 2 * megabytes / 1000))
        for megabytes in (100, 1000, 10_000)
    ]
    lines = growth(linear).splitlines()
    assert "Seconds of the local engine = 0.50 + 2.00 × GB (R² = 1.0000):" in lines
    assert "CPU seconds of the local engine = 1.00 + 4.00 × GB (R² = 1.0000):" in lines
    assert "| 10.0 | 20.50 | 20.50 | " in growth(linear)
    assert growth(linear[:2]) == ""


def test_the_headline() -> None:
    four = result("replay-4", 4000, BROKER=samples(40), LOCAL=samples(4), SPARK=samples(10))
    rebalances = result("rebalances", BROKER=samples(20), LOCAL=samples(4))
    text = headline([REPLAY, four, rebalances, result("dump", KAFKA_DUMP=samples(6), DUMP=samples(1.5))])
    assert "On 2 cores a replay of 1 000 MB" in text
    assert "**4.0** times (4 partitions: 10.0) as fast as a 4.3.1 broker" in text
    assert "**1.2** times (4 partitions: 4.0)." in text
    assert "30 % of the batches are group records the replay is **5.0** times as fast." in text
    assert "tool **4.0** times as fast." in text


def test_every_promise_is_measured_by_the_full_bench() -> None:
    rows = {plan.name: set(plan.rows) for plan in FULL}
    assert len(rows) == len(FULL)
    for claim in CLAIMS:
        assert {claim.reference, claim.row} <= rows[claim.plan]
    for bound in BOUNDS:
        assert bound.row in rows[bound.plan]
    assert {plan.name for plan in QUICK} <= set(rows)


def test_what_kafka_logs_is_understood() -> None:
    line = (
        "INFO CoordinatorRuntime - [GroupCoordinator id=1] Finished loading of metadata from "
        "__consumer_offsets-0 with epoch 2 in 7695ms where 3ms was spent in the scheduler."
    )
    assert LOADED.findall(line) == [("__consumer_offsets-0", "7695", "3")]
    text = (
        "Log cleaner thread 0 cleaned log __consumer_offsets-3 (dirty section = [0, 14445])\n"
        "\t1,944.1 MB of log processed in 7.9 seconds (119.4 MB/sec).\n"
        "Log cleaner thread 0 cleaned log __consumer_offsets-0 (dirty section = [0, 5])\n"
        "\t0.1 MB of log processed in 0.2 seconds (0.5 MB/sec).\n"
    )
    assert CLEANED.findall(text) == [("3", "1,944.1", "7.9"), ("0", "0.1", "0.2")]


@pytest.mark.parametrize("reader", READERS)
def test_the_plain_readers_read_every_record(reader: str) -> None:
    (log,) = discover([str(ROOT / "tests" / "corpus" / "k431-txn" / "log" / "__consumer_offsets-40")]).partitions
    expected = [
        (record.key, record.value)
        for _, batch, records in read_records(log, damage=[])
        for record in records
        if not batch.is_control
    ]
    (segment,) = log.segments
    assert list(READERS[reader](Path(segment.path).read_bytes())) == expected
    assert len(expected) > 2


def test_a_profile_belongs_to_our_innermost_frame() -> None:
    lines = [
        "main (cli.py:1);merge (coordinator_core/replay/merge.py:10);take (numpy/core.py:3) 6",
        "fold (coordinator_core/fold/segments.py:5);take (numpy/core.py:3) 2",
        "run (coordinator_core/cli/app.py:2);_find_and_load (<frozen importlib._bootstrap>:1) 1",
        "wait (threading.py:9) 1",
    ]
    found = profile.places(lines)
    assert found == Counter(
        {
            "`coordinator_core/replay/merge.py`": 6,
            "`coordinator_core/fold/segments.py`": 2,
            "imports": 1,
            "elsewhere": 1,
        }
    )
    assert profile.table(found)[2] == "| 60% | `coordinator_core/replay/merge.py` |"


def test_a_document_without_marks_is_told() -> None:
    marked = f"a\n{documents.BEGIN}old{documents.END}\nb"
    assert documents.replaced(marked, "new") == f"a\n{documents.BEGIN}new{documents.END}\nb"
    with pytest.raises(ValueError, match="no place"):
        documents.replaced("a", "new")


@pytest.mark.parametrize("name", documents.PLACES)
def test_the_documents_say_what_was_measured(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    assert documents.replaced(text, documents.PLACES[name](read_results(documents.RESULTS))) == text


def test_the_tables_are_markdown() -> None:
    """Each row has as many cells as its heading, under a line of dashes."""
    text = report(read_results(documents.RESULTS))
    blocks = re.findall(r"(?:^\|.*\|\n?)+", text, re.MULTILINE)
    assert len(blocks) >= 3
    for block in blocks:
        heading, dashes, *rows = block.splitlines()
        assert re.fullmatch(r"\|(---\|)+", dashes)
        assert rows
        assert {line.count("|") for line in (heading, dashes, *rows)} == {heading.count("|")}
