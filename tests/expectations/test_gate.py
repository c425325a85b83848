from __future__ import annotations

import gc
import json
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from coordinator_core.log.discovery import CLEAN_SHUTDOWN_FILE
from coordinator_core.log.reader import OnDamage
from coordinator_core.log.types import ControlType
from coordinator_core.runs.read import Run
from coordinator_core.runs.schemas import TABLES
from expectations import frames, gate
from expectations.__main__ import main
from expectations.checks import Check, Severity, suites
from expectations.combine import Combined
from expectations.frames import batches, stored_table
from expectations.gate import evaluate, judge
from expectations.result import Failure, GateResult, Refusal

from ..log.builders import build_batch, build_control_batch
from ..rules.logs import commit, one
from .faults import NOW_MS, FaultyRun, Rows, published

if TYPE_CHECKING:
    from great_expectations.core import ExpectationSuiteValidationResult

DECLARED = sum(map(len, suites().values()))
# Holds rows of every table but load_failures and carried_records.
RICH = "k431-expired/A"


@pytest.fixture(scope="module")
def rich(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return published(RICH, tmp_path_factory.mktemp("rich"))


@pytest.mark.full
@pytest.mark.parametrize("name", ["k431-mixed", "k431-txn"])
def test_runs_of_clean_logs_pass(name: str, tmp_path: Path) -> None:
    result = evaluate(published(name, tmp_path))
    assert result == GateResult(result.run, DECLARED, DECLARED, (), ())
    assert result.passed(Severity.INFO)


def edit(where: Callable[[dict[str, Any]], bool], **values: Any) -> Callable[[Rows], object]:
    """Give the first row that fits other values; whether one fits is part of the test."""
    return lambda rows: next(row for row in rows if where(row)).update(values)


def any_row(_: dict[str, Any]) -> bool:
    return True


def again(**values: Any) -> Callable[[Rows], object]:
    """One more row, like the first one but for ``values``."""
    return lambda rows: rows.append({**rows[0], **values})


def has_partition_0(row: dict[str, Any]) -> bool:
    return bool(row["partition"] == 0)


# What is done to which table, and what it must fire. Each changes rows that the others leave alone.
FAULTS: dict[str, tuple[str, Callable[[Rows], object]]] = {
    "regexes.key": ("regexes", again()),
    "share_state.not_null": ("share_state", edit(any_row, topic=None)),
    "groups.type.values": ("groups", edit(lambda row: row["type"] == "share", type="legacy")),
    "groups.state.values": ("groups", edit(lambda row: row["simple"], state="Asleep")),
    "groups.record_offset.cut": (
        "groups",
        edit(lambda row: row["simple"] and row["state"] != "Asleep", offsets_partition=99),
    ),
    "members.state.values": ("members", edit(lambda row: row["group_type"] == "streams", state="lost")),
    "transactions.outcome.values": (
        "transactions",
        edit(lambda row: row["outcome"] == "committed", outcome="maybe"),
    ),
    "members.groups.reference": ("members", again(group_id="nobody")),
    "target_assignments.groups.reference": ("target_assignments", edit(any_row, group_id="nobody")),
    "streams_topology.groups.reference": ("streams_topology", edit(any_row, group_id="nobody")),
    "streams_topology.not_null": (
        "streams_topology",
        edit(lambda row: row["group_id"] != "nobody", epoch=None),
    ),
    "pending_offsets.transactions.reference": ("pending_offsets", edit(any_row, producer_id=77)),
    "groups.member_count.members": ("groups", edit(lambda row: row["member_count"] == 0, member_count=3)),
    "offsets.record_offset.cut": ("offsets", edit(has_partition_0, record_offset=10**9)),
    "members.assignment_record_offset.cut": (
        "members",
        edit(lambda row: row["group_type"] == "consumer", assignment_record_offset=-2),
    ),
    "record_counts.offsets_partition.values": ("record_counts", edit(any_row, offsets_partition=99)),
    "offsets.partition.minimum": ("offsets", edit(lambda row: row["partition"] == 1, partition=-1)),
    "offsets.committed_offset.minimum": (
        "offsets",
        edit(lambda row: row["partition"] == 2, committed_offset=-1),
    ),
    "pending_offsets.commit_timestamp_ms.not_later_than_now": (
        "pending_offsets",
        edit(lambda row: row["producer_id"] != 77, commit_timestamp_ms=NOW_MS + 1),
    ),
}
OTHER_FAULTS = {"segments.rows", "group_stats.schema", "files.found", "files.listed", "files.table", "files.intact"}


@pytest.fixture(scope="module")
def docs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("data-docs") / "site"


@pytest.fixture(scope="module")
def faulty_run(rich: Run, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run with one fault of every kind."""
    run = FaultyRun(rich, tmp_path_factory.mktemp("faulty") / "run")
    for table, change in FAULTS.values():
        run.change(table, change)
    run.manifest["tables"]["segments"]["rows"] += 1
    stats = pq.read_table(run.part("group_stats"), partitioning=None)
    run.write("group_stats", stats.append_column("colour", pa.array(["red"] * stats.num_rows)))
    run.part("carried_records").unlink()
    (run.path / "groups" / "part-00001.parquet").write_bytes(b"")
    run.part("load_failures").unlink()
    run.manifest["tables"]["load_failures"] |= {"files": [], "proofs": []}
    return run.opened()


@pytest.fixture(scope="module")
def faulty(faulty_run: Run, docs: Path) -> GateResult:
    return evaluate(faulty_run, data_docs=str(docs))


def test_seeded_faults_fire_exactly_their_expectations(faulty: GateResult) -> None:
    assert {failure.code for failure in faulty.failures} == set(FAULTS) | OTHER_FAULTS
    assert faulty.refusals == ()
    assert faulty.evaluated == faulty.declared == DECLARED
    assert not faulty.passed(Severity.CRITICAL)


def failure_of(result: GateResult, code: str) -> Failure:
    return next(failure for failure in result.failures if failure.code == code)


@pytest.mark.parametrize("code", FAULTS)
def test_a_failure_names_the_rows_by_their_coordinates(code: str, faulty: GateResult) -> None:
    failure = failure_of(faulty, code)
    assert failure.unexpected_rows == len(failure.examples) == (2 if code.endswith(".key") else 1)
    table = FAULTS[code][0]
    for example in failure.examples:
        coordinates = ["offsets_partition", *(["record_offset"] if table != "record_counts" else [])]
        assert list(example)[: len(coordinates)] == coordinates
        assert all(value is None or type(value) in (int, str, bool) for value in example.values())
    json.dumps(failure.as_dict())


def test_examples_show_what_is_wrong(faulty: GateResult, rich: Run) -> None:
    outside = failure_of(faulty, "offsets.record_offset.cut").examples[0]
    assert outside["record_offset"] == 10**9
    (without_epoch,) = failure_of(faulty, "streams_topology.not_null").examples
    assert without_epoch == {
        "offsets_partition": 41,
        "record_offset": 1,
        "epoch": None,
        "group_id": "e-streams-empty",
    }
    (duplicate, same) = failure_of(faulty, "regexes.key").examples
    regex = rich.table("regexes").to_pylist()[0]
    assert duplicate == same
    assert {name: duplicate[name] for name in duplicate} == {name: regex[name] for name in duplicate}
    member = failure_of(faulty, "members.state.values").examples[0]
    assert member["state"] == "lost"
    rows = rich.table("segments").num_rows
    assert failure_of(faulty, "segments.rows").observed == str(rows)
    assert failure_of(faulty, "files.table").observed == "no load_failures"
    assert failure_of(faulty, "group_stats.schema").observed == "colour is not declared"


@pytest.mark.full
def test_batches_of_a_table_say_what_the_whole_table_says(
    faulty_run: Run, faulty: GateResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    largest = max(stored_table(faulty_run, name).num_rows for name in TABLES)
    monkeypatch.setattr(frames, "BATCH_ROWS", largest // 3)
    tables = {name: stored_table(faulty_run, name) for name in TABLES}
    parts = [rows.num_rows for rows in batches("group_stats", tables)]
    assert len(parts) > 1
    assert sum(parts) == stored_table(faulty_run, "group_stats").num_rows

    docs = tmp_path / "docs"
    in_batches = evaluate(faulty_run, data_docs=str(docs))

    def told(failure: Failure) -> dict[str, Any]:
        return failure.as_dict() | {"examples": sorted(map(str, failure.examples))}

    assert list(map(told, in_batches.failures)) == list(map(told, faulty.failures))
    assert (in_batches.evaluated, in_batches.refusals) == (faulty.evaluated, ())
    (page,) = (docs / "validations" / "group_stats").rglob("*.html")
    assert str(sum(parts)) in page.read_text("utf-8")


def test_a_batch_is_forgotten_before_the_next(rich: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where Python looks for cycles as rarely as in commands and workers."""
    import pandas as pd

    alive: list[int] = []

    class Counting(Combined):
        def add(self, rows: pa.Table, outcome: ExpectationSuiteValidationResult) -> None:
            super().add(rows, outcome)
            alive.append(sum(issubclass(type(one), pd.DataFrame) for one in gc.get_objects()))

    monkeypatch.setattr(gate, "Combined", Counting)
    monkeypatch.setattr(gate, "suites", lambda: {name: suites()[name] for name in ("groups", "members", "offsets")})
    monkeypatch.setattr(frames, "BATCH_ROWS", 20)
    gc.disable()
    try:
        evaluate(rich)
    finally:
        gc.enable()
    assert len(alive) > 5
    assert max(alive) - min(alive) < 3


def test_severities_are_counted(faulty: GateResult) -> None:
    critical = len(FAULTS) + len(OTHER_FAULTS) - 3
    assert faulty.by_severity == {"critical": critical, "warning": 2, "info": 1}
    assert failure_of(faulty, "offsets.committed_offset.minimum").severity is Severity.WARNING


def test_what_merely_stands_in_the_log_is_no_contradiction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("offsets", "pending_offsets", "transactions", "carried_records", "load_failures")
    monkeypatch.setattr(gate, "suites", lambda: {name: suites()[name] for name in names})
    of_none = build_batch(0, [commit("of none")], transactional=True, producer_id=-1, producer_epoch=-1)
    odd = commit("below", partition=-1), (commit("carried")[0], b"\xff\xff"), of_none
    log = one(commit("h"), *odd, release="3.9.2")
    result = evaluate(log.publish(tmp_path))
    assert result.passed(Severity.CRITICAL)
    assert {failure.code for failure in result.failures} == {
        "offsets.partition.minimum",
        *(f"{name}.producer_{what}.minimum" for name in names[1:3] for what in ("id", "epoch")),
    }


def test_record_offsets_that_repeat_are_no_contradiction(tmp_path: Path) -> None:
    """A broker that starts after a clean shutdown keeps such batches, and so does ``--partial``."""
    unknown = build_batch(0, [(b"\x00\x63", b"")])
    unread = build_batch(1, [(commit("g")[0], b"\xff\xff")])
    ended = [
        part
        for _ in range(2)
        for part in (
            build_batch(2, [commit("g")], transactional=True, producer_id=7, producer_epoch=0),
            build_control_batch(3, ControlType.COMMIT, producer_id=7, producer_epoch=0),
        )
    ]
    data = b"".join([unknown, unknown, unread, unread, *ended])
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / CLEAN_SHUTDOWN_FILE).touch()
    run = replace(one(), partitions={0: data}, on_damage=OnDamage.RECOVER).publish(tmp_path)
    for name, rows in (("carried_records", 4), ("load_failures", 2), ("transactions", 2)):
        table = run.table(name)
        keys = set(zip(*(table[column].to_pylist() for column in TABLES[name].key), strict=True))
        assert (table.num_rows, len(keys)) == (rows, rows // 2)
    result = evaluate(run)
    assert (result.passed(Severity.CRITICAL), result.evaluated) == (True, DECLARED - 3)


class References(HTMLParser):
    """Addresses that a browser would load for a page, and targets of its links."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.links: list[str] = []
        self.tags: set[str] = set()
        self.policy = ""
        self.feed(page.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        values = dict(attrs)
        if tag == "a":
            self.links.append(values.get("href") or "")
        else:
            self.loaded += [values[name] or "" for name in ("src", "href", "data", "srcset") if name in values]
        if tag == "meta" and values.get("http-equiv") == "Content-Security-Policy":
            self.policy = values["content"] or ""


def test_data_docs_load_nothing(faulty: GateResult, docs: Path) -> None:
    pages = sorted(docs.rglob("*.html"))
    assert {path.stem for path in (docs / "expectations").iterdir()} == set(suites())
    assert {path.name for path in (docs / "validations").iterdir()} == set(suites())
    assert {path.suffix for path in docs.rglob("*") if path.is_file()} == {".html"}
    for page in pages:
        found = References(page)
        assert found.loaded == []
        assert not found.tags & {"script", "link", "img", "iframe", "object", "embed"}
        assert found.policy == "default-src 'none'; style-src 'unsafe-inline'"
        assert "url(" not in page.read_text("utf-8")
        assert "@import" not in page.read_text("utf-8")


def test_data_docs_begin_with_the_verdict_and_link_to_every_suite(faulty: GateResult, docs: Path) -> None:
    index = (docs / "index.html").read_text("utf-8")
    assert "<h1>Quality gate: not passed</h1>" in index
    assert all(failure.code in index for failure in faulty.failures)
    links = References(docs / "index.html").links
    assert len(links) == len(suites())
    assert all((docs / link).is_file() for link in links)
    offsets = next((docs / "validations" / "offsets").rglob("*.html"))
    assert str(10**9) in offsets.read_text("utf-8")
    home = [link for link in References(offsets).links if link.endswith("index.html")]
    assert home
    assert all((offsets.parent / link).resolve() == docs / "index.html" for link in home)


def test_what_was_not_evaluated_is_refused(
    rich: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Dropped by GX, raised for want of a column, and no table at all: nothing of that is a pass."""
    from great_expectations.expectations import registry

    import expectations.custom  # noqa: F401 - registers what is now taken away, as if it were not imported

    monkeypatch.delitem(registry._registered_expectations, "expect_record_offset_inside_cut")
    run = FaultyRun(rich, tmp_path / "run")
    transactions = pq.read_table(run.part("transactions"), partitioning=None)
    run.write("transactions", transactions.drop_columns(["keys"]))
    run.part("segments").write_bytes(b"PAR1 but not really PAR1")
    assert main([run.opened().path, "--format", "json", "--fail-on", "critical"]) == 1
    document = json.loads(capsys.readouterr().out)
    reasons = {refusal["code"]: refusal["reason"] for refusal in document["refusals"]}
    segments = {check.code for check in suites()["segments"]}
    dropped = {check.code for suite in suites().values() for check in suite if ".cut" in check.code}
    raised = {"transactions.not_null", "transactions.keys.minimum"}
    assert set(reasons) == segments | dropped | raised
    assert {reasons[code] for code in dropped - segments} == {"GX dropped it"}
    assert all(reasons[code].startswith("it raised: ") and "keys" in reasons[code] for code in raised)
    assert all("segments/part-00000.parquet cannot be read" in reasons[code] for code in segments)
    assert document["evaluated"] == document["declared"] - len(reasons)
    assert [failure["code"] for failure in document["failures"]] == ["transactions.schema", "files.intact"]
    assert document["failures"][0]["observed"] == "keys is missing"


def test_results_must_match_the_declaration_one_to_one() -> None:
    from great_expectations.core import ExpectationSuiteValidationResult, ExpectationValidationResult
    from great_expectations.expectations.expectation_configuration import ExpectationConfiguration

    def result(code: str) -> ExpectationValidationResult:
        config = ExpectationConfiguration("expect_table_row_count_to_equal", {"value": 1}, {"code": code})
        return ExpectationValidationResult(success=True, expectation_config=config, result={})

    checks = [Check(code, "expect_table_row_count_to_equal", {}, code) for code in ("t.a", "t.b", "t.c")]
    outcomes = ExpectationSuiteValidationResult(True, [result("t.a"), result("t.b"), result("t.b"), result("t.x")], "t")
    assert judge(checks, pa.table({}), outcomes) == (
        [],
        [
            Refusal("t.b", "it was evaluated 2 times"),
            Refusal("t.c", "GX dropped it"),
            Refusal("t.x", "it was evaluated but not declared"),
        ],
    )


@pytest.mark.parametrize(
    "severity, fails_on",
    [("INFO", {"INFO"}), ("WARNING", {"INFO", "WARNING"}), ("CRITICAL", {*Severity.__members__})],
)
def test_the_gate_passes_below_the_chosen_severity(severity: str, fails_on: set[str]) -> None:
    result = GateResult("r", 1, 1, (Failure("t.a", Severity[severity], "", None, (), None),), ())
    assert {level.name for level in Severity if not result.passed(level)} == fails_on
    refused = GateResult("r", 1, 0, (), (Refusal("t.a", "x"),))
    assert not any(refused.passed(level) for level in Severity)
