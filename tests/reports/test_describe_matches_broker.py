"""``regroup describe --format json`` says what a broker rebuilt from the same log, for every corpus case."""

from __future__ import annotations

import json

import pytest

from coordinator_core.cli.app import run
from tests.cases import CASES, TORN, Case, cross_section
from tests.reports.broker_answers import comparable, expected_groups


@pytest.mark.parametrize("case", cross_section(CASES))
def test_describe_equals_what_the_broker_reloaded(case: Case, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    arguments = ["describe", "--format", "json", "--now-ms", "0", *case.command_line()]
    if case in TORN:
        arguments.append("--partial")
    code = run(arguments)
    captured = capfdbinary.readouterr()
    assert code == 0, captured.err.decode()
    document = json.loads(captured.out)
    ours = {group["group_id"]: comparable(group, case) for group in document["groups"]}
    theirs = expected_groups(case)
    assert sorted(ours) == sorted(theirs)
    for group_id, group in theirs.items():
        assert ours[group_id] == group, group_id
