"""``offsets_restore`` without a cluster: the command that its form makes, and what its teardown knows of an apply."""

from __future__ import annotations

import json
import re
import threading
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from coordinator_core.drill.journal import JOURNAL, JournalBusyError
from coordinator_core.drill.shared_journal import open_journal
from coordinator_core.groups.model import OffsetKey
from coordinator_core.restore.decide import Choices, decide
from coordinator_core.restore.model import Plan, Position, write_plan
from coordinator_core.restore.source import Wanted
from coordinator_core.restore.target import LogRange, Target, TargetGroup, TargetTopic
from dags.common import restore
from dags.common.clusters import CLUSTERS_ENV, load_clusters
from dags.common.command import regroup
from dags.offsets_restore import params as form


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    clusters = tmp_path / "clusters.yaml"
    section = "restore: {connection: k}"
    clusters.write_text(f"clusters: {{c: {{source: log, output: runs, kafka_version: '3.9.2', {section}}}}}")
    monkeypatch.setenv(CLUSTERS_ENV, str(clusters))
    return tmp_path


def filled(**given: Any) -> dict[str, Any]:
    """The form as it is sent with these fields."""
    return {name: param.resolve() for name, param in form(["c"]).items()} | given


def asked(**given: Any) -> list[str]:
    file = load_clusters()
    return list(restore.arguments(file, file.clusters["c"], filled(**given), "captures"))


REST = ["--out-of-range=fail", "--metadata=keep", "--new-groups=classic", "--kafka-version", "3.9.2"]


@pytest.mark.parametrize(
    "given, expected",
    [
        ({"groups": "a b\n --all-groups \n\n", "move": "to-earliest"}, ["--group=a b", "--group=--all-groups"]),
        ({"from_file": "wanted.csv", "group_names": "a=b"}, ["--from-file={root}/wanted.csv", "--map-group=a=b"]),
        ({"source": "one\n/two", "all_groups": True}, ["{root}/one", "/two", "--all-groups"]),
        # A point without a source: of the log of the cluster.
        ({"before_records": "0:5\n1:7"}, ["{root}/log", "--before-record=0:5", "--before-record=1:7"]),
        ({"at_time": "2026-05-12", "topics": "t:0,1"}, ["{root}/log", "--topic=t:0,1", "--at-time=2026-05-12"]),
        ({"before_incident": True}, ["{root}/log", "--before-incident"]),
    ],
)
def test_the_form_is_a_command(given: dict[str, Any], expected: list[str], directory: Path) -> None:
    words = [word.replace("{root}", str(directory)) for word in expected]
    words += [f"--{given['move']}"] if "move" in given else []
    assert asked(**given) == words + REST


def test_a_source_of_a_window_is_not_guessed(directory: Path) -> None:
    clusters = directory / "clusters.yaml"
    clusters.write_text(clusters.read_text().replace("source: log", "source: 'log/{window}/1'"))
    with pytest.raises(AirflowFailException, match=r"log/\{window\}/1 has a directory for each window"):
        asked(before_incident=True)
    assert asked(before_incident=True, source="log/2026-05-12/1")[0] == f"{directory}/log/2026-05-12/1"


def test_damage_of_the_log_is_read_past_where_the_cluster_says_so(directory: Path) -> None:
    clusters = directory / "clusters.yaml"
    clusters.write_text(clusters.read_text().replace("source: log", "source: log, partial: true"))
    assert asked(at_time="2026-05-12")[-3:] == ["--kafka-version", "3.9.2", "--partial"]
    assert asked(groups="a", move="to-earliest")[-1] == "3.9.2"


def test_trimming_deleting_and_other_topics_are_said(directory: Path) -> None:
    given = {"out_of_range": "trim", "metadata": "drop", "other_topics": True, "delete_others": True}
    words = ["--other-topics", "--delete-others", "--out-of-range=trim", "--metadata=drop", "--new-groups=share"]
    assert asked(**given, new_groups="share")[:5] == words


def test_what_a_command_says_is_in_the_error(directory: Path) -> None:
    with pytest.raises(AirflowFailException, match=r"exit code 2: regroup: error: .*plan\.json: .*No such file"):
        regroup("restore", "apply", str(directory / "plan.json"), "--bootstrap-server", "127.0.0.1:1")


def test_a_person_reads_what_is_worst_however_many_groups_are_warned_of(directory: Path) -> None:
    """Deleted groups come back, and one offset skips records."""
    absent = {OffsetKey(f"g{number:02}", "orders", 0): Position(1) for number in range(60)}
    warned = {key.group_id: (f"warning {key.group_id}",) for key in absent}
    held = TargetGroup("busy", state="Empty", offsets={("orders", 0): Position(5)})
    target = Target("b:9092", "id", {"busy": held}, {"orders": TargetTopic(None, {0: LogRange(0, 10**9)})}, 50)
    for wanted, more in (
        (Wanted(absent | {OffsetKey("busy", "orders", 0): Position(999_999)}), []),
        (Wanted(absent | {OffsetKey("busy", "orders", 0): Position(999_999)}, warnings=warned), ["41 warnings more"]),
    ):
        groups = tuple(decide(wanted, target, Choices({})))
        plan = Plan("restore", "id", "b:9092", "CSV", {}, 1, groups)
        body = "".join(restore._body(load_clusters().clusters["c"], plan, "digest", "plan.json"))
        assert body.count("60 groups, first g00: the group is absent") == 1
        first = next(line for line in body.splitlines() if line.startswith(("    update", "    create")))
        assert first.startswith("    update   busy orders-0: 5 to 999999, skips 999,994")
        found = re.findall(r"^    and (.*): the plan has all$", body, re.MULTILINE)
        assert found == [*more, "21 offsets more"]


