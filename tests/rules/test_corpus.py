"""The rules on logs of real brokers: what the brokers' answers make them find, with a reason for each finding."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from coordinator_core.rules.catalogue import RULES
from coordinator_core.rules.evaluate import Reconciliation
from coordinator_core.rules.model import Severity
from tests.cases import CASES, FEW_CASES, Case, case, cross_section
from tests.rules import recorded
from tests.rules.corpus import REASONS, Reason, reasons, reconciled
from tests.rules.page import page

ROOT = Path(__file__).parent.parent.parent
EACH = pytest.mark.parametrize("one", CASES, ids=lambda one: one.name)
ABOVE_INFO = {code for code, rule in RULES.items() if rule.severity is not Severity.INFO}


CROSS_SECTION = pytest.mark.parametrize("one", cross_section(CASES, (*FEW_CASES, "k431-cluster", "k082/plain")))


@pytest.fixture(scope="module")
def of_case(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Case], Reconciliation]:
    return cache(lambda one: reconciled(one, tmp_path_factory.mktemp("runs")))


def rows(found: Reconciliation) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = found.findings.to_pylist()
    return listed


def subject(row: dict[str, Any]) -> recorded.Finding:
    return row["rule"], row["group_id"], row["topic"], row["partition"]


@CROSS_SECTION
def test_the_rules_find_what_the_broker_recorded(one: Case, of_case: Callable[[Case], Reconciliation]) -> None:
    found = {subject(row) for row in rows(of_case(one)) if row["rule"] not in recorded.BY_HAND}
    assert found == recorded.findings(one)


@CROSS_SECTION
def test_a_finding_has_a_reason_and_a_reason_its_findings(one: Case, of_case: Callable[[Case], Reconciliation]) -> None:
    explained = [row for row in rows(of_case(one)) if row["rule"] in ABOVE_INFO | recorded.BY_HAND]
    assert {subject(row) for row in explained} == {found for reason in reasons(one) for found in reason.findings}
    at = {
        (row["rule"], evidence["kind"], evidence["byte_position"])
        for row in explained
        if "byte_position" in (evidence := json.loads(row["evidence"]))
    }
    assert at == {(reason.rule, *where) for reason in reasons(one) for where in reason.bytes}


@EACH
def test_the_reasons_are_those_of_the_recorded_answers(one: Case) -> None:
    """No rule runs here: reasons are checked by the brokers' data alone."""
    explained = {found for reason in reasons(one) for found in reason.findings if reason.rule not in recorded.BY_HAND}
    assert explained == {found for found in recorded.findings(one) if found[0] in ABOVE_INFO}


@pytest.mark.parametrize("reason", [reason for reason in REASONS if reason.bytes], ids=lambda reason: reason.cases[0])
def test_the_damage_is_what_was_done_and_what_the_broker_cut(reason: Reason) -> None:
    (name,) = reason.cases
    said, cut = recorded.damage(case(name))
    (log,) = (path for log in case(name).paths for path in log.rglob("*.log"))
    for kind, position in reason.bytes:
        assert str(position) in said or "same bit of byte 3513" in said
        assert kind != "not_read" or log.stat().st_size - position == cut
    assert ("not_read" in dict(reason.bytes)) == (cut > 0)


@EACH
def test_the_formats_are_those_that_the_dump_tool_printed(one: Case) -> None:
    mixed = [reason.formats for reason in reasons(one) if reason.formats]
    formats = tuple(sorted(recorded.formats(one)))
    assert mixed == ([formats] if len(formats) > 1 else [])


def test_every_reason_is_of_a_case() -> None:
    assert {name for reason in REASONS for name in reason.cases} <= {one.name for one in CASES}


def test_the_page_is_what_the_catalogue_and_the_reasons_say() -> None:
    assert page() == (ROOT / "docs" / "rules.md").read_text(encoding="utf-8")
