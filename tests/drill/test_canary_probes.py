"""A canary's own commits: those that it gave up may be carried out behind later ones, and hide no loss."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from coordinator_core.cluster.drill_probes import SERVED_ROUNDS, Canaries, delete_groups
from coordinator_core.cluster.drill_run import _Drill
from coordinator_core.cluster.drill_states import rebalancing
from coordinator_core.cluster.drill_watch import Watch
from coordinator_core.cluster.errors import ClusterError, LoginError
from coordinator_core.coordinator.errors import Errors
from coordinator_core.drill.canaries import Canary, canaries
from coordinator_core.drill.events import Outcome
from coordinator_core.drill.journal import JournalWriteError
from coordinator_core.log.types import OFFSETS_TOPIC
from coordinator_core.topology import TopicInfo
from tests.restore.one_process import OneProcess

UNKNOWN_MEMBER_ID = 25
PARTITION = 1


class Coordinator:
    """A cluster of one broker, as a client sees it; ``held`` are committed offsets by partition."""

    def __init__(self) -> None:
        self.held: dict[int, int] = {}
        self.is_deaf = False
        """Whether commits get no answer; :attr:`unread` has them then."""
        self.unread: list[tuple[int, int]] = []

    def ask(self, make: Callable[[], Any], broker: int | None = None, *, patience: float | None = None) -> Any:
        request = make()
        match type(request).__name__:
            case "FindCoordinatorRequest":
                return SimpleNamespace(error_code=0, node_id=1)
            case "HeartbeatRequest":
                return SimpleNamespace(error_code=UNKNOWN_MEMBER_ID)
            case "OffsetFetchRequest":
                (index,) = request.topics[0].partition_indexes
                return self._of(SimpleNamespace(error_code=0, committed_offset=self.held.get(index, -1)))
        (row,) = request.topics[0].partitions
        if self.is_deaf:
            self.unread.append((row.partition_index, row.committed_offset))
            raise ClusterError("broker 1 gives no answer")
        self.held[row.partition_index] = row.committed_offset
        return self._of(SimpleNamespace(error_code=0))

    @staticmethod
    def _of(row: Any) -> Any:
        return SimpleNamespace(error_code=0, topics=[SimpleNamespace(partitions=[row])])


def canary(coordinator: Coordinator) -> tuple[Any, list[str]]:
    """A canary that has committed once, whose rounds are the test's to do; its events, without probes."""
    said: list[str] = []

    def note(event: str, **_: object) -> None:
        if event != "probe":
            said.append(event)

    one: Canary = canaries("drill", [PARTITION], 3)[0]
    (state,) = Canaries(coordinator, [one], note, 0)._states  # type: ignore[arg-type]
    state.round()
    return state, said


def test_a_commit_that_was_given_up_and_comes_behind_a_later_one_is_no_loss() -> None:
    coordinator = Coordinator()
    state, said = canary(coordinator)
    coordinator.is_deaf = True
    state.round()
    assert coordinator.unread == [(PARTITION, 2)]
    coordinator.is_deaf = False
    state.round()
    assert coordinator.held == {PARTITION: 3}
    coordinator.held.update(coordinator.unread)
    state.served_rounds = 0
    for _ in range(SERVED_ROUNDS):
        state.round()
    assert (said, state.served_rounds, coordinator.held) == ([], SERVED_ROUNDS, {PARTITION: 6})


def test_a_loss_behind_a_commit_that_was_given_up_is_one() -> None:
    coordinator = Coordinator()
    state, said = canary(coordinator)
    coordinator.is_deaf = True
    state.round()
    coordinator.is_deaf = False
    state.round()
    coordinator.held[PARTITION] = 1
    for _ in range(SERVED_ROUNDS):
        state.round()
    assert said == ["backwards"]


def test_a_broker_that_gives_no_answer_is_asked_for_one_group_alone() -> None:
    """Each group would wait for it as long as the client is patient."""
    asked: list[int | None] = []

    def ask(make: Callable[[], Any], broker: int | None = None) -> Any:
        asked.append(broker)
        if broker == 1:
            raise ClusterError("broker 1 gives no answer")
        return SimpleNamespace(results=[SimpleNamespace(error_code=0)])

    client: Any = SimpleNamespace(ask=ask)
    left = delete_groups(client, ["a", "b", "c", "d"], {"a": 1, "b": 2, "c": 1})
    no_answer = "broker 1 gives no answer"
    assert left == {"a": no_answer, "c": no_answer, "d": "COORDINATOR_NOT_AVAILABLE"}
    assert asked == [1, 2]


