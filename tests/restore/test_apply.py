"""What an apply leaves and finds in its directory, and what it makes of a broker's answers, without a cluster."""

from __future__ import annotations

import signal
import threading
import uuid
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from coordinator_core.cli.app import run
from coordinator_core.cluster import restore_apply
from coordinator_core.cluster.client import LATEST
from coordinator_core.cluster.errors import ClusterError, LoginError, MissingAclError
from coordinator_core.cluster.restore_apply import (
    PLAN,
    ApplyOptions,
    InterruptedApplyError,
    apply_plan,
    begun_apply,
    refusals,
)
from coordinator_core.cluster.restore_target import check_seen, live_groups, live_target, offsets_at
from coordinator_core.cluster.restore_verify import read_apply, rollback_plan
from coordinator_core.cluster.snapshot import CaptureBusyError, CaptureDirectory
from coordinator_core.drill.journal import JOURNAL, Journal, JournalBusyError, JournalWriteError, read_journal
from coordinator_core.drill.shared_journal import open_journal
from coordinator_core.errors import ExitCode, UsageError
from coordinator_core.groups.model import OffsetKey, PartitionState, ShareGroup, ShareTopic
from coordinator_core.log.discovery import discover
from coordinator_core.log.types import OFFSETS_TOPIC
from coordinator_core.releases import profile_for_release
from coordinator_core.restore.decide import Choices, decide, group_plan
from coordinator_core.restore.model import Action, Plan, Position, Row, read_plan, write_plan
from coordinator_core.restore.source import Wanted
from coordinator_core.restore.target import Target, TargetGroup
from coordinator_core.runs.local import replay_snapshot
from tests.history.logs import Log
from tests.restore.one_process import OneProcess, fetched

CLIENT: Any = SimpleNamespace(cluster_id="c", max_version=lambda _: 8, patience_seconds=0.0)


def planned(path: Path, at_ms: int) -> Path:
    write_plan(str(path), Plan("rollback", "c", "t", "s", {}, at_ms, ()))
    return path


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster that refuses nothing, and has nothing to capture."""
    monkeypatch.setattr(restore_apply, "standing", lambda *_: [])
    monkeypatch.setattr(restore_apply, "capture", lambda *_: {"topics": [{"partitions": []}]})


@pytest.mark.usefixtures("quiet")
def test_one_that_was_killed_before_its_first_event_does_not_keep_its_plan(tmp_path: Path) -> None:
    """The next attempt of a rollback plans again: at another time, so that the digest is another."""
    directory = tmp_path / "rolled-back"
    directory.mkdir()
    planned(directory / PLAN, 1)
    (directory / JOURNAL).touch()
    digest, _ = apply_plan(CLIENT, planned(tmp_path / "again.json", 2), directory, ApplyOptions())
    plan, events = read_apply(str(directory))
    assert (plan.created_at_ms, events[0]["plan_digest"]) == (2, digest)


def test_another_plan_that_lies_there_stays(tmp_path: Path) -> None:
    """It was put there by somebody, who did not apply it."""
    directory = tmp_path / "plans"
    directory.mkdir()
    path = planned(directory / PLAN, 1)
    before = path.read_bytes()
    words = ["restore", "apply", str(planned(tmp_path / "plan.json", 2)), "--bootstrap-server", "b:1"]
    with pytest.raises(UsageError, match="is another plan, which no apply has put there; use another --output"):
        apply_plan(CLIENT, words[2], directory, ApplyOptions())
    assert (path.read_bytes(), [one.name for one in directory.iterdir()]) == (before, [PLAN])


@pytest.mark.usefixtures("quiet")
def test_a_plan_is_applied_where_it_lies(tmp_path: Path) -> None:
    path = planned(tmp_path / PLAN, 1)
    digest, _ = apply_plan(CLIENT, path, tmp_path, ApplyOptions())
    assert read_apply(str(tmp_path))[1][0]["plan_digest"] == digest


@pytest.mark.usefixtures("quiet")
def test_the_plan_of_one_that_has_begun_stays(tmp_path: Path) -> None:
    path, directory = planned(tmp_path / "plan.json", 1), tmp_path / "applied"
    digest, _ = apply_plan(CLIENT, path, directory, ApplyOptions())
    with pytest.raises(UsageError, match="holds the apply of another plan"):
        apply_plan(CLIENT, planned(path, 2), directory, ApplyOptions())
    assert read_plan(directory / PLAN)[1] == digest


def test_in_the_directory_of_a_refused_apply_nothing_was_applied(tmp_path: Path) -> None:
    client = cluster("g")
    path, directory = restored(client, tmp_path / "plan.json", {"g": 5}), tmp_path / "applied"
    client.groups["g"] = {KEY: (2, -1, "")}
    with pytest.raises(UsageError, match="the plan is stale"):
        errors(client, path, directory)
    for wanted in (directory, tmp_path / "no-such-directory"):
        with pytest.raises(UsageError, match="nothing was applied"):
            read_apply(str(wanted))


@pytest.mark.parametrize(
    ("held", "said"),
    [
        ((2, 3, ""), "offset 2 (leader epoch 3) is committed now; plan again"),
        ((1, -1, "another"), "offset 1 has other metadata now; plan again"),
        (None, "nothing is committed now; plan again"),
        ((5, -1, ""), "offset 5 (leader epoch -1) is committed now, as planned; go on with"),
    ],
)
def test_a_stale_plan_says_what_differs(tmp_path: Path, held: tuple[int, int, str] | None, said: str) -> None:
    client = cluster("g")
    plan, _ = read_plan(restored(client, tmp_path / "plan.json", {"g": 5}))
    client.groups["g"] = {} if held is None else {KEY: held}
    (found,) = refusals(client, plan)
    assert found.text.startswith(f"the plan is stale: group 'g', orders-0: {said}")


@pytest.mark.parametrize(
    ("cluster_id", "said"),
    [("other", "cluster other, this is cluster"), (None, "a state of no known cluster (--against)")],
)
def test_a_plan_for_another_cluster_or_a_state_is_refused(tmp_path: Path, cluster_id: str | None, said: str) -> None:
    client = cluster("g")
    plan, _ = read_plan(restored(client, tmp_path / "plan.json", {"g": 5}))
    (found,) = refusals(client, replace(plan, cluster_id=cluster_id))
    assert found.text == f"the plan is for {said}"


def test_an_apply_is_verified_by_its_journal_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Its path is what the apply prints."""
    monkeypatch.setattr("coordinator_core.cluster.client.Client", lambda _: nullcontext(CLIENT))
    for name in ("", JOURNAL):
        assert run(["restore", "verify", str(tmp_path / name), "--bootstrap-server", "b:1"]) == ExitCode.USAGE
        assert f"{tmp_path}: nothing was applied: it has no {JOURNAL}" in capfd.readouterr().err
    (tmp_path / JOURNAL).touch()
    assert run(["restore", "verify", str(tmp_path), "--bootstrap-server", "b:1"]) == ExitCode.USAGE
    assert f"nothing was applied: there is no apply in its {JOURNAL}" in capfd.readouterr().err


