"""``regroup restore plan``."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import click

from coordinator_core import storage
from coordinator_core.cli.not_here import Count, elsewhere, offsets_partitions
from coordinator_core.cli.options import (
    Format,
    ReplayOptions,
    Whole,
    choice_option,
    format_option,
    group_option,
    replay_options,
    time_ms,
    together,
    write,
    write_lines,
)
from coordinator_core.cli.outputs import refuse_other_file, refuse_read
from coordinator_core.cli.source import cluster_of, found_beside, load_source, open_log, profile_of, warn_about_damage
from coordinator_core.durations import clock_ms
from coordinator_core.errors import Damage, ExitCode, UsageError
from coordinator_core.groups.hashing import partition_for
from coordinator_core.groups.model import OffsetKey, PartitionState
from coordinator_core.history.model import PartitionHistory
from coordinator_core.investigate.investigate import investigate
from coordinator_core.investigate.losses import TOPIC_DELETED
from coordinator_core.investigate.model import Case
from coordinator_core.investigate.words import count
from coordinator_core.log.discovery import TOPICS_FILE
from coordinator_core.log.types import Snapshot
from coordinator_core.merge.packed import LongTexts
from coordinator_core.process.workers import most_workers
from coordinator_core.releases import Clock, Profile
from coordinator_core.replay.writer import refuse_other_rules
from coordinator_core.reports.restore_files import plan_forms
from coordinator_core.restore.decide import Choices, decide, is_elsewhere
from coordinator_core.restore.model import PLAN_BEGINS, Plan, plan_file, write_plan
from coordinator_core.restore.selection import (
    Move,
    Scenario,
    Topics,
    check_topics,
    choose,
    keys_of,
    moved,
    parse_duration_ms,
    parse_topics,
)
from coordinator_core.restore.source import (
    Wanted,
    at_home,
    csv_rows,
    incidents_of,
    read_csv,
    renamed,
    states_at,
    wanted_before,
    wanted_of,
)
from coordinator_core.restore.target import (
    Target,
    check_places,
    groups_of,
    in_scope,
    place_of,
    topics_of,
    with_records,
)
from coordinator_core.rules.model import Severity
from coordinator_core.rules.topics import configured_retention_ms, read_topics
from coordinator_core.runs.local import check_source
from coordinator_core.runs.place import is_run
from coordinator_core.untrusted import INT32_END, visible, whole_number

K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class _Point:
    """Point at which the log of the source is cut; nothing set: its end."""

    time_ms: int | None
    before: Mapping[int, int] | None
    incident: bool

    @property
    def is_end(self) -> bool:
        return self.time_ms is None and self.before is None and not self.incident


_source_options = together(
    click.option("--from-file", metavar="CSV", help="Offsets of Kafka's CSV: group,topic,partition,offset."),
    click.option("--at-time", metavar="TIME", help="As the source was then: before its first newer record."),
    click.option(
        "--before-record",
        "before_records",
        multiple=True,
        metavar="P:OFFSET",
        help="As offsets partition P was before this record (repeatable).",
    ),
    click.option("--before-incident", is_flag=True, help="As it was before the worst finding of regroup investigate."),
    group_option,
    click.option("--all-groups", is_flag=True, help="All groups of the source, or of the target."),
    click.option("--topic", "topics", multiple=True, metavar="T[:P,…]", help="Only these partitions (repeatable)."),
    click.option("--map-group", "group_names", multiple=True, metavar="OLD=NEW", help="Under another group id."),
    click.option("--map-groups", "names_file", metavar="CSV", help="old,new group ids, as rescue --names writes them."),
    click.option("--map-topic", "topic_names", multiple=True, metavar="OLD=NEW", help="For another topic."),
)

_scenario_options = together(
    click.option("--to-offset", type=Whole(min=0), metavar="N", help="To this offset."),
    click.option("--to-datetime", metavar="TIME", help="To the first record at or after this time."),
    click.option("--by-duration", metavar="PnDTnHnMnS", help="To the first record of the last hours or days."),
    click.option("--shift-by", type=int, metavar="N", help="By so many offsets, forward or back."),
    click.option("--to-current", is_flag=True, help="To the committed offset; to the end where there is none."),
    click.option("--to-earliest", is_flag=True, help="To the log start."),
    click.option("--to-latest", is_flag=True, help="To the log end."),
)

_target_options = together(
    click.option("--bootstrap-server", metavar="HOST:PORT,…", help="The cluster that the plan is for."),
    click.option("--command-config", metavar="FILE", help="Kafka client properties of that cluster."),
    click.option(
        "--capture",
        "capture_directory",
        metavar="DIR",
        help="Capture its offsets topic, so that the plan names records and the producers of open transactions.",
    ),
    click.option("--against", multiple=True, metavar="RUN|SNAPSHOT", help="A state instead of a cluster: a dry run."),
    click.option("--topics", "topics_file", metavar="FILE", help="topics.json of --against (a capture has its own)."),
)

_choice_options = together(
    choice_option(
        "--out-of-range",
        ["fail", "trim"],
        "Offsets that the topic's log does not have: blocked, or trimmed to its start or end.",
    ),
    choice_option("--metadata", ["keep", "drop"], "Metadata longer than the brokers take: blocked, or left out."),
    click.option(
        "--other-topics", is_flag=True, help="The offsets are meant for topics of the same names, made again."
    ),
    click.option("--delete-others", is_flag=True, help="Delete offsets that the source lacks."),
    choice_option(
        "--new-groups",
        ["classic", "share"],
        "Type of an absent group: one that only stores offsets until members join, or a share group.",
    ),
)


@click.command("plan")
@click.argument("paths", nargs=-1, metavar="[SNAPSHOT…|RUN]")
@_source_options
@_scenario_options
@_target_options
@_choice_options
@click.option("--output", metavar="PLAN", help="Where the plan is written.")
@replay_options
@format_option(Format.TEXT, Format.JSON, Format.CSV, Format.HTML)
def plan_command(
    paths: tuple[str, ...],
    from_file: str | None,
    at_time: str | None,
    before_records: tuple[str, ...],
    before_incident: bool,
    groups: tuple[str, ...],
    all_groups: bool,
    topics: tuple[str, ...],
    group_names: tuple[str, ...],
    names_file: str | None,
    topic_names: tuple[str, ...],
    bootstrap_server: str | None,
    command_config: str | None,
    capture_directory: str | None,
    against: tuple[str, ...],
    topics_file: str | None,
    out_of_range: str,
    metadata: str,
    other_topics: bool,
    delete_others: bool,
    new_groups: str,
    output: str | None,
    output_format: Format,
    options: ReplayOptions,
    **others: Any,
) -> int:
    """Say which offsets would be written where, and what follows for each; nothing is written to a cluster.

    Offsets come from a SNAPSHOT or RUN (at its end, at a time, before a record or an incident), from a CSV, or from
    what the target holds; scenarios (--to-…, --shift-by, --by-duration) move them. Exits with 1 when an offset cannot
    be written as wanted: such a plan is not applied.
    """
    scenario = _scenario(others)
    chosen = parse_topics(topics)
    renamed_groups, renamed_topics = _names(group_names, "--map-group", groups), _names(topic_names, "--map-topic")
    of_file = {} if names_file is None else _names_of_file(names_file)
    point = _Point(None if at_time is None else time_ms(at_time, "--at-time"), _before(before_records), before_incident)
    _check(paths, from_file, point, scenario, groups, all_groups or bool(of_file), bootstrap_server, against)
    if not paths and from_file is None and (group_names or names_file or topic_names):
        raise UsageError("--map-group, --map-groups and --map-topic rename what a SNAPSHOT, RUN or --from-file has")
    if against and (command_config or capture_directory):
        raise UsageError("--command-config and --capture go with --bootstrap-server")
    if bootstrap_server is not None and topics_file is not None:
        raise UsageError("--topics goes with --against: a cluster has its own")
    if output is not None:
        refuse_other_file(output, PLAN_BEGINS, "plan")
    if capture_directory is not None:
        # It would bring the source up to now: with all that is to be put back gone.
        above = [storage.split(path)[0] for path in paths]
        refuse_read(capture_directory, [*paths, *above, *(storage.split(path)[0] for path in above)])
    by_file = bool(of_file) and not groups and not all_groups
    wanted, source = _wanted(paths, from_file, point, tuple(of_file) if by_file else groups, options)
    named = None if all_groups and wanted is None else groups
    if wanted is not None:
        known = {key.group_id: None for key in wanted.positions}
        # Groups of the file that have committed nothing have nothing to move.
        of_file = {old: new for old, new in of_file.items() if old in known}
        if by_file:
            groups = tuple(of_file)
            if not groups:
                raise UsageError(f"the source has no committed offset of a group of {names_file}")
        new_names = of_file | renamed_groups
        wanted = renamed(_chosen(wanted, groups, chosen, delete_others), new_names, renamed_topics)
        # What is deleted may be of groups of which nothing is wanted.
        of_groups = [new_names.get(group_id, group_id) for group_id in groups or known] if delete_others else []
        named = tuple(dict.fromkeys([*of_groups, *(key.group_id for key in wanted.positions)]))
        of_source, chosen = chosen, {}
        for topic, partitions in of_source.items():
            choose(chosen, renamed_topics.get(topic, topic), partitions)
    choices = Choices(
        chosen, out_of_range == "trim", metadata == "drop", other_topics, delete_others, new_groups == "share"
    )
    if bootstrap_server is not None:
        target, at = _live(
            bootstrap_server, command_config, capture_directory, wanted, named, chosen, scenario, options
        )
    else:
        target, at = _replayed(against, topics_file, named, options), {}
        if scenario is not None and scenario.needs_time:
            raise UsageError(f"--{scenario.move} asks the topics' leaders; it needs --bootstrap-server")
    if wanted is not None and delete_others:
        check_topics(chosen, wanted, target)
    warnings = ["nothing is known of the topics: ranges are not checked"] if target.topics is None else []
    if wanted is not None and is_elsewhere(wanted, target) and (scenario is None or scenario.rests_on_committed):
        warnings.append(
            f"the source is of cluster {wanted.cluster_id}, the target {target.cluster_id}: offsets are taken as they "
            "are, and of a mirrored topic the same offset is another record (MirrorMaker 2 translates offsets in its "
            "checkpoints; --to-datetime goes by time)"
        )
    if wanted is not None and not point.is_end:
        warnings += _steps(wanted, groups)
        if target.topics is not None and not other_topics and not is_elsewhere(wanted, target):
            warnings += _without_ids(wanted, renamed_topics)
    if scenario is not None:
        base = keys_of(named, chosen, target) if wanted is None else wanted.positions
        moves = moved(base, scenario, target, at)
        warned = dict(wanted.warnings if wanted is not None else {})
        for group_id, said in moves.warnings.items():
            warned[group_id] = (*warned.get(group_id, ()), *said)
        wanted = replace(wanted or moves, positions=moves.positions, warnings=warned)
        source = f"{source}, {scenario}" if source else str(scenario)
    assert wanted is not None
    plan = Plan(
        kind="restore",
        cluster_id=target.cluster_id,
        target=target.name,
        source=source,
        choices={
            "out_of_range": out_of_range,
            "metadata": metadata,
            "other_topics": str(other_topics).lower(),
            "delete_others": str(delete_others).lower(),
            "new_groups": new_groups,
        },
        created_at_ms=clock_ms(),
        groups=tuple(decide(wanted, target, choices, named or ())),
        warnings=tuple(warnings),
    )
    if output is not None:
        write_plan(output, plan)
    show_plan(plan, output_format)
    return ExitCode.CLEAN if plan.obstacle() is None else ExitCode.FINDINGS


def show_plan(plan: Plan, output_format: Format) -> None:
    """Write a plan to standard output."""
    if output_format is Format.JSON:
        for portion in plan_file(plan)[1]:
            write(portion)
        return
    # Programs get the names as they are; a terminal obeys control characters.
    shown = visible if output_format is Format.CSV and sys.stdout.isatty() else str
    write_lines(map(shown, plan_forms(plan)[output_format]()))


def _scenario(options: dict[str, Any]) -> Scenario | None:
    """The scenario of the options, which are taken out."""
    given = {move: options.pop(move.value.replace("-", "_")) for move in Move}
    found = [move for move, value in given.items() if value is not None and value is not False]
    if len(found) > 1:
        raise UsageError(f"--{found[0]} and --{found[1]} exclude each other")
    if not found:
        return None
    (move,) = found
    value = given[move]
    if move is Move.TO_DATETIME:
        return Scenario(move, time_ms(value, "--to-datetime"))
    if move is Move.BY_DURATION:
        return Scenario(move, clock_ms() - parse_duration_ms(value))
    return Scenario(move, 0 if value is True else int(value))


def _check(
    paths: Sequence[str],
    from_file: str | None,
    point: _Point,
    scenario: Scenario | None,
    groups: Sequence[str],
    all_groups: bool,
    bootstrap_server: str | None,
    against: Sequence[str],
) -> None:
    if (bootstrap_server is None) == (not against):
        raise UsageError("a plan is for a cluster (--bootstrap-server) or for a state (--against): give one of them")
    if paths and from_file is not None:
        raise UsageError("offsets come from SNAPSHOT|RUN or from --from-file, not from both")
    if not paths and from_file is None and scenario is None:
        raise UsageError("nothing says which offsets are wanted: give a SNAPSHOT or RUN, --from-file, or a scenario")
    if not point.is_end and not paths:
        raise UsageError("--at-time, --before-record and --before-incident need a SNAPSHOT or RUN")
    if sum((point.time_ms is not None, point.before is not None, point.incident)) > 1:
        raise UsageError("--at-time, --before-record and --before-incident exclude each other")
    if groups and all_groups:
        raise UsageError("--group and --all-groups exclude each other")
    if not groups and not all_groups and from_file is None:
        raise UsageError("--group or --all-groups is missing")


def _put(found: dict[K, V], key: K, value: V, where: str) -> None:
    """Put what ``where`` says of a key; ``UsageError`` where another value was said before."""
    if found.setdefault(key, value) != value:
        raise UsageError(f"{where}: {key!r} is {found[key]!r} already")


def _names(texts: Sequence[str], option: str, known: Sequence[str] = ()) -> dict[str, str]:
    """New names by old ones; of several ``=`` that one counts which has a ``known`` name before it, else the first."""
    found: dict[str, str] = {}
    for text in texts:
        old = next((name for name in known if text.startswith(f"{name}=")), text.partition("=")[0])
        new = text[len(old) + 1 :]
        if not (old and new):
            raise UsageError(f"{option} {text}: expected OLD=NEW")
        _put(found, old, new, f"{option} {text}")
    return found


def _names_of_file(path: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for where, row in csv_rows(path, storage.read_utf8(path)):
        if len(row) != 2 or not all(row):
            raise UsageError(f"{where}: expected old,new; found {len(row)} fields")
        old, new = row
        _put(found, old, new, where)
    return found


def _before(texts: Sequence[str]) -> dict[int, int] | None:
    found: dict[int, int] = {}
    for text in texts:
        partition, _, offset = text.partition(":")
        number, record = whole_number(partition, INT32_END), whole_number(offset)
        if number is None or record is None:
            raise UsageError(f"--before-record {text}: expected PARTITION:OFFSET")
        _put(found, number, record, f"--before-record {text}")
    return found or None


def _wanted(
    paths: Sequence[str], from_file: str | None, point: _Point, groups: Sequence[str], options: ReplayOptions
) -> tuple[Wanted | None, str]:
    """Offsets of the source, and what to call it; ``None``: those that the target holds."""
    if from_file is not None:
        return read_csv(from_file, storage.read_utf8(from_file), groups), from_file
    if not paths:
        return None, ""
    name = ", ".join(paths)
    cluster_id = cluster_of(paths)
    if point.is_end:
        texts = LongTexts()
        source = load_source(paths, options, long_texts=texts)
        states, ids = source.states, _ids(source.topic_names)
        count = offsets_partitions(paths, options, source.placed)
        wanted = wanted_of(states, ids, cluster_id, count.number, groups, texts)
        warned = dict(wanted.warnings)
        for group_id in _absent(groups, wanted):
            warned[group_id] = (*elsewhere(group_id, source.held, count), *warned.get(group_id, ()))
        return replace(wanted, warnings=warned), name
    snapshot, log_options = open_log(paths, options)
    damage = list(check_source(snapshot, log_options.on_damage))
    profile = profile_of(snapshot, log_options)
    found = _at(paths, snapshot, profile, point, groups, log_options, cluster_id, damage)
    warn_about_damage(damage, log_options.on_damage)
    return found, f"{name} {_point_name(point)}"


def _at(
    paths: Sequence[str],
    snapshot: Snapshot,
    profile: Profile,
    point: _Point,
    groups: Sequence[str],
    options: ReplayOptions,
    cluster_id: str | None,
    damage: list[Damage],
) -> Wanted:
    """Topic ids are those of the records alone: the names may have been those of other topics then."""
    logs = snapshot.partitions
    if not point.incident:
        states, steps = states_at(
            logs, profile, time_ms=point.time_ms, before=point.before, on_damage=options.on_damage, damage=damage
        )
        count = _offsets_partitions(paths, states, options)
        held = {log.offsets_partition for log in logs}
        wanted = wanted_of(states, {}, cluster_id, count.number, groups)
        warned = dict(wanted.warnings)
        for group_id in _absent(groups, wanted):
            warned[group_id] = (
                *elsewhere(group_id, held, count),
                *warned.get(group_id, ()),
                *_steps_of_absent(group_id, steps, states, count.number),
            )
        return replace(wanted, steps=steps, warnings=warned)
    refuse_other_rules(snapshot)
    beside = found_beside(paths)
    topics = None if beside.topics is None else read_topics(beside.topics)
    case = Case(profile, options.now_ms, None, topics, captured_retention_ms=configured_retention_ms(topics))
    told = investigate(
        snapshot,
        case,
        groups=groups or None,
        since_ms=None,
        on_damage=options.on_damage,
        damage=damage,
        workers=most_workers(),
    )
    # Deletion or expiry of a group that nobody reads any more is no incident, nor is what may be another topic by now,
    # unless somebody asks for that group.
    explanations = [
        one for one in told.explanations if groups or (one.severity > Severity.INFO and one.code != TOPIC_DELETED)
    ]
    count = _offsets_partitions(paths, told.histories, options)
    explanations, warnings = at_home(explanations, told.histories, count.number)
    incidents = incidents_of(explanations)
    if not incidents:
        why = "regroup investigate finds nothing in this log that took offsets from these groups"
        milder = sorted({one.group_id for one in told.explanations if one.group_id and one.ends})
        if milder and not groups:
            more = f" and {len(milder) - 1} more of these groups" if len(milder) > 1 else ""
            why = f"what took offsets of {milder[0]!r}{more} may have been meant: name them with --group to put it back"
        held = {log.offsets_partition for log in logs}
        away = (said for group_id in groups for said in elsewhere(group_id, held, count))
        raise UsageError("; ".join([why, *away, *(said for some in warnings.values() for said in some)]))
    return wanted_before(logs, profile, incidents, cluster_id, warnings, on_damage=options.on_damage, damage=[])


def _point_name(point: _Point) -> str:
    if point.incident:
        return "before the incident"
    if point.before is not None:
        return "before " + ", ".join(f"{partition}:{offset}" for partition, offset in sorted(point.before.items()))
    return f"at {point.time_ms} ms"


def _offsets_partitions(
    paths: Sequence[str], states: Sequence[PartitionState | PartitionHistory], options: ReplayOptions
) -> Count:
    return offsets_partitions(paths, options, lambda: ((state.offsets_partition, state.groups) for state in states))


def _ids(names: Mapping[str, str]) -> dict[str, str]:
    """Topic ids by name, of names that only one topic has had."""
    found: dict[str, str | None] = {}
    for topic_id, name in names.items():
        found[name] = None if name in found else topic_id
    return {name: topic_id for name, topic_id in found.items() if topic_id is not None}


def _chosen(wanted: Wanted, groups: Sequence[str], topics: Topics, delete_others: bool) -> Wanted:
    """The chosen part, by the names of the source; no groups: all.

    ``UsageError`` for a group, and for a topic, of which nothing is chosen; a topic may be one to delete.
    """
    for group_id in groups:
        if not any(key.group_id == group_id for key in wanted.positions):
            said = (f"the source has no committed offset of group {group_id!r}", *wanted.warnings.get(group_id, ()))
            raise UsageError("; ".join(said))
    chosen = {
        key: place
        for key, place in wanted.positions.items()
        if (not groups or key.group_id in groups) and in_scope(key, topics)
    }
    for topic in () if delete_others else topics.keys() - {key.topic for key in chosen}:
        whose = " of these groups" if groups else ""
        raise UsageError(f"the source has no committed offset{whose} of --topic {topic}")
    return replace(wanted, positions=chosen)


def _absent(groups: Sequence[str], wanted: Wanted) -> set[str]:
    """The groups that have no offset at the point."""
    return set(groups) - {key.group_id for key in wanted.positions}


def _steps(wanted: Wanted, groups: Sequence[str]) -> list[str]:
    """Warnings of clock steps; of the offsets partitions of ``groups`` where these are named."""
    partitions = {place.offsets_partition for place in wanted.positions.values()}
    return [said for partition, said in sorted(wanted.steps.items()) if not groups or partition in partitions]


def _steps_of_absent(
    group_id: str, steps: Mapping[int, str], states: Sequence[PartitionState], offsets_partitions: int
) -> tuple[str, ...]:
    """Warnings of clock steps that a group without offsets before the point may have some behind: of its offsets
    partition, or of all where the log has not that one."""
    home = partition_for(group_id, offsets_partitions)
    if any(state.offsets_partition == home for state in states):
        steps = {home: steps[home]} if home in steps else {}
    return tuple(steps.values())


def _without_ids(wanted: Wanted, renamed_topics: Mapping[str, str]) -> list[str]:
    """Warning of topics of the source for which offsets were committed without a topic id."""
    positions = wanted.positions.items()
    topics = sorted({key.topic for key, place in positions if place.topic_id is None} - {*renamed_topics.values()})
    if not topics:
        return []
    more = f" (and of {count(len(topics) - 1, 'topic')} more)" if len(topics) > 1 else ""
    return [
        f"offsets of topic {topics[0]}{more} were committed without a topic id: whether the topic was made again since "
        "cannot be told"
    ]


def _live(
    bootstrap_server: str,
    command_config: str | None,
    capture_directory: str | None,
    wanted: Wanted | None,
    groups: Sequence[str] | None,
    topics: Mapping[str, frozenset[int] | None],
    scenario: Scenario | None,
    options: ReplayOptions,
) -> tuple[Target, dict[tuple[str, int], int]]:
    """The cluster, and the offsets of the time that a scenario names."""
    from coordinator_core.cluster.client import Client
    from coordinator_core.cluster.restore_target import captured, check_seen, live_target, offsets_at
    from coordinator_core.cluster.settings import read_settings

    with Client(read_settings(bootstrap_server, command_config)) as client:
        states, texts = None, LongTexts()
        if capture_directory is not None:
            _, states = captured(client, capture_directory, options.profile, texts)
        keys: list[OffsetKey] = [] if wanted is None else list(wanted.positions)
        target = live_target(client, keys, groups, topics)
        if states is not None:
            if wanted is None:
                check_seen(client, target, states, topics)
            with_records(target.groups, states, target.offsets_partitions, texts)
        if scenario is None or not scenario.needs_time:
            return target, {}
        base = keys or list(keys_of(groups, topics, target))
        return target, offsets_at(client, base, scenario.number)


def _replayed(
    paths: Sequence[str], topics_file: str | None, groups: Sequence[str] | None, options: ReplayOptions
) -> Target:
    """A run or a snapshot in the place of a cluster; ``groups`` are those of the plan, ``None``: all."""
    # Texts of its own: the texts that a state may hold are limited.
    texts = LongTexts()
    replaying = replace(options, profile=None) if is_run(paths[0]) else options
    source = load_source(paths, replaying, long_texts=texts)
    if topics_file is None:
        own = [storage.join(path, TOPICS_FILE) for path in paths]
        topics_file = next((path for path in own if storage.exists(path)), None)
    number = offsets_partitions(paths, options, source.placed).number
    check_places(source.states, number, groups or ())
    return Target(
        name=", ".join(paths),
        cluster_id=cluster_of(paths),
        groups=groups_of(source.states, _ids(source.topic_names), place_of(number), texts),
        topics=None if topics_file is None else topics_of(read_topics(topics_file)),
        offsets_partitions=number,
        has_group_clock=source.profile.expiry.clock is Clock.GROUP,
    )
