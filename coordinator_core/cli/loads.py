"""``regroup loads``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import groupby
from typing import Any

import click

from coordinator_core.cli.options import Format, ReplayOptions, format_option, log_options, write_result
from coordinator_core.cli.source import open_snapshot, refuse_other_rules, warn_about_damage
from coordinator_core.durations import noun, numbered
from coordinator_core.errors import Damage, ExitCode, UsageError
from coordinator_core.investigate.words import some_of
from coordinator_core.lifecycle.half_cleaned import group_histories
from coordinator_core.lifecycle.loads import GroupDifference, Outcome, PartitionLoad, ReleaseLoad, Stop, loads
from coordinator_core.releases import Profile, every_profile, profiles_of_release
from coordinator_core.untrusted import visible

_GROUPS_SHOWN = 3
_PARTITIONS_SHOWN = 8


@click.command("loads")
@click.argument("paths", nargs=-1, required=True, metavar="SNAPSHOT…")
@click.option(
    "--releases",
    metavar="RELEASE,…",
    help="Only these releases, e.g. 3.9.2,4.0.1 (default: every release at which loading changed).",
)
@click.option(
    "--any-cleaning",
    is_flag=True,
    help="Ask too whether a pass of the log cleaner, finished or half-way, can leave records that a release refuses.",
)
@log_options
@format_option(Format.TEXT, Format.JSON)
def loads_command(
    paths: tuple[str, ...], releases: str | None, any_cleaning: bool, output_format: Format, options: ReplayOptions
) -> int:
    """Tell which Kafka releases load this log, which load it with other groups or offsets, and where the others stop.

    The comparison is with the release of the log (--profile, --kafka-version; by default the one that the records
    tell). Exits with 0 when all releases that were asked for load every partition, with 1 when one does not.
    """
    profiles = _profiles(releases)
    refuse_other_rules(paths)
    snapshot, base = open_snapshot(paths, options)
    damage: list[Damage] = []
    histories = None
    if any_cleaning:
        histories = {
            log.offsets_partition: group_histories(log, on_damage=options.on_damage, damage=[])
            for log in snapshot.partitions
        }
    found = loads(
        snapshot,
        base,
        profiles,
        on_damage=options.on_damage,
        damage=damage,
        cache=options.fold_cache,
        histories=histories,
    )
    warn_about_damage(damage, options.on_damage)
    # Of some releases the first that does not stop need not be the one with the fix.
    fix = "fixed in" if releases is None else "not in"
    write_result(output_format, _document(base, found), _text(base, found, fix))
    return ExitCode.FINDINGS if any(one.outcome is Outcome.STOPS for one in found) else ExitCode.CLEAN


def _profiles(releases: str | None) -> list[Profile]:
    if releases is None:
        return every_profile()
    names = [name.strip() for name in releases.split(",")]
    if not all(names):
        raise UsageError(f"--releases {releases}: expected releases with commas between them")
    return [profile for name in names for profile in profiles_of_release(name)]


def _document(base: Profile, found: Sequence[ReleaseLoad]) -> dict[str, Any]:
    return {
        "compared_with": base.label,
        "releases": [
            {
                "releases": [profile.as_dict() for profile in one.profiles],
                "outcome": one.outcome,
                "partitions": [_partition(partition) for partition in one.partitions],
            }
            for one in found
        ],
    }


def _partition(load: PartitionLoad) -> dict[str, Any]:
    return {
        "offsets_partition": load.offsets_partition,
        "outcome": load.outcome,
        "stop": None if load.stop is None else load.stop.as_dict(),
        "after_cleaning": None if load.after_cleaning is None else load.after_cleaning.as_dict(),
        "differences": [asdict(difference) for difference in load.differences],
    }


def _text(base: Profile, found: Sequence[ReleaseLoad], fix: str) -> Iterator[str]:
    yield f"compared with {base.label}"
    for _, alike in groupby(found, key=lambda one: one.partitions):
        members = list(alike)
        names = ", ".join(f"{profile.release} {profile.coordinator}" for one in members for profile in one.profiles)
        yield f"{members[0].outcome:<8} {names}"
        partitions: dict[str, list[int]] = {}
        for partition in members[0].partitions:
            for line in _lines(partition, fix):
                partitions.setdefault(line, []).append(partition.offsets_partition)
        for line, numbers in partitions.items():
            yield f"         {line} [{some_of([*map(str, numbers)], _PARTITIONS_SHOWN)}]"


def _lines(load: PartitionLoad, fix: str) -> Iterator[str]:
    if load.stop is not None:
        yield f"stops {_where(load.stop, fix)}"
    if load.after_cleaning is not None:
        yield f"loads, but a cleaner can leave records that stop it {_where(load.after_cleaning, fix)}"
    yield from (_difference(each) for each in load.differences[:_GROUPS_SHOWN])
    more = len(load.differences) - _GROUPS_SHOWN
    if more > 0:
        yield f"and {more} more {noun(more, 'group')} (--format json has all)"


def _where(stop: Stop, fix: str) -> str:
    place = "at its end" if stop.record_offset is None else f"at record {stop.record_offset}"
    bug = "" if stop.bug is None else f" ({stop.bug}{f', {fix} {stop.fixed_in}' if stop.fixed_in else ''})"
    return f"{place}: {visible(stop.detail)}{bug}"


def _difference(difference: GroupDifference) -> str:
    what = [difference.change if not difference.fields else ", ".join(difference.fields)]
    if difference.offset_keys:
        what.append(numbered(difference.offset_keys, "committed offset"))
    return f"group {visible(difference.group_id)}: {'; '.join(what)}"