def test_one_that_finds_another_at_work_may_try_again(tmp_path: Path) -> None:
    path = planned(tmp_path / "plan.json", 1)
    with open_journal(tmp_path / JOURNAL), pytest.raises(JournalBusyError, match="another apply is writing") as busy:
        apply_plan(CLIENT, path, tmp_path, ApplyOptions())
    assert busy.value.exit_code is ExitCode.INTERNAL
    # Not the error of one that was taken over, which must not go on.
    assert not isinstance(busy.value, JournalWriteError)


@pytest.mark.parametrize("directory", ["applied", f"applied/{JOURNAL}"])
@pytest.mark.parametrize("name", [PLAN, JOURNAL])
def test_the_way_back_does_not_replace_what_was_applied(
    tmp_path: Path, directory: str, name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    words = ["restore", "rollback", str(tmp_path / directory), "--bootstrap-server", "127.0.0.1:1"]
    assert run([*words, "--output", str(tmp_path / "applied" / name)]) == ExitCode.USAGE
    assert "is read by this command" in capfd.readouterr().err


def test_of_two_captures_the_second_may_try_again(tmp_path: Path) -> None:
    with CaptureDirectory.opened(tmp_path), pytest.raises(CaptureBusyError) as busy:
        CaptureDirectory.opened(tmp_path).__enter__()
    assert busy.value.exit_code is ExitCode.INTERNAL
    assert not isinstance(busy.value, UsageError)


KEY, OTHER = ("orders", 0), ("orders", 1)
LOGS = {"orders": (1, {0: (0, 1000, 5), 1: (0, 1000, 5)})}


def cluster(*group_ids: str) -> OneProcess:
    return OneProcess({group_id: {KEY: (1, -1, "")} for group_id in group_ids}, dict(LOGS))


def restored(client: OneProcess, path: Path, offsets: dict[str, int], epoch: int = -1) -> Path:
    """A plan that takes groups to these offsets of ``orders-0``."""
    keys = {OffsetKey(group_id, *KEY): offset for group_id, offset in offsets.items()}
    target = live_target(client, list(keys), list(offsets), {})
    topic_id = target.topics["orders"].topic_id if target.topics else None
    positions = {key: Position(offset, epoch, topic_id=topic_id) for key, offset in keys.items()}
    groups = decide(Wanted(positions), target, Choices({}))
    write_plan(str(path), Plan("restore", "cluster", "t", "s", {}, 1, tuple(groups)))
    return path


def rolled_back(client: OneProcess, applied: Path, path: Path) -> Path:
    write_plan(str(path), rollback_plan(client, str(applied)))
    return path


def errors(client: OneProcess, plan: Path, directory: Path) -> dict[str, list[str]]:
    """Errors of groups that are not applied."""
    _, results = apply_plan(client, plan, directory, ApplyOptions(parallel=1))
    return {one.group_id: [error for *_, error in one.errors] for one in results if one.errors}


def answering(answers: dict[str, Callable[[Any], Any]]) -> Callable[[str, Any], Any]:
    return lambda name, request: answers[name](request) if name in answers else None


@pytest.fixture
def uncaptured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restore_apply, "capture", lambda *_: {"topics": [{"partitions": []}]})


