"""Rules in Spark: the findings of the local engine, for every seeded fault and for logs of real brokers."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from coordinator_core.cli.app import run as regroup
from coordinator_core.errors import DamagedInputError, ExitCode
from coordinator_core.reports.run_metrics import run_metrics
from coordinator_core.reports.run_report import run_report
from coordinator_core.rules.catalogue import RULES
from coordinator_core.rules.evaluate import evaluate
from coordinator_core.rules.figures import DAYS
from coordinator_core.rules.figures_publish import publish_figures, read_figures
from coordinator_core.rules.inputs import Inputs
from coordinator_core.rules.needs import Need
from coordinator_core.rules.parts import RunPart
from coordinator_core.rules.publish import publish_findings, read_reconciliation
from coordinator_core.rules.settings import settings_from
from coordinator_core.runs.read import Run
from spark_apps import reconcile as app
from spark_apps import replay
from spark_apps.rules import parts_of, reconcile
from spark_apps.session import Session

from ..cases import case
from ..examples import one_in
from ..rules.corpus import published, topics_of
from ..rules.faults import FAULTS
from ..rules.logs import HEALTHY, TOPICS, Log, commit, one
from ..rules.together import ALONE, together
from ..runs.state_tables import tables_of


def inputs_of(log: Log, directory: Path) -> Inputs:
    facts = log.facts(directory)
    return Inputs(
        facts.run,
        facts.topics,
        None if facts.previous is None else facts.previous.run,
        (str(directory / "now/log"),) if log.scanned else (),
        facts.extra.get(Need.TRANSACTION_LOG),
        settings_from(log.settings, RULES),
        None,
    )


def checked(session: Session, inputs: Inputs) -> pa.Table:
    """The findings, which are the same in Spark as here."""
    local_facts = inputs.facts()
    local = evaluate(local_facts, inputs.settings, codes=inputs.codes)
    facts, found, figures = reconcile(session.context, inputs)
    assert found.findings.equals(local.findings)
    assert found == replace(local, findings=found.findings)
    directory = publish_findings(facts, found)
    assert directory == publish_findings(local_facts, local)
    publish_figures(figures, directory)
    report, lag = run_report(local_facts, local)
    reported, read_lag = run_report(facts, found, figures=read_figures(directory))
    assert reported == report
    assert run_metrics(reported, facts, read_lag) == run_metrics(report, local_facts, lag)
    return found.findings


def codes(findings: pa.Table) -> set[str]:
    return set(findings["rule"].to_pylist())


@pytest.fixture(scope="module")
def faults(tmp_path_factory: pytest.TempPathFactory) -> Inputs:
    return inputs_of(together(), tmp_path_factory.mktemp("faults"))


def test_all_faults_in_one_log(session: Session, faults: Inputs) -> None:
    assert len(parts_of(faults, 8)) > 4
    assert codes(checked(session, faults)) >= set(FAULTS) - set(ALONE) - {"R08"} | {"R04", "R22"}


@pytest.mark.full
def test_findings_that_are_too_many_become_one_of_a_group(session: Session, faults: Inputs) -> None:
    mutes = [{"rule": "R36", "topic": "u", "reason": "known", "until": "2030-01-01"}]
    few = replace(faults, settings=settings_from({"thresholds": {"findings_per_rule": 2}, "mutes": mutes}, RULES))
    findings = checked(session, few)
    assert max(findings["rows"].to_pylist()) > 1
    assert {row["topic"] for row in findings.to_pylist() if row["muted"]} == {"u"}


def test_some_rules_only(session: Session, faults: Inputs) -> None:
    assert codes(checked(session, replace(faults, codes=("R22", "R33")))) == {"R22", "R33"}


@pytest.mark.parametrize("code", one_in(3, [*ALONE, "R22"]))
def test_a_fault_on_its_own(code: str, session: Session, tmp_path: Path) -> None:
    assert codes(checked(session, inputs_of(FAULTS[code], tmp_path))) == {code}


@pytest.mark.parametrize(
    "name",
    [
        "k392-classic",
        *(
            pytest.param(one, marks=pytest.mark.full)
            for one in ("k0102/before", "k431-compacted/A-uncleaned", "k431-mixed")
        ),
    ],
)
def test_logs_of_brokers(name: str, session: Session, tmp_path: Path) -> None:
    place = published(case(name), tmp_path)
    topics = topics_of(case(name))
    assert codes(checked(session, Inputs.read(place.path, topics=None if topics is None else str(topics))))


def test_a_run_without_partitions_has_a_part(session: Session, tmp_path: Path) -> None:
    inputs = inputs_of(one(*HEALTHY, topics=TOPICS), tmp_path)
    empty = Run(inputs.run.path, {**inputs.run.manifest, "cut": {}, "inputs": []})
    _, found, figures = reconcile(session.context, replace(inputs, run=empty))
    assert found.findings.num_rows == 0
    assert figures.ages.tolist() == [0] * DAYS
    assert figures.lag is not None


def test_a_part_of_a_run_has_the_rows_of_its_partitions(faults: Inputs) -> None:
    run = faults.run
    part = RunPart.of(run, {1, 5})
    groups = {group for name in ("groups", "group_stats") for group in run.table(name)["group_id"].to_pylist()}
    for name, table in tables_of(run, group_ids=groups).items():
        mine = [row for row in table.to_pylist() if row["offsets_partition"] in (1, 5)]
        assert part.table(name, group_ids=groups).to_pylist() == mine, name
    assert [state.offsets_partition for state in part.states(group_ids=["g"])] == [1, 5]


@pytest.mark.usefixtures("shared")
def test_the_app_publishes_and_says_where(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run = one(*HEALTHY, commit("s", "u", offset=-1)).publish(tmp_path).path
    result = tmp_path / "new" / "result.json"
    # A name may hold what splits lines; in ASCII it does not.
    mute = '{"rule": "R44", "group": "a\\u2028b\\ud800", "reason": "r", "until": "2999-01-01"}'
    (tmp_path / "rules.yaml").write_text(f"mutes: [{mute}]")
    command = ["--run", run, "--result", str(result), "--rules", str(tmp_path / "rules.yaml")]
    assert app.APP.run(command) == ExitCode.CLEAN
    said = capfd.readouterr().out
    assert said.isascii()
    told = json.loads(said.splitlines()[-1])
    assert json.loads(result.read_text()) == told
    summary, found = read_reconciliation(told["findings"])
    assert found.findings["rule"].to_pylist() == ["R44"]
    assert {name: told[name] for name in summary} == summary
    assert app.APP.run(["--run", str(tmp_path)]) == ExitCode.USAGE


def test_the_command_is_the_same_with_both_engines(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run = one(*HEALTHY, commit("s", "u", offset=-1)).publish(tmp_path).path
    said = []
    for engine in ([], ["--engine", "spark", "--master", "local[1]"]):
        assert regroup(["reconcile", run, "--format", "json", *engine]) == ExitCode.FINDINGS
        said.append(json.loads(capfd.readouterr().out))
    assert said[0] == said[1]


def test_what_a_task_cannot_read_ends_with_its_reason(session: Session, tmp_path: Path) -> None:
    inputs = inputs_of(one(*HEALTHY), tmp_path)
    (Path(inputs.run.path) / "offsets" / "part-00000.parquet").write_bytes(b"PAR1")
    with pytest.raises(DamagedInputError, match=r"part-00000\.parquet: .*changed_since_published"):
        reconcile(session.context, inputs)


@pytest.mark.usefixtures("shared")
def test_a_run_that_a_gate_will_judge_is_not_the_latest(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    one(*HEALTHY).publish(tmp_path)
    place = ["--snapshot", str(tmp_path / "log"), "--output", str(tmp_path / "out"), "--cluster", "c"]
    for options, is_latest in ((["--no-latest"], False), ([], True)):
        assert replay.APP.run([*place, *options]) == ExitCode.CLEAN
        assert json.loads(capfd.readouterr().out.splitlines()[-1])["latest"] is is_latest
        assert (tmp_path / "out/c/latest.json").exists() is is_latest
