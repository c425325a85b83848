"""The rules on logs of real brokers, and the page that lists what they say of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from coordinator_core.rules.evaluate import Reconciliation
from coordinator_core.rules.model import Severity
from tests.cases import CASES, Case
from tests.rules.corpus import UNCLEAN, all_reconciled, reason
from tests.rules.page import page

ROOT = Path(__file__).parent.parent.parent
CLEAN = [case for case in CASES if reason(case) is None]


@pytest.fixture(scope="module")
def of_case(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Reconciliation]:
    return all_reconciled(tmp_path_factory.mktemp("runs"))


@pytest.mark.parametrize("case", CLEAN, ids=lambda case: case.name)
def test_a_clean_log_has_no_finding_above_info(case: Case, of_case: dict[str, Reconciliation]) -> None:
    assert of_case[case.name].worst in (None, Severity.INFO)


def test_the_page_is_what_the_catalogue_and_the_corpus_say(of_case: dict[str, Reconciliation]) -> None:
    made = page(of_case)
    assert made == (ROOT / "docs" / "rules.md").read_text(encoding="utf-8")
    for name in UNCLEAN:
        assert f"| {name}" in made