class Once:
    """A ListOffsets answer with an error code for ``orders-1`` at one time, so often; the broker's own after that."""

    def __init__(self, client: OneProcess, time: int, code: int, times: int) -> None:
        self._client, self._time, self._code, self._left = client, time, code, times

    def __call__(self, name: str, request: Any) -> Any:
        if name != "ListOffsets" or request.topics[0].partitions[0].timestamp != self._time or not self._left:
            return None
        self._left -= 1
        answer = self._client.list_offsets(request)
        for one in answer.topics[0].partitions:
            if one.partition_index == 1:
                one.error_code, one.offset = self._code, -1
        return answer


@pytest.mark.parametrize("time, code", [(7, 6), (LATEST, 78)], ids=["NOT_LEADER", "OFFSET_NOT_AVAILABLE"])
def test_an_error_is_not_an_offset_that_nobody_knows(time: int, code: int) -> None:
    client = cluster("g")
    keys = [OffsetKey("g", *KEY), OffsetKey("g", *OTHER)]

    def looked_up() -> Sequence[int]:
        if time == LATEST:
            target = live_target(client, keys, ["g"], {})
            return [target.log(*key[1:]).end for key in keys]
        found = offsets_at(client, keys, time)
        return [found[key[1:]] for key in keys]

    client.answer = Once(client, time, code, 1)
    assert looked_up() == ([1000, 1000] if time == LATEST else [500, 500])
    client.answer, client.patience_seconds = Once(client, time, code, -1), 0.0
    with pytest.raises(ClusterError, match="no leader of orders-1 answers"):
        looked_up()
    # What undoes an apply does not wait for a leader.
    assert live_target(client, keys, ["g"], {}, may_be_unknown=True).log(*KEY).start == 0


@pytest.mark.parametrize("time_ms", [-1, 1 << 63])
def test_what_is_no_time_asks_for_no_offset(time_ms: int) -> None:
    with pytest.raises(UsageError, match="is no time"):
        offsets_at(cluster("g"), [OffsetKey("g", *KEY)], time_ms)


@pytest.mark.parametrize(
    "topic, said",
    [
        ((2, {0: (0, 1000, 5)}), "the topic was made again"),
        ((1, {0: (901, 1000, 5)}), "offset 900 is outside of the log now, 901 to 1000"),
        ((1, {0: (0, 899, 5)}), "offset 900 is outside of the log now, 0 to 899"),
        ((1, {0: (0, 1000, 3)}), "leader epoch 4 is above the current one, 3"),
        # A partition that is gone fails alone.
        ((1, {}), None),
        ((1, {0: (900, 900, 4)}), None),
    ],
)
def test_topics_are_read_again(tmp_path: Path, topic: Any, said: str | None) -> None:
    client = cluster("g")
    plan, _ = read_plan(restored(client, tmp_path / "plan.json", {"g": 900}, 4))
    client.logs["orders"] = topic
    found = [one.text for one in refusals(client, plan)]
    assert found == [] if said is None else said in found[0]
    # Of a rollback an offset may be below the log start: it was there.
    assert refusals(client, replace(plan, kind="rollback")) == []


@pytest.mark.usefixtures("uncaptured")
def test_a_commit_needs_no_leader_of_its_topic(tmp_path: Path) -> None:
    client = cluster("g")
    keys = {OffsetKey("g", *KEY): Position(5), OffsetKey("g", *OTHER): Position(7)}
    groups = decide(Wanted(keys), live_target(client, list(keys), ["g"], {}), Choices({}))
    path = tmp_path / "plan.json"
    write_plan(str(path), Plan("restore", "cluster", "t", "s", {}, 1, tuple(groups)))
    client.answer, client.patience_seconds = Once(client, LATEST, 6, -1), 0.1
    # What is known of topics counts all the same.
    for topic, said in (
        ((1, {0: (0, 4, 5), 1: (0, 1000, 5)}), "orders-0: offset 5 is outside of the log"),
        ((2, LOGS["orders"][1]), "orders-0: the topic was made again"),
    ):
        client.logs["orders"] = topic
        with pytest.raises(UsageError, match=said):
            apply_plan(client, path, tmp_path / "refused", ApplyOptions())
    client.logs |= LOGS
    assert errors(client, path, tmp_path / "applied") == {}
    assert client.groups == {"g": {KEY: (5, -1, ""), OTHER: (7, -1, "")}}


