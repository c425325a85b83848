"""``regroup describe`` and ``regroup list``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from coordinator_core.cli.not_here import check_groups, tell_split
from coordinator_core.cli.options import (
    Format,
    ReplayOptions,
    format_option,
    group_options,
    note,
    replay_options,
    require_topic_names,
    topics_option,
    write_json,
    write_line,
)
from coordinator_core.cli.source import ReplayedSource, found_beside, load_source
from coordinator_core.errors import ExitCode, UsageError
from coordinator_core.merge.packed import LongTexts
from coordinator_core.reports import consumer_groups
from coordinator_core.reports.describe import Selection, describe, listing
from coordinator_core.rules.topics import read_topics
from coordinator_core.topology import Topology, load_topology


@click.command("describe")
@click.argument("paths", nargs=-1, required=True, metavar="SNAPSHOT…|RUN")
@click.option("--offsets", is_flag=True, help="Committed offsets (the default).")
@click.option("--members", is_flag=True, help="Members and their assignments.")
@click.option("--state", is_flag=True, help="State, assignor and epochs.")
@click.option("--verbose", is_flag=True, help="More columns, as the Kafka tool's --verbose.")
@topics_option
@group_options
@replay_options
@format_option(Format.TEXT, Format.JSON)
def describe_command(
    paths: tuple[str, ...],
    verbose: bool,
    topics_file: str | None,
    groups: tuple[str, ...],
    all_groups: bool,
    topics: tuple[str, ...],
    output_format: Format,
    options: ReplayOptions,
    **views: bool,
) -> int:
    """Groups, members and committed offsets, as the broker that loads this log would hold them.

    Log ends, lag and coordinators are there where topics and topology are known: a capture has them.
    """
    view, *others = [name for name, chosen in views.items() if chosen] or ["offsets"]
    if others:
        raise UsageError("--offsets, --members and --state exclude each other")
    # Text shows no metadata.
    metadata = LongTexts() if output_format is Format.JSON else None
    selection = _selection(groups, all_groups, topics)
    source = load_source(paths, options, long_texts=metadata)
    check_groups(source, groups, paths, options)
    beside = found_beside(paths)
    topics_file = topics_file or beside.topics
    document = describe(
        source.states,
        profile=source.profile,
        now_ms=source.now_ms,
        partial=source.partial,
        known_topic_names=source.topic_names,
        selection=selection,
        topics=None if topics_file is None else read_topics(topics_file),
    )
    tell_split(source, document["groups"], paths, options)
    if metadata is not None:
        for group in document["groups"]:
            group["offsets"] = metadata.whole(group["offsets"], "metadata")
        document["orphaned_offsets"] = metadata.whole(document["orphaned_offsets"], "metadata")
        write_json(document)
    else:
        topology = _topology(beside.topology) if view == "state" else None
        for group in document["groups"]:
            _describe_text(group, view, verbose, selection, topology)
        _tell_none(topics, document["groups"])
    return _exit_code(source)


def _topology(path: str | None) -> Topology | None:
    try:
        return None if path is None else load_topology(path)
    except UsageError as error:
        note(f"regroup: {error}; it is not used")
        return None


def _describe_text(
    group: dict[str, Any], view: str, verbose: bool, selection: Selection, topology: Topology | None
) -> None:
    line = consumer_groups.notice(group)
    if line is not None:
        note(f"\n{line}")
    match view:
        case "members":
            text = consumer_groups.members_text(group, verbose=verbose)
        case "state":
            text = consumer_groups.state_text(group, verbose=verbose, topology=topology)
        case _:
            text = consumer_groups.offsets_text(group, verbose=verbose, topics=selection.topics)
    write_line(f"\n{text}")


@click.command("list")
@click.argument("paths", nargs=-1, required=True, metavar="SNAPSHOT…|RUN")
@click.option("--type", "with_type", is_flag=True, help="Show the type of each group.")
@click.option("--state", "with_state", is_flag=True, help="Show the state of each group.")
@group_options
@replay_options
@format_option(Format.TEXT, Format.JSON)
def list_command(
    paths: tuple[str, ...],
    with_type: bool,
    with_state: bool,
    groups: tuple[str, ...],
    all_groups: bool,
    topics: tuple[str, ...],
    output_format: Format,
    options: ReplayOptions,
) -> int:
    """Groups with their type and state."""
    selection = _selection(groups, all_groups, topics)
    source = load_source(paths, options)
    check_groups(source, groups, paths, options)
    rows = listing(
        source.states,
        profile=source.profile,
        known_topic_names=source.topic_names,
        selection=selection,
    )
    tell_split(source, rows, paths, options)
    if output_format is Format.JSON:
        write_json(rows)
    elif not rows:
        _tell_none(topics, rows)
    else:
        plain = not (with_type or with_state)
        write_line(consumer_groups.list_text(rows, with_type=plain or with_type, with_state=plain or with_state))
    return _exit_code(source)


def _selection(groups: tuple[str, ...], all_groups: bool, topics: tuple[str, ...]) -> Selection:
    if groups and all_groups:
        raise click.UsageError("--group and --all-groups exclude each other")
    require_topic_names(topics, "--topic")
    return Selection(frozenset(groups) if groups else None, frozenset(topics) if topics else None)


def _tell_none(topics: tuple[str, ...], found: Sequence[object]) -> None:
    if topics and not found:
        note("None of the groups has an offset of these topics, or owns a partition of one.")


def _exit_code(source: ReplayedSource) -> int:
    """A partition that its own coordinator could not load is a finding, also where we read on."""
    return ExitCode.FINDINGS if any(state.load_failures for state in source.states) else ExitCode.CLEAN
