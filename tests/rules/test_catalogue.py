"""Every rule has a fault that fires it and no other; a healthy log fires none."""

from __future__ import annotations

from pathlib import Path

import pytest

from coordinator_core.records.codec import encode_key
from coordinator_core.rules.catalogue import RULES
from tests.log.builders import NOW_MS
from tests.rules.faults import DAY, FAULTS, SCALA, at
from tests.rules.logs import HEALTHY, TOPICS, classic, commit, empty_group, offset_tombstone, one


def test_every_rule_has_a_fault() -> None:
    assert sorted(FAULTS) == sorted(RULES)


@pytest.mark.parametrize("code", sorted(RULES))
def test_the_fault_fires_the_rule_and_no_other(code: str, tmp_path: Path) -> None:
    found = FAULTS[code].reconcile(tmp_path)
    assert code in found.evaluated
    assert {row["rule"] for row in found.findings.to_pylist()} == {code}, [
        (row["rule"], row["message"]) for row in found.findings.to_pylist()
    ]


@pytest.mark.parametrize("release", ["0.10.0.1", "4.3.1"])
def test_odd_logs_are_looked_at_to_the_end(release: str, tmp_path: Path) -> None:
    """Offsets without groups, groups without offsets, nothing at all: each with another of them before."""
    parts = [[], [commit(version=1)], [empty_group("e")], [offset_tombstone("x")]]
    for number, part in enumerate(parts):
        before = one(*parts[number - 1], release=release)
        log = one(*part, release=release, topics=TOPICS, previous=before, scanned=True)
        assert log.reconcile(tmp_path / str(number)).evaluated


def test_what_may_have_been_deleted_proves_no_retention(tmp_path: Path) -> None:
    """Groups like those of the fault of R69, all removed at one moment."""
    names = ("q", "r", "s")
    log = one(
        *HEALTHY,
        *(at(0, empty_group(name), commit(name, f"u{name}", version=3)) for name in names),
        *(at(2 * DAY, offset_tombstone(name, f"u{name}"), (encode_key(2, {"group": name}), None)) for name in names),
        **SCALA | {"now_ms": FAULTS["R69"].now_ms},
    )
    found = log.reconcile(tmp_path)
    assert "R69" in found.evaluated
    assert "R69" not in found.findings["rule"].to_pylist()


@pytest.mark.parametrize(("since_capture_ms", "codes"), [(0, ["R31"]), (1, [])])
def test_a_log_end_that_was_noted_before_a_commit_says_nothing_of_it(
    since_capture_ms: int, codes: list[str], tmp_path: Path
) -> None:
    log = one(classic(), commit(offset=101, time_ms=NOW_MS + since_capture_ms), topics=TOPICS)
    assert log.reconcile(tmp_path).findings["rule"].to_pylist() == codes


def test_a_healthy_log_has_no_finding(tmp_path: Path) -> None:
    log = one(*HEALTHY, topics=TOPICS, previous=one(*HEALTHY), scanned=True, going={})
    found = log.reconcile(tmp_path)
    assert found.findings.num_rows == 0
    assert not found.not_evaluated
    assert len(found.evaluated) + len(found.not_applicable) == len(RULES)