@pytest.mark.usefixtures("uncaptured")
def test_one_that_was_killed_before_its_verdict_gets_it(tmp_path: Path) -> None:
    client = cluster("a", "b")
    path, directory = restored(client, tmp_path / "plan.json", {"a": 5, "b": 6}), tmp_path / "applied"
    assert errors(client, path, directory) == {}
    journal = directory / JOURNAL
    *before, _ = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(before))
    client.groups["a"] = {KEY: (1, -1, "")}
    with pytest.raises(UsageError, match="written before, and changed since"):
        apply_plan(client, path, directory, ApplyOptions())
    # Consumers have gone on.
    client.groups["a"] = {KEY: (9, -1, "")}
    assert errors(client, path, directory) == {}
    assert client.groups == {"a": {KEY: (9, -1, "")}, "b": {KEY: (6, -1, "")}}
    _, events = read_apply(str(directory))
    assert [event["event"] for event in events[-2:]] == ["end", "verdict"]
    assert (events[-1]["groups"], events[-1]["failed"]) == (2, [])


@pytest.mark.usefixtures("uncaptured")
def test_a_group_is_not_deleted_with_what_others_have_committed(tmp_path: Path) -> None:
    """Neither with what answers of all offsets leave out: offsets of an open transaction, and of other topics."""
    client = cluster()
    apply_plan(client, restored(client, tmp_path / "plan.json", {"made": 5}), tmp_path / "applied", ApplyOptions())
    back = rolled_back(client, tmp_path / "applied", tmp_path / "back.json")
    client.groups["made"]["secret", 0] = (77, -1, "of another")
    client.answer = answering({"OffsetFetch": lambda request: only_of("orders", client.offset_fetch(request))})
    assert errors(client, back, tmp_path / "back") == {}
    assert client.groups == {"made": {("secret", 0): (77, -1, "of another")}}


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize(
    "topics, said",
    [
        (["orders"], {}),
        (
            ["orders", "secret"],
            {"s": ["it would be deleted with its start offsets of topic secret, which the plan does not show"]},
        ),
    ],
)
def test_a_share_group_is_deleted_if_the_log_has_no_more_than_answers_show(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, topics: list[str], said: dict[str, list[str]]
) -> None:
    client = cluster("s")
    starts = SimpleNamespace(partition_index=0, error_code=0, start_offset=5)
    shown = SimpleNamespace(topic_name="orders", topic_id=uuid.UUID(int=1), partitions=[starts])
    described = SimpleNamespace(groups=[SimpleNamespace(group_id="s", error_code=0, topics=[shown])])
    client.answer = answering({"DescribeShareGroupOffsets": lambda _: described})
    state = PartitionState(0)
    state.groups["s"] = ShareGroup("s", topics=tuple(ShareTopic(one, one, "initialized", (0,), 1) for one in topics))
    monkeypatch.setattr(restore_apply, "replayed", lambda *_: [state])
    now = TargetGroup("s", "share", "Empty", 0, {KEY: Position(5)})
    row = Row("s", *KEY, Action.DELETE, Position(5), None, "")
    to = Target("t", "cluster", {"s": now}, None, 1)
    path = tmp_path / "plan.json"
    write_plan(str(path), Plan("rollback", "cluster", "t", "s", {}, 1, (group_plan(now, to, [row], delete=True),)))
    assert errors(client, path, tmp_path / "back") == said
    assert ("s" in client.groups) == bool(said)


def test_a_chosen_topic_that_may_not_be_described_is_named() -> None:
    client = cluster("g")
    hidden = SimpleNamespace(name="secret", error_code=29, topic_id=None, partitions=[])

    def metadata(request: Any) -> Any:
        return SimpleNamespace(topics=[hidden]) if request.topics and request.topics[0].name == "secret" else None

    client.answer = answering({"Metadata": metadata})
    with pytest.raises(MissingAclError, match="the ACL Describe on Topic:secret"):
        live_target(client, [], ["g"], {"secret": None})
    # One that is not there is no matter of permissions.
    assert "ordres" not in (live_target(client, [], ["g"], {"ordres": None}).topics or ())