def begun(directory: Path, digest: str, *groups: str) -> Path:
    """The journal of an apply of this plan that has begun these groups."""
    journal = directory / "applied" / JOURNAL
    journal.parent.mkdir(exist_ok=True)
    events: list[dict[str, Any]] = [{"event": "restore", "journal_version": 1, "plan_digest": digest}]
    events += [{"event": "begin", "group_id": group, "action": "update", "offset_keys": 1} for group in groups]
    journal.write_text("".join(json.dumps({"at_ms": 1, **event}) + "\n" for event in events))
    return journal


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Commands of ``regroup restore`` that were run, each with the groups that were begun by then. They do nothing; the
    plan of a rollback is empty."""
    said: list[str] = []

    def run(*words: str, connection: str) -> int:
        assert connection == "k"
        said.append(words[1])
        if words[1] == "rollback":
            groups = [json.loads(line).get("group_id") for line in Path(words[2], JOURNAL).read_text().splitlines()]
            said[-1] += " " + ",".join(group for group in groups if group)
            write_plan(words[4], Plan("rollback", "c", "t", "s", {}, 1, ()))
        return 0

    monkeypatch.setattr(restore, "regroup", run)
    return said


def test_the_teardown_knows_what_an_apply_has_begun(directory: Path) -> None:
    planned, params = {"directory": str(directory), "digest": "d"}, filled()
    restore.rollback(planned, "d", params)
    with pytest.raises(AirflowException, match="nobody knows whether something was written") as raised:
        restore.rollback(planned, None, params)
    # Another attempt may come to the right worker.
    assert not isinstance(raised.value, AirflowFailException)
    journal = begun(directory, "d")
    whole = journal.read_text()
    for text in ("", '{"at_ms": 1, "ev', whole):
        journal.write_text(text)
        restore.rollback(planned, None, params)
    journal.write_text("{}\n")
    with pytest.raises(AirflowFailException, match="damaged input"):
        restore.rollback(planned, None, params)


def test_the_proof_of_an_earlier_plan_keeps_nothing(directory: Path, commands: list[str]) -> None:
    """A proved run of which ``plan`` was cleared, and whose second apply failed: ``verify`` did not begin again."""
    planned = {"directory": str(directory), "digest": "first"}
    verified = restore.verify(planned, filled())
    restore.rollback(planned, verified, filled())
    assert commands == ["verify"]
    begun(directory, "second", "a")
    restore.rollback(planned | {"digest": "second"}, verified, filled())
    assert commands == ["verify", "rollback a"]


def test_what_was_undone_is_not_applied_again(directory: Path, commands: list[str]) -> None:
    planned = {"directory": str(directory), "digest": "d", "plan": "plan.json"}
    undoing = directory / "rolled-back" / JOURNAL
    undoing.parent.mkdir()
    # One that was killed before its first line has undone nothing.
    undoing.touch()
    restore.check(planned, filled())
    restore.apply(planned, filled())
    assert commands == ["apply", "apply"]
    undoing.write_text("{}\n")
    for task in (restore.check, restore.apply):
        with pytest.raises(AirflowFailException, match=r"applied and undone, so plan again: .*rolled-back/journal"):
            task(planned, filled())
    assert commands == ["apply", "apply"]


def test_the_teardown_waits_for_an_apply_that_goes_on(
    directory: Path, commands: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restore, "LOOK_SECONDS", 0.01)
    planned = {"directory": str(directory), "digest": "d"}
    path = begun(directory, "d", "a")
    with open_journal(path) as journal:
        teardown = threading.Thread(target=restore.rollback, args=(planned, None, filled()))
        teardown.start()
        teardown.join(0.2)
        assert teardown.is_alive()
        assert commands == []
        journal.write("begin", group_id="b", action="update", offset_keys=1)
    teardown.join()
    assert commands == ["rollback a,b"]


def test_nothing_is_written_while_the_teardown_is_at_work(
    directory: Path, commands: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, run = begun(directory, "d", "a"), restore.regroup

    def while_it_plans(*words: str, connection: str) -> int:
        with pytest.raises(JournalBusyError):
            open_journal(path, "another apply")
        return run(*words, connection=connection)

    monkeypatch.setattr(restore, "regroup", while_it_plans)
    restore.rollback({"directory": str(directory), "digest": "d"}, None, filled())
    assert commands == ["rollback a"]


def test_a_teardown_that_has_waited_too_long_is_tried_again(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restore, "WAIT_SECONDS", 0.0)
    # Airflow tries again after all errors but AirflowFailException.
    with open_journal(begun(directory, "d", "a")), pytest.raises(JournalBusyError, match="an apply is writing to it"):
        restore.rollback({"directory": str(directory), "digest": "d"}, None, filled())
