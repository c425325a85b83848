"""Every decision on an offset key, and the way back, without a cluster."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from coordinator_core.errors import UsageError
from coordinator_core.groups.model import ClassicGroup, GroupState, OffsetKey, PartitionState
from coordinator_core.reports.restore import plan_text
from coordinator_core.restore.decide import Choices, decide
from coordinator_core.restore.inverse import begun, inverse
from coordinator_core.restore.model import (
    Action,
    GroupPlan,
    Plan,
    Position,
    Row,
    Value,
    canonical,
    kafka_csv,
    read_plan,
    state_digest,
    write_plan,
)
from coordinator_core.restore.selection import Move, Scenario, keys_of, moved, parse_duration_ms, parse_topics
from coordinator_core.restore.source import Wanted, read_csv, renamed
from coordinator_core.restore.target import LogRange, Target, TargetGroup, TargetTopic, groups_of, with_records

HERE, THERE = "A" * 22, "B" * 22
KEY = OffsetKey("g", "orders", 0)
LOG = LogRange(100, 200, 5)
HELD = Position(150, 5, "held")
ROW = Row(*KEY, Action.UPDATE, HELD, Position(160), "another offset is committed")


def target(held: Position | None = HELD, *, topics: Mapping[str, TargetTopic] | None = None, **group: object) -> Target:
    offsets = {} if held is None else {KEY[1:]: held}
    one = TargetGroup("g", state="Empty", members=0, offsets=offsets)
    for name, value in group.items():
        setattr(one, name, value)
    known = {"orders": TargetTopic(HERE, {0: LOG, 1: LOG})} if topics is None else topics
    return Target("test", "cluster", {"g": one}, known, 50)


def decided(
    place: Position, choices: Choices | None = None, to: Target | None = None, cluster: str | None = None
) -> Row:
    (group,) = decide(Wanted({KEY: place}, cluster_id=cluster), to or target(), choices or Choices({}))
    (row,) = group.rows
    return row


@pytest.mark.parametrize(
    "place, held, epoch, reason",
    [
        (Position(160, 5, "", HERE), HELD, 5, "another offset is committed"),
        (Position(160, 5, "", HERE), None, 5, "nothing is committed"),
        (Position(160, 4, "", HERE), HELD, 4, "another offset is committed"),
        (Position(160, 6, "", HERE), HELD, -1, "leader epoch 6 is dropped: it is above the current one, 5"),
        (Position(160, -7, "", HERE), HELD, -1, "leader epoch -7 is dropped: no broker has such an epoch"),
        (Position(160, 5), HELD, -1, "leader epoch 5 is dropped: it is not known whether it is of this topic"),
        (Position(160, -1), HELD, -1, "another offset is committed"),
        (Position(150, 5, "held"), HELD, 5, "it is so already"),
        (
            Position(150, 5, "", HERE),
            HELD,
            5,
            "the offset is so already, leader epoch or metadata are not",
        ),
    ],
)
def test_leader_epochs(place: Position, held: Position | None, epoch: int, reason: str) -> None:
    row = decided(place, to=target(held))
    assert row.after is not None
    assert (row.after.leader_epoch, row.reason) == (epoch, reason)
    assert row.action is (Action.CREATE if held is None else Action.KEEP if row.after == held else Action.UPDATE)


def test_a_leader_epoch_above_the_current_one_goes_where_it_is_committed_already() -> None:
    """Consumers hang on it."""
    row = decided(Position(150, 9, "held"), to=target(Position(150, 9, "held")))
    assert (row.action, row.after) == (Action.UPDATE, Position(150, -1, "held", HERE))


def test_a_topic_made_again_is_blocked_unless_it_is_meant() -> None:
    """What is planned is for the topic that there is."""
    place = Position(160, 3, "m", THERE)
    row = decided(place)
    assert row.action is Action.BLOCKED
    assert f"id {THERE}, now {HERE}" in row.reason
    for row in (decided(place, Choices({}, other_topics=True)), decided(place, cluster="another")):
        assert (row.action, row.after) == (Action.UPDATE, Position(160, -1, "m", HERE))
    assert decided(place, cluster="cluster").action is Action.BLOCKED


@pytest.mark.parametrize("offset, end", [(99, 100), (0, 100), (-10, 100), (201, 200), (10**12, 200)])
def test_ranges_are_never_clamped_in_silence(offset: int, end: int) -> None:
    row = decided(Position(offset, 2, "", HERE))
    assert row.action is Action.BLOCKED
    assert str(offset) in row.reason
    row = decided(Position(offset, 2, "", HERE), Choices({}, trim=True))
    assert row.after == Position(end, -1, "", HERE)
    assert row.reason.startswith(f"trimmed from {offset} to the log ")


def test_what_is_committed_outside_of_the_log_stays_unless_it_shall_be_trimmed() -> None:
    outside = target(Position(300))
    row = decided(Position(300), to=outside)
    assert (row.action, row.reason) == (Action.KEEP, "it is so already, outside of the log")
    row = decided(Position(300), Choices({}, trim=True), to=outside)
    assert (row.action, row.after) == (Action.UPDATE, Position(200, topic_id=HERE))


def test_below_0_is_no_offset_where_the_log_start_is_not_known() -> None:
    """It cannot be trimmed."""
    row = decided(Position(-10), Choices({}, trim=True), to=replace(target(), topics=None))
    assert (row.action, row.reason) == (Action.BLOCKED, "offset -10 is none")


@pytest.mark.parametrize("offset, action", [(100, Action.UPDATE), (200, Action.UPDATE)])
def test_both_ends_of_the_log_are_in_it(offset: int, action: Action) -> None:
    assert decided(Position(offset)).action is action


@pytest.mark.parametrize("metadata, fits", [("x" * 4096, True), ("x" * 4097, False), ("\U0001f600" * 2049, False)])
def test_metadata_is_counted_as_java_counts(metadata: str, fits: bool) -> None:
    row = decided(Position(160, metadata=metadata))
    assert (row.action is Action.UPDATE) == fits
    row = decided(Position(160, metadata=metadata), Choices({}, drop_metadata=True))
    assert row.after == Position(160, metadata=metadata if fits else "", topic_id=HERE)


@pytest.mark.parametrize(
    "topics, reason",
    [({}, "the target has no topic orders"), ({"orders": TargetTopic(HERE, {})}, "topic orders has 0 partitions")],
)
def test_what_is_not_there_is_blocked(topics: Mapping[str, TargetTopic], reason: str) -> None:
    row = decided(Position(160), to=target(topics=topics))
    assert (row.action, row.reason) == (Action.BLOCKED, reason)


@pytest.mark.parametrize(
    "before, after, read_again, skipped, left",
    [(150, 120, 30, 0, 80), (120, 150, 0, 30, 50), (20, 120, 0, 20, 80), (300, 150, 50, 0, 50)],
)
def test_records_between_are_those_that_the_log_has(
    before: int, after: int, read_again: int, skipped: int, left: int
) -> None:
    row = decided(Position(after), to=target(Position(before)))
    assert (row.read_again, row.skipped, row.left) == (read_again, skipped, left)


def test_other_offsets_of_a_group_stay_unless_they_shall_go() -> None:
    to = target(offsets={KEY[1:]: HELD, ("orders", 1): HELD, ("clicks", 0): HELD})

    def actions(choices: Choices) -> list[tuple[str, Action]]:
        (group,) = decide(Wanted({KEY: Position(160)}), to, choices)
        return [(f"{row.topic}-{row.partition}", row.action) for row in group.rows]

    kept = [("clicks-0", Action.KEEP), ("orders-0", Action.UPDATE), ("orders-1", Action.KEEP)]
    assert actions(Choices({})) == kept
    gone = [("clicks-0", Action.DELETE), ("orders-0", Action.UPDATE), ("orders-1", Action.DELETE)]
    assert actions(Choices({}, delete_others=True)) == gone
    assert actions(Choices({"orders": None}, delete_others=True)) == [kept[0], *gone[1:]]


def warnings(to: Target, kind: str | None = None) -> str:
    (group,) = decide(Wanted({KEY: Position(160)}, {} if kind is None else {"g": kind}), to, Choices({}))
    return "; ".join((*group.warnings, *group.rows[0].warnings))


def test_warnings() -> None:
    assert warnings(target()) == ""
    assert "it has 2 members (Stable)" in warnings(target(state="Stable", members=2))
    assert warnings(target(state="Empty")) == ""
    assert "producer 7 is open" in warnings(target(unstable={KEY[1:]: (7,)}))
    assert "a transaction is open" in warnings(target(unstable={KEY[1:]: ()}))
    assert "becomes a classic group" in warnings(target(None, state=None))
    assert "KAFKA-20254" in warnings(target(None, state=None), "streams")
    before_4_1 = replace(target(None, state=None), has_start_offsets=False)
    assert "KAFKA-20254" not in warnings(before_4_1, "streams")
    stores = {name: TargetTopic(HERE, {0: LOG}) for name in ("orders", "g-counts-changelog", "h-counts-changelog")}
    assert "with state (g-counts-changelog)" in warnings(target(topics=stores))


def test_a_group_that_had_members_expires_by_the_time_at_which_it_became_empty() -> None:
    group = ClassicGroup("g", GroupState.EMPTY, "consumer", 7, state_timestamp_ms=86_400_000, record_offset=1)
    state = PartitionState(0, {"g": group})

    def said(one: TargetGroup, **more: Any) -> tuple[str, ...]:
        (plan,) = decide(Wanted({KEY: Position(160)}), replace(target(), groups={"g": one}, **more), Choices({}))
        return plan.warnings

    when = "its offsets expire offsets.retention.minutes after it became empty"
    live = TargetGroup("g", state="Empty", protocol_type="consumer")
    assert said(live) == (f"{when}, not after the restore: begin its consumers before that",)
    # Before KIP-211 each commit has its own time.
    assert said(live, has_group_clock=False) == ()
    with_records({"g": live}, [state], 50)
    for one in (live, groups_of([state], {}, lambda _: 0)["g"]):
        assert said(one)[0].startswith(f"{when} (1970-01-02 00:00:00Z)")
    for one in (
        TargetGroup("g", state="Empty", protocol_type=""),
        TargetGroup("g", "consumer", "Empty"),
        replace(live, offsets={KEY[1:]: Position(160)}),
    ):
        assert said(one) == ()
    (back,) = inverse(
        [GroupPlan("g", "classic", "Empty", 0, 0, Action.UPDATE, (ROW,), "")],
        replace(target(), groups={"g": replace(live, offsets={KEY[1:]: Position(160)})}),
    )
    assert when in back.warnings[0]


def test_of_share_groups_only_start_offsets() -> None:
    wanted = Wanted({KEY: Position(160, 3, "m", HERE)})
    groups = decide(wanted, target(None, type="share"), Choices({}))
    plan = plan_of(groups)
    assert [row.after for row in plan.rows()] == [Position(160, -1, "", HERE)]
    assert plan.obstacle() is None
    assert "counts begin anew" in "; ".join(groups[0].warnings)
    assert kafka_csv(plan) == ["g,orders,0,160"]
    (same,) = decide(wanted, target(Position(160), type="share"), Choices({}))
    assert (same.action, same.warnings) == (Action.KEEP, ())
    old = replace(target(None, type="share"), has_start_offsets=False)
    assert "(Kafka 4.1 and later have)" in str(plan_of(decide(wanted, old, Choices({}))).obstacle())


def test_an_absent_group_becomes_what_is_said() -> None:
    absent = target(None, state=None)
    assert [group.type for group in decide(Wanted({KEY: Position(160)}), absent, Choices({}))] == ["classic"]
    (group,) = decide(Wanted({KEY: Position(160)}), absent, Choices({}, new_share_groups=True))
    assert (group.type, group.action) == ("share", Action.CREATE)
    assert "becomes a share group" in group.warnings[0]
    (back,) = inverse([group], target(replace(HELD, offset=160, leader_epoch=-1, metadata=""), type="share"))
    assert (back.type, back.action, back.warnings) == ("share", Action.DELETE, ())
    (again,) = inverse([back], absent)
    assert (again.type, again.action) == ("share", Action.CREATE)


def test_start_offsets_are_deleted_by_topic() -> None:
    held = {("orders", 0): Position(150), ("orders", 1): Position(150), ("clicks", 0): Position(5)}
    to = target(offsets=held, type="share")
    (group,) = decide(Wanted({KEY: Position(160)}), to, Choices({}, delete_others=True))
    actions = {f"{row.topic}-{row.partition}": row.action for row in group.rows}
    assert actions == {"clicks-0": Action.DELETE, "orders-0": Action.UPDATE, "orders-1": Action.KEEP}
    assert group.warnings[0].startswith("orders-1: not deleted")
    assert {row.after for row in group.rows if row.partition == 1} == {Position(150)}


def plan_of(groups: list[GroupPlan]) -> Plan:
    return Plan("restore", "cluster", "test", "source", {}, 1, tuple(groups))


def test_a_plan_is_read_as_it_was_written_and_no_other(tmp_path: Path) -> None:
    place = Position(160, -1, 'm"é\U0001f600\n', None, 3, 12)
    plan = plan_of(decide(Wanted({KEY: place, OffsetKey("a,b", "orders", 1): Position(170)}), target(), Choices({})))
    path = tmp_path / "plan.json"
    digest = write_plan(str(path), plan)
    assert read_plan(path) == read_plan(path, digest) == (plan, digest)
    with pytest.raises(UsageError, match="it is not the plan that was approved"):
        read_plan(path, "0" * 64)
    # Made in portions, it is the canonical JSON of the whole document.
    for one in (plan, plan_of([])):
        written = write_plan(str(path), one)
        whole = json.loads(path.read_bytes())
        assert path.read_bytes() == canonical(whole) + b"\n"
        assert whole.pop("digest") == written
        assert len(whole["groups"]) == len(one.groups)
    assert "offsets:    none" in plan_text(plan_of([]), digest)
    assert "kind:       restore, source to test (cluster cluster)" in plan_text(plan_of([]), digest)
    assert "kind:       restore, source to test" in plan_text(replace(plan_of([]), cluster_id=None), digest)
    many = [(OffsetKey("g", f'"rows":[]{number}', number), Value(number, -1, "é")) for number in range(200)]
    listed = canonical(sorted([*key, *value] for key, value in many))
    assert state_digest(many[::-1]) == hashlib.sha256(listed).hexdigest()
    write_plan(str(path), plan)
    assert kafka_csv(plan) == ['"a,b",orders,1,170', "g,orders,0,160"]
    text = path.read_text()
    for wrong in (
        text.replace("160", "161"),
        text[:-9],
        "[]",
        "{}",
        text.replace('"plan_version":1', '"plan_version":2'),
    ):
        path.write_text(wrong)
        with pytest.raises(UsageError, match=r"plan\.json"):
            read_plan(path)


@pytest.mark.parametrize(
    "change, said",
    [
        ({"after": Position(160, 1 << 31)}, "leader_epoch: expected int"),
        ({"after": Position(-7)}, r"groups\[0\]\.rows\[0\]: offset -7 is none"),
        ({"after": Position(160, metadata="\ud800")}, "no text that UTF-8 has"),
        ({"topic": "\ud800"}, "no text that UTF-8 has"),
        ({"partition": -1}, r"groups\[0\]\.rows\[0\]: partition -1 is none"),
        ({"partition": 1 << 31}, "partition: expected int"),
        ({"group_id": "decoy"}, "the row is of group 'decoy', its group is 'g'"),
        ({"action": Action.CREATE}, "the action is create, and what is before and after says update"),
        ({"action": Action.KEEP}, "the action is keep, and what is before and after says update"),
    ],
    ids=str,
)
def test_a_plan_that_nobody_can_carry_out_is_none(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    (group,) = decide(Wanted({KEY: Position(160)}), target(), Choices({}))
    (row,) = group.rows
    path = tmp_path / "plan.json"
    write_plan(str(path), plan_of([replace(group, rows=(replace(row, **change),))]))
    with pytest.raises(UsageError, match=said):
        read_plan(path)


def test_a_plan_has_each_group_and_offset_key_once(tmp_path: Path) -> None:
    (group,) = decide(Wanted({KEY: Position(160)}), target(), Choices({}))
    for groups, said in (
        ([group, group], "group 'g' is there twice"),
        ([replace(group, rows=group.rows * 2)], "orders-0 is there twice"),
        ([replace(group, action=Action.DELETE)], "an offset stays, and its group is deleted"),
    ):
        write_plan(str(tmp_path / "plan.json"), plan_of(groups))
        with pytest.raises(UsageError, match=said):
            read_plan(tmp_path / "plan.json")


def test_what_no_request_can_write_is_blocked_and_says_why(tmp_path: Path) -> None:
    below = OffsetKey("g", "orders", -1)
    to = target(offsets={below[1:]: HELD})
    for wanted, known, action, reason in (
        ({KEY: Position(-7)}, target(), Action.BLOCKED, "offset -7 is below the log start 100 (--out"),
        ({KEY: Position(-7)}, replace(target(), topics=None), Action.BLOCKED, "offset -7 is none"),
        ({below: Position(160)}, to, Action.BLOCKED, "partition -1 is none"),
        ({below: Position(160)}, replace(to, topics=None), Action.BLOCKED, "partition -1 is none"),
        ({below: HELD}, to, Action.KEEP, "it is so already"),
    ):
        plan = plan_of(decide(Wanted(wanted), known, Choices({})))
        (row,) = plan.rows()
        assert row.action is action
        assert row.reason.startswith(reason)
        write_plan(str(tmp_path / "plan.json"), plan)
        assert read_plan(tmp_path / "plan.json")[0] == plan


def test_the_inverse_gives_back_what_was_and_takes_away_what_was_made() -> None:
    made = OffsetKey("g", "orders", 1)
    before = target(offsets={KEY[1:]: HELD})
    groups = decide(Wanted({KEY: Position(160), made: Position(170)}), before, Choices({}))
    after = target(offsets={KEY[1:]: Position(160), made[1:]: Position(170)})
    (back,) = inverse(groups, after)
    assert [(row.action, row.after) for row in back.rows] == [(Action.UPDATE, HELD), (Action.DELETE, None)]
    (nothing,) = inverse(groups, before)
    assert {row.action for row in nothing.rows} == {Action.KEEP}
    assert not list(plan_of([nothing]).writing())
    (blocked,) = inverse(groups, target(offsets={KEY[1:]: Position(161)}))
    assert [row.action for row in blocked.rows] == [Action.BLOCKED, Action.KEEP]


def test_the_inverse_keeps_what_was_not_written() -> None:
    kept = OffsetKey("g", "orders", 1)
    groups = decide(Wanted({KEY: Position(160)}), target(offsets={KEY[1:]: HELD, kept[1:]: HELD}), Choices({}))
    (back,) = inverse(groups, target(offsets={KEY[1:]: Position(160), kept[1:]: Position(170)}))
    assert [(row.action, row.after) for row in back.rows] == [(Action.UPDATE, HELD), (Action.KEEP, Position(170))]
    (gone,) = inverse(groups, target(offsets={KEY[1:]: Position(160)}))
    assert [(row.action, row.after) for row in gone.rows] == [(Action.UPDATE, HELD), (Action.KEEP, None)]


BEGIN: dict[str, object] = {"event": "begin", "group_id": "g"}


def end(*errors: tuple[str | None, int | None]) -> dict[str, object]:
    rows = [{"topic": topic, "partition": partition, "error": "E"} for topic, partition in errors]
    return {"event": "end", "group_id": "g", "errors": rows}


@pytest.mark.parametrize(
    "events, action",
    [
        ([BEGIN, end(KEY[1:])], Action.KEEP),
        ([BEGIN, end(KEY[1:]), BEGIN, end(KEY[1:], ("orders", 1))], Action.KEEP),
        ([BEGIN, end(("orders", 1))], Action.BLOCKED),
        ([BEGIN, end()], Action.BLOCKED),
        ([BEGIN, end(KEY[1:]), BEGIN, end()], Action.BLOCKED),
        # Written, overwritten by somebody else, and therefore not written again.
        ([BEGIN, end(), end(KEY[1:])], Action.BLOCKED),
        # It may be written: the group as a whole failed, or the apply was killed.
        ([BEGIN, end((None, None))], Action.BLOCKED),
        ([BEGIN], Action.BLOCKED),
        ([BEGIN, BEGIN, end(KEY[1:])], Action.BLOCKED),
        ([BEGIN, end(KEY[1:]), BEGIN], Action.BLOCKED),
    ],
)
def test_what_failed_was_not_written(events: list[dict[str, object]], action: Action) -> None:
    plan = plan_of(decide(Wanted({KEY: Position(160)}), target(), Choices({})))
    (back,) = inverse(begun(plan, events), target(Position(161)))
    assert [row.action for row in back.rows] == [action]
    assert begun(plan, []) == []


def test_a_group_that_was_made_loses_what_was_made() -> None:
    absent = target(None, state=None, offsets={})
    groups = decide(Wanted({KEY: Position(160)}), absent, Choices({}))
    assert groups[0].action is Action.CREATE
    (back,) = inverse(groups, target(Position(160)))
    # DeleteGroups would take offsets that no answer shows, too; without any the group goes at the next sweep.
    assert (back.action, back.leaves_nothing, back.is_deleted) == (Action.UPDATE, True, False)
    (back,) = inverse(groups, target(offsets={KEY[1:]: Position(160), ("clicks", 0): HELD}))
    assert (back.action, [row.action for row in back.rows]) == (Action.UPDATE, [Action.KEEP, Action.DELETE])
    (back,) = inverse(groups, absent)
    assert back.action is Action.KEEP
    # Of what failed, nothing made the group.
    (back,) = inverse(begun(plan_of(groups), [BEGIN, end(KEY[1:])]), target(None))
    assert back.action is Action.KEEP


@pytest.mark.parametrize(
    "scenario, offset, epoch",
    [
        (Scenario(Move.TO_OFFSET, 120), 120, -1),
        (Scenario(Move.TO_OFFSET, 150), 150, 5),
        (Scenario(Move.SHIFT_BY, -7), 143, -1),
        (Scenario(Move.TO_CURRENT), 150, 5),
        (Scenario(Move.TO_EARLIEST), 100, -1),
        (Scenario(Move.TO_LATEST), 200, -1),
        (Scenario(Move.TO_DATETIME, 1), 130, -1),
    ],
)
def test_scenarios(scenario: Scenario, offset: int, epoch: int) -> None:
    found = moved(keys_of(["g"], {}, target()), scenario, target(), {KEY[1:]: 130})
    assert [(place.offset, place.leader_epoch) for place in found.positions.values()] == [(offset, epoch)]


@pytest.mark.parametrize(
    ("topics", "said"),
    [
        ({}, "the target has no topic orders"),
        ({"orders": TargetTopic(None, {1: LOG})}, "topic orders has 1 partition"),
        ({"orders": TargetTopic(None, {0: LogRange()})}, "the start and end of the topic's partition are not known"),
        (None, "the start and end of the topic's partition are not known"),
    ],
)
@pytest.mark.parametrize("move", [Move.TO_LATEST, Move.TO_EARLIEST, Move.TO_DATETIME])
def test_why_an_end_is_not_known(move: Move, topics: Mapping[str, TargetTopic] | None, said: str) -> None:
    with pytest.raises(UsageError, match=f"^group 'g', orders-0: {said}$"):
        moved({KEY: HELD}, Scenario(move, 1), replace(target(), topics=topics), {})


@pytest.mark.parametrize("step", [10**23, -(10**23), (1 << 63) - 1])
def test_a_step_beyond_what_an_offset_can_be(step: int) -> None:
    with pytest.raises(UsageError, match=f"group 'g', orders-0: 150 and {step} are no offset"):
        moved({KEY: HELD}, Scenario(Move.SHIFT_BY, step), target(), {})


def test_a_time_without_later_records_is_the_end_and_is_said() -> None:
    found = moved({KEY: HELD}, Scenario(Move.BY_DURATION, 1), target(), {KEY[1:]: -1})
    assert found.positions[KEY].offset == LOG.end
    assert found.warnings["g"] == ("orders-0 has no record at or after that time: its end is taken",)


def test_scenarios_take_all_partitions_of_a_chosen_topic() -> None:
    assert keys_of(["g"], {"orders": None}, target()) == {KEY: HELD, OffsetKey("g", "orders", 1): None}
    assert keys_of(["g"], {"orders": frozenset({1})}, target()) == {OffsetKey("g", "orders", 1): None}
    assert keys_of(None, {}, target()) == {KEY: HELD}
    with pytest.raises(UsageError, match="has committed nothing"):
        keys_of(["h"], {}, target())
    with pytest.raises(UsageError, match="has no --topic ordres"):
        keys_of(["g"], {"orders": None, "ordres": None}, target())


@pytest.mark.parametrize("text, ms", [("PT1H", 3_600_000), ("P1DT2H3M4.5S", 93_784_500), ("p7d", 604_800_000)])
def test_durations(text: str, ms: int) -> None:
    assert parse_duration_ms(text) == ms


@pytest.mark.parametrize("text", ["P", "PT", "1H", "PT1", "P1M", "", "P99999999999999D", f"PT{'9' * 400}S"])
def test_wrong_durations(text: str) -> None:
    with pytest.raises(UsageError, match="--by-duration"):
        parse_duration_ms(text)


def test_topics() -> None:
    assert parse_topics(["a", "b:0,2"]) == {"a": None, "b": frozenset({0, 2})}
    assert parse_topics(["a:0", "b", "a:2", "b:1"]) == {"a": frozenset({0, 2}), "b": None}
    assert parse_topics(["b:1", "b"]) == {"b": None}
    for wrong in (":1", "a:", "a:x", "a:1,", "a:-1"):
        with pytest.raises(UsageError, match="--topic"):
            parse_topics([wrong])


def test_csv_of_kafka_s_tool() -> None:
    assert read_csv("f", 'g,orders,0,5\n"a,b",orders,1,6\n', ()).positions == {
        KEY: Position(5),
        OffsetKey("a,b", "orders", 1): Position(6),
    }
    assert read_csv("f", "orders,0,5\n", ["g"]).positions == {KEY: Position(5)}


@pytest.mark.parametrize(
    "text, where",
    [
        ("orders,0,5\n", "line 1: expected topic"),
        ("g,orders,0,5\ng,orders,0\n", "line 2"),
        ("g,orders,0,-5\n", "line 1: partition and offset"),
        ("g,orders,0,5\ng,orders,0,6\n", "line 2: 'g' has orders-0 twice"),
        ("", "names no offset"),
    ],
)
def test_wrong_csv_is_named_by_its_line(text: str, where: str) -> None:
    with pytest.raises(UsageError, match=where):
        read_csv("f", text, ())


def test_names_are_changed_and_never_two_into_one() -> None:
    wanted = Wanted({KEY: Position(5, 1, "m", HERE), OffsetKey("h", "orders", 0): Position(6)}, {"g": "consumer"})
    found = renamed(wanted, {"g": "new"}, {"orders": "sales"})
    assert found.positions == {
        OffsetKey("new", "sales", 0): Position(5, 1, "m", None),
        OffsetKey("h", "sales", 0): Position(6),
    }
    assert found.types == {"new": "consumer"}
    with pytest.raises(UsageError, match="two offsets of the source come to group 'h'"):
        renamed(wanted, {"g": "h"}, {})
    with pytest.raises(UsageError, match="--map-group x=y"):
        renamed(wanted, {"x": "y"}, {})


def test_groups_that_come_to_one_have_the_warnings_of_all() -> None:
    positions = {OffsetKey(group_id, f"of-{group_id}", 0): Position(5) for group_id in "ab"}
    said = {group_id: (f"of {group_id}",) for group_id in "abmz"}
    wanted = Wanted(positions, {"a": "streams", "b": "classic", "m": "share", "z": "consumer"}, warnings=said)
    found = renamed(wanted, {"a": "m", "b": "m"}, {})
    # A group m of the source is not chosen, and is not the one that the offsets come to.
    assert found.warnings == {"m": ("of a", "of b"), "z": ("of z",)}
    assert found.types == {"m": "streams", "z": "consumer"}


def test_positions_keep_what_is_known_of_them() -> None:
    place = Position(160, 5, "m", HERE, 7, 70)
    row = decided(place)
    assert row.after == place
    assert row.before == replace(HELD)