def test_an_offset_that_only_the_log_shows_is_named(tmp_path: Path) -> None:
    client = cluster("g", "h")
    client.groups["h"] = {}
    target = live_target(client, [], None, {})
    log = Log()
    for group_id, topic in (("g", "orders"), ("g", "secret"), ("gone", "secret"), ("h", "orders")):
        log = log.commit(group_id, {(topic, 0): 5})
    snapshot = discover([str(log.write(tmp_path, 0))])
    states = replay_snapshot(snapshot, profile_for_release("3.9.2"), damage=[])

    def fetch(request: Any) -> Any:
        answer = client.offset_fetch(request)
        for topic in (topic for group in answer.groups for topic in group.topics if topic.name == "secret"):
            topic.partitions[0].error_code = 29
        return answer

    client.answer = answering({"OffsetFetch": fetch})
    with pytest.raises(MissingAclError, match="of group 'g' needs the ACL Describe on Topic:secret"):
        check_seen(client, target, states, {})
    # One that went since the capture is none.
    check_seen(client, target, states, {"orders": None})


@pytest.mark.usefixtures("uncaptured")
def test_a_group_that_is_in_use_keeps_no_other_from_going_back(tmp_path: Path) -> None:
    client = cluster("a", "b", "c")
    plan, directory = restored(client, tmp_path / "plan.json", {"a": 5, "b": 5, "c": 5}), tmp_path / "applied"
    assert errors(client, plan, directory) == {}
    client.groups["b"] = {KEY: (6, -1, "its consumers have begun")}
    whole = rollback_plan(client, str(directory))
    assert str(whole.obstacle()).endswith("; 2 other groups can be planned without it (--group)")
    write_plan(str(tmp_path / "back.json"), rollback_plan(client, str(directory), ["a", "c"]))
    assert errors(client, tmp_path / "back.json", tmp_path / "back") == {}
    assert {group_id: held[KEY][0] for group_id, held in client.groups.items()} == {"a": 1, "b": 6, "c": 1}
    assert "--group" not in str(rollback_plan(client, str(directory), ["b"]).obstacle())
    with pytest.raises(UsageError, match="has not begun group 'd'"):
        rollback_plan(client, str(directory), ["a", "d"])


@pytest.mark.usefixtures("uncaptured")
def test_errors_name_the_acl_that_is_missing(tmp_path: Path) -> None:
    client = cluster("g")
    plan, directory = restored(client, tmp_path / "plan.json", {"g": 5, "made": 5}), tmp_path / "applied"

    def refused(code: int, group_id: str) -> Callable[[Any], Any]:
        def answer(request: Any) -> Any:
            one = SimpleNamespace(name="orders", partitions=[SimpleNamespace(partition_index=0, error_code=code)])
            return SimpleNamespace(error_code=0, topics=[one]) if request.group_id == group_id else None

        return answer

    client.answer = answering({"OffsetCommit": refused(29, "g")})
    topic = "TOPIC_AUTHORIZATION_FAILED: it needs the ACL Read on Topic:orders"
    assert errors(client, plan, directory) == {"g": [topic]}
    client.answer = answering({"OffsetCommit": refused(30, "g")})
    assert errors(client, plan, directory) == {"g": ["GROUP_AUTHORIZATION_FAILED: it needs the ACL Read on Group:g"]}
    client.answer = answering({})
    assert errors(client, plan, directory) == {}
    back = rolled_back(client, directory, tmp_path / "back.json")
    client.answer = answering({"OffsetDelete": lambda _: SimpleNamespace(error_code=30, topics=[])})
    group = "GROUP_AUTHORIZATION_FAILED: it needs the ACL Delete on Group:made"
    assert errors(client, back, tmp_path / "back") == {"made": [group]}


def only_of(topic: str, answer: Any) -> Any:
    for group in answer.groups:
        group.topics = [one for one in group.topics if one.name == topic]
    return answer


@pytest.mark.parametrize(
    "answer",
    [
        lambda asked: [fetched(KEY, None, -1)],
        lambda asked: [],
        lambda asked: [fetched(("other", 0), None)] if asked.topics else [],
    ],
    ids=["UNKNOWN_SERVER_ERROR", "left out", "another"],
)
def test_no_answer_about_an_offset_is_not_no_offset(answer: Callable[[Any], Any]) -> None:
    client = cluster("g")

    def fetch(request: Any) -> Any:
        (asked,) = request.groups
        return SimpleNamespace(groups=[SimpleNamespace(group_id="g", error_code=0, topics=answer(asked))])

    client.answer = answering({"OffsetFetch": fetch})
    with pytest.raises(ClusterError):
        live_groups(client, client.topic(OFFSETS_TOPIC), [OffsetKey("g", *KEY)], ["g"])