def test_groups_that_rebalance_are_counted_and_named() -> None:
    def groups(*states: str) -> list[dict[str, Any]]:
        return [{"group_id": f"g{number}", "state": state} for number, state in enumerate(states)]

    assert rebalancing(groups("Stable", "Empty")) is None
    assert rebalancing(groups("Stable", "Assigning")) == "1 group is rebalancing: 'g1'"
    several = "2 groups are rebalancing, the first is 'g0'"
    assert rebalancing(groups("PreparingRebalance", "Reconciling")) == several


def test_the_last_look_at_all_groups_has_the_time_of_the_drill() -> None:
    """The client's patience is that of a probe."""
    key = "orders", 0
    client = OneProcess({"g": {key: (5, -1, "")}}, {OFFSETS_TOPIC: (99, {0: (0, 0, 0)})})
    client.patience_seconds = 0
    codes = [Errors.COORDINATOR_LOAD_IN_PROGRESS] * 3

    def answer(name: str, _: Any) -> Any:
        loading = name == "OffsetFetch" and codes
        return (
            SimpleNamespace(groups=[SimpleNamespace(group_id="g", error_code=codes.pop(), topics=[])])
            if loading
            else None
        )

    client.answer = answer
    watch = Watch(client, client.topic(OFFSETS_TOPIC), {"g": {key: 5}}, lambda *_, **__: None, 1.0)
    watch.look_until_all_answer(60)
    assert not codes
    codes.append(Errors.NOT_COORDINATOR)
    with pytest.raises(ClusterError, match="committed offsets of all groups: not within 0 s"):
        watch.look_until_all_answer(0)


@pytest.mark.parametrize("is_watch", [False, True])
def test_a_full_disk_ends_the_drill_and_not_its_threads_alone(is_watch: bool) -> None:
    """What cannot be noted any more is not waited for; the cluster is mended."""

    def note(event: str, **_: object) -> None:
        raise JournalWriteError(f"the event {event} cannot be written")

    going_on = SimpleNamespace(check_going_on=lambda: None)
    drill: Any = _Drill.__new__(_Drill)
    if is_watch:
        looks = Watch(OneProcess({}, {}), TopicInfo(OFFSETS_TOPIC, None, ()), {}, note, 0)
        drill._canaries, drill._watch = going_on, looks
        looks.start()
    else:
        probes = Canaries(Coordinator(), canaries("drill", [0], 1), note, 0)  # type: ignore[arg-type]
        drill._canaries, drill._watch = probes, None
        probes.start()
    with pytest.raises(JournalWriteError, match="cannot be written"):
        drill._wait(60, lambda: False)
    (looks if is_watch else probes).stop()


def test_a_login_that_is_refused_for_a_while_ends_no_canary() -> None:
    coordinator = Coordinator()
    state, _ = canary(coordinator)
    ask = coordinator.ask

    def refuse(*_: object, **__: object) -> Any:
        raise LoginError("the broker refuses the credentials")

    coordinator.ask = refuse  # type: ignore[method-assign]
    state.round()
    assert state.served_rounds == 0
    coordinator.ask = ask  # type: ignore[method-assign]
    for _ in range(SERVED_ROUNDS):
        state.round()
    assert state.served_rounds == SERVED_ROUNDS


@pytest.mark.parametrize(
    "reason, recovered, said",
    [
        (None, True, "full; the cluster is as it was"),
        ("the fault: exit code 1", False, "full; the fault: exit code 1; drill recover tells whether the cluster is"),
    ],
)
def test_an_end_that_cannot_be_written_says_how_the_cluster_is(reason: str | None, recovered: bool, said: str) -> None:
    def note(event: str, **_: object) -> None:
        raise JournalWriteError("full")

    drill: Any = _Drill.__new__(_Drill)
    drill._canaries, drill._watch, drill._canary_groups = SimpleNamespace(stop=lambda: None), None, []
    drill._client, drill._note = OneProcess({}, {}), note
    with pytest.raises(JournalWriteError) as met:
        drill._end(Outcome.FAILED, reason, recovered)
    assert str(met.value).startswith(said)