@pytest.mark.parametrize("request_name", ["OffsetFetch", "DescribeGroups"])
@pytest.mark.parametrize("group_ids, said", [([], "leaves 'g' out"), (["g", "h"], "'h', which was not asked for")])
def test_answers_are_about_the_groups_that_were_asked_for(request_name: str, group_ids: list[str], said: str) -> None:
    client = cluster("g")
    groups = [
        SimpleNamespace(group_id=group_id, error_code=0, topics=[], group_state="Empty", protocol_type="", members=[])
        for group_id in group_ids
    ]
    client.answer = answering({request_name: lambda _: SimpleNamespace(groups=groups)})
    with pytest.raises(ClusterError, match=said):
        live_groups(client, client.topic(OFFSETS_TOPIC), [], ["g"])


@pytest.mark.usefixtures("uncaptured")
def test_what_a_try_without_an_answer_has_written_counts(tmp_path: Path) -> None:
    """The coordinator writes and moves before it answers; what is left is written by the next try."""
    client = cluster("g")
    keys = [("orders", number) for number in range(600)]
    client.logs["orders"] = (1, dict.fromkeys(range(600), (0, 1000, 5)))
    target = live_target(client, [OffsetKey("g", *key) for key in keys], ["g"], {})
    wanted = Wanted({OffsetKey("g", *key): Position(7) for key in keys})
    path, directory = tmp_path / "plan.json", tmp_path / "applied"
    write_plan(str(path), Plan("restore", "cluster", "t", "s", {}, 1, tuple(decide(wanted, target, Choices({})))))
    lost = iter([True])

    def commit(request: Any) -> Any:
        answer = client._offset_commit(request)
        for each in answer.topics[0].partitions if next(lost, False) else ():
            each.error_code = 16
        return answer

    client.answer = answering({"OffsetCommit": commit})
    _, (result,) = apply_plan(client, path, directory, ApplyOptions())
    assert (result.written, result.errors) == (600, ())
    ends = [event for event in read_journal(directory / JOURNAL, "restore") if event["event"] == "end"]
    assert [event["written"] for event in ends] == [600]


@pytest.mark.usefixtures("uncaptured")
def test_what_an_answer_leaves_out_may_be_written_or_not(tmp_path: Path) -> None:
    client = cluster("g")
    plan, directory = restored(client, tmp_path / "plan.json", {"g": 5, "made": 5}), tmp_path / "applied"
    client.answer = answering({"OffsetCommit": lambda _: SimpleNamespace(topics=[])})
    assert errors(client, plan, directory) == {"g": ["no answer for orders-0"], "made": ["no answer for orders-0"]}
    client.answer = answering({})
    assert errors(client, plan, directory) == {}
    back = rolled_back(client, directory, tmp_path / "back.json")
    client.answer = answering({"OffsetDelete": lambda _: SimpleNamespace(error_code=0, topics=[])})
    assert errors(client, back, tmp_path / "back") == {"made": ["no answer for orders-0"]}


@pytest.mark.usefixtures("uncaptured")
def test_where_no_single_offset_can_be_deleted_other_groups_go_back(tmp_path: Path) -> None:
    client = cluster("g")
    before = dict(client.groups["g"])
    plan = restored(client, tmp_path / "plan.json", {"g": 5, "made": 5})
    assert errors(client, plan, tmp_path / "applied") == {}
    back = rolled_back(client, tmp_path / "applied", tmp_path / "back.json")
    client.forget("OffsetDelete")
    said = "brokers before Kafka 2.4 delete whole groups alone: kafka-consumer-groups.sh --delete does"
    assert errors(client, back, tmp_path / "back") == {"made": [said]}
    assert client.groups["g"] == before


@pytest.mark.usefixtures("uncaptured")
@pytest.mark.parametrize("request_name", ["OffsetCommit", "FindCoordinator"])
def test_a_login_that_is_refused_on_the_way_is_no_refusal(tmp_path: Path, request_name: str) -> None:
    client = cluster("a", "b")
    plan, directory = restored(client, tmp_path / "plan.json", {"a": 5, "b": 6}), tmp_path / "applied"
    asked = iter((False, True) if request_name == "OffsetCommit" else (True,))

    def refuse(_: Any) -> None:
        if next(asked):
            raise LoginError("the broker refuses the credentials")

    client.answer = answering({request_name: refuse})
    left = ("b",) if request_name == "OffsetCommit" else ("a", "b")
    assert errors(client, plan, directory) == {group_id: ["the broker refuses the credentials"] for group_id in left}
    client.answer = answering({})
    assert errors(client, plan, directory) == {}
    assert client.groups == {"a": {KEY: (5, -1, "")}, "b": {KEY: (6, -1, "")}}


@pytest.mark.usefixtures("uncaptured")
def test_a_group_without_a_coordinator_for_us_keeps_no_other(tmp_path: Path) -> None:
    """Its ACL was taken away behind the plan: nobody waits for it."""
    client = cluster("a", "b")
    plan, directory = restored(client, tmp_path / "plan.json", {"a": 5, "b": 6}), tmp_path / "applied"

    def found(request: Any) -> Any:
        answer = client._find_coordinator(request)
        for one in answer.coordinators:
            one.error_code = 30 if one.key == "a" else 0
        return answer

    client.answer = answering({"FindCoordinator": found})
    said = "GROUP_AUTHORIZATION_FAILED: it needs the ACL Describe on Group:a"
    assert errors(client, plan, directory) == {"a": [said]}
    assert client.groups == {"a": {KEY: (1, -1, "")}, "b": {KEY: (6, -1, "")}}


@pytest.mark.usefixtures("uncaptured")
@pytest.mark.parametrize("is_killed", [True, False])
def test_what_an_earlier_try_may_have_written_goes_back(tmp_path: Path, is_killed: bool) -> None:
    """It has written, and got no answer or was killed; the next one only reads, and fails."""
    client = cluster("g")
    plan, directory = restored(client, tmp_path / "plan.json", {"g": 5}), tmp_path / "applied"

    def commit(request: Any) -> Any:
        client._offset_commit(request)
        client.answer = answering({"OffsetFetch": unstable})
        if is_killed:
            raise InterruptedError
        raise ClusterError("broker 1 gives no answer")

    def unstable(request: Any) -> Any:
        answer = client.offset_fetch(request)
        for topic in (topic for group in answer.groups for topic in group.topics if request.require_stable):
            topic.partitions[0].error_code = 88
        return answer

    client.answer = answering({"OffsetCommit": commit})
    with pytest.raises(InterruptedError) if is_killed else nullcontext():
        errors(client, plan, directory)
    if is_killed:
        with pytest.MonkeyPatch.context() as patch:
            # It begins once the next one has been let through.
            patch.setattr(restore_apply, "standing", lambda *_: [])
            assert errors(client, plan, directory) == {
                "g": ["UNSTABLE_OFFSET_COMMIT: a transaction is open that commits it"]
            }
    client.answer = answering({})
    assert client.groups == {"g": {KEY: (5, -1, "")}}
    (group,) = rollback_plan(client, str(directory)).groups
    assert [(row.action, row.reason) for row in group.rows] == [(Action.UPDATE, "it was so before")]


@pytest.mark.usefixtures("uncaptured")
def test_a_group_that_cannot_be_read_is_not_said_to_be_stale(tmp_path: Path) -> None:
    client = cluster("g")
    plan, directory = restored(client, tmp_path / "plan.json", {"g": 5}), tmp_path / "applied"
    refused = SimpleNamespace(groups=[SimpleNamespace(group_id="g", error_code=30, topics=[])])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(restore_apply, "standing", lambda *_: [])
        client.answer = answering({"OffsetFetch": lambda _: refused})
        said = "GROUP_AUTHORIZATION_FAILED: it needs the ACL Describe on Group:g"
        assert errors(client, plan, directory) == {"g": [said]}


@pytest.mark.usefixtures("uncaptured")
def test_a_refusal_behind_the_first_write_says_what_is_written(tmp_path: Path) -> None:
    client = cluster("a", "b", "c")
    plan, directory = restored(client, tmp_path / "plan.json", {"a": 5, "b": 6, "c": 7}), tmp_path / "applied"

    def commit(request: Any) -> Any:
        if request.group_id != "a":
            raise LoginError("the broker refuses the credentials")

    client.answer = answering({"OffsetCommit": commit})
    assert errors(client, plan, directory).keys() == {"b", "c"}
    client.answer, client.groups["b"] = answering({}), {KEY: (8, -1, "")}
    with pytest.raises(UsageError) as met:
        errors(client, plan, directory)
    assert str(met.value).startswith("refused, nothing more is written: the plan is stale: group 'b', orders-0")
    assert str(met.value).endswith("; 1 of 3 groups is written, restore rollback undoes that")


@pytest.mark.usefixtures("uncaptured")
@pytest.mark.parametrize(
    "event, number, said",
    [("begin", 3, "2 of 40 groups are written"), ("end", 3, "2 of 40 groups are written, 1 more is begun")],
)
def test_without_room_for_its_events_no_group_is_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, event: str, number: int, said: str
) -> None:
    group_ids = [f"g-{one:02}" for one in range(40)]
    client = cluster()
    plan, directory = restored(client, tmp_path / "plan.json", dict.fromkeys(group_ids, 5)), tmp_path / "applied"
    write, left = Journal.write, iter([*[True] * (number - 1), *[False] * 100])

    def full(journal: Journal, here: str, **values: Any) -> None:
        if here == event and not next(left):
            raise JournalWriteError("the disk is full")
        write(journal, here, **values)

    fetched_groups: list[str] = []
    client.answer = answering(
        {"OffsetFetch": lambda request: fetched_groups.extend(one.group_id for one in request.groups)}
    )
    with monkeypatch.context() as patch:
        patch.setattr(Journal, "write", full)
        with pytest.raises(JournalWriteError, match="the same command goes on, restore rollback undoes them") as met:
            errors(client, plan, directory)
    assert str(met.value).startswith(f"the disk is full; {said}; the same")
    # The others are not even read: of the check before, each is asked for twice.
    assert len(fetched_groups) == 2 * len(group_ids) + 3
    client.answer = answering({})
    assert errors(client, plan, directory) == {}
    assert client.groups == {group_id: {KEY: (5, -1, "")} for group_id in group_ids}


@pytest.mark.usefixtures("uncaptured")
@pytest.mark.parametrize("group_id, metadata", [("g", "\U0001f600" * 2048), ("g" * 3000, "")])
def test_the_records_of_a_request_fit_into_one_batch(tmp_path: Path, group_id: str, metadata: str) -> None:
    partitions = dict.fromkeys(range(400), (0, 1000, 5))
    client = OneProcess({group_id: {KEY: (1, -1, "")}}, {"orders": (1, partitions)})
    keys = {OffsetKey(group_id, "orders", number): Position(5, metadata=metadata) for number in partitions}
    groups = decide(Wanted(keys), live_target(client, list(keys), [group_id], {}), Choices({}))
    path = tmp_path / "plan.json"
    write_plan(str(path), Plan("restore", "cluster", "t", "s", {}, 1, tuple(groups)))
    asked: list[int] = []

    def note(request: Any) -> None:
        rows = [one for topic in request.topics for one in topic.partitions]
        texts = [getattr(one, "committed_metadata", "").encode() for one in rows]
        asked.append(len(rows) * len(f"{request.group_id}orders".encode()) + sum(map(len, texts)))

    client.answer = answering({"OffsetCommit": note, "OffsetDelete": note})
    assert errors(client, path, tmp_path / "applied") == {}
    assert errors(client, rolled_back(client, tmp_path / "applied", tmp_path / "back.json"), tmp_path / "back") == {}
    assert len(client.groups[group_id]) == 1
    assert max(asked) < 1 << 18


@pytest.mark.usefixtures("uncaptured")
def test_an_interrupt_lets_no_other_group_begin(tmp_path: Path) -> None:
    group_ids = [f"g-{number:02}" for number in range(40)]
    client = cluster()
    plan, directory = restored(client, tmp_path / "plan.json", dict.fromkeys(group_ids, 5)), tmp_path / "applied"
    raised = threading.Event()

    def interrupt(*_: object) -> None:
        raised.set()
        raise KeyboardInterrupt

    def commit(_: Any) -> None:
        if len(client.groups) == 3:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            assert raised.wait(60)

    client.answer = answering({"OffsetCommit": commit})
    before = signal.signal(signal.SIGINT, interrupt)
    try:
        with pytest.raises(InterruptedApplyError, match="of 40 groups are written; the same command goes on") as met:
            errors(client, plan, directory)
    finally:
        signal.signal(signal.SIGINT, before)
    written = len(client.groups)
    assert 3 < written < 40
    assert str(met.value).startswith(f"interrupted: {written} of 40 ")
    client.answer = answering({})
    assert errors(client, plan, directory) == {}
    assert sorted(client.groups) == group_ids


@pytest.mark.usefixtures("uncaptured")
def test_one_that_has_ended_stands_or_is_refused(tmp_path: Path) -> None:
    client = cluster("a", "b")
    path, directory = restored(client, tmp_path / "plan.json", {"a": 5, "b": 6}), tmp_path / "applied"
    assert errors(client, path, directory) == {}
    assert errors(client, path, directory) == {}
    plan, digest = read_plan(path)
    events = begun_apply(directory, digest)
    half = [event for event in events if event.get("group_id") != "b"]
    goes_on = "is committed now, as planned; go on with the --output of an apply that has begun it, or plan again"
    assert goes_on in refusals(client, plan)[0].text
    for offset, of_half in ((1, ["'a', orders-0: written before"]), (77, [])):
        client.groups |= {"a": {KEY: (offset, -1, "")}, "b": {KEY: (1, -1, "")}}
        # Consumers of what is written may have gone on; what was undone is not there.
        found = [one.text for one in refusals(client, plan, half)]
        assert [said in text for said, text in zip(of_half, found, strict=True)] == [True] * len(of_half)
        with pytest.raises(UsageError, match=f"changed since: offset {offset} .* use another --output"):
            apply_plan(client, path, directory, ApplyOptions())
