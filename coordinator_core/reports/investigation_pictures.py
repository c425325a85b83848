"""Pictures of an investigation: committed offsets over time, with generations, owners and coordinators as bands."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from coordinator_core.durations import elapsed
from coordinator_core.groups.model import OffsetKey
from coordinator_core.history.model import ChangeKind, GroupHistory, PartitionHistory, Version
from coordinator_core.investigate.investigate import Investigation
from coordinator_core.investigate.model import Explanation
from coordinator_core.investigate.words import count
from coordinator_core.investigate.words import moment as time_text
from coordinator_core.reports.drawing import COLOURS, SERIES, figure, moment, set_number_axis
from coordinator_core.reports.pages import cut_name
from coordinator_core.rules.model import Severity
from coordinator_core.untrusted import visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TOPICS, PARTITIONS, GROUPS = 3, 6, 14
_POINTS = 2000
_LANE = 20
_PLOT = 150
_MARKED = 9


@dataclass(frozen=True, slots=True)
class _Bar:
    begin_ms: int
    end_ms: int
    text: str
    colour: str
    alpha: float = 0.35


@dataclass(frozen=True, slots=True)
class _Lane:
    label: str
    bars: Sequence[_Bar]
    marks: Sequence[int] = ()
    """Times at which something was removed."""

    @property
    def drawn(self) -> list[_Bar]:
        """Bars of which both ends have a time."""
        return [bar for bar in self.bars if min(bar.begin_ms, bar.end_ms) >= 0]


def marked(explanations: Sequence[Explanation]) -> list[Explanation]:
    """Explanations that have a number in pictures, which is their place in this list, from 1 on."""
    timed = [one for one in explanations if one.at_ms > 0]
    return ([one for one in timed if one.severity > Severity.INFO] or timed)[:_MARKED]


def group_picture(group: GroupHistory, home: PartitionHistory, found: Investigation) -> str:
    """One group: what it had committed, in which generation, by whom, and who coordinated it."""
    topics = _drawn_keys(group)
    shown = [key for keys in topics.values() for key in keys]
    left_out = len(group.versions) - len(shown)
    owners = _names(version for key in shown for version in group.versions[key])
    lanes = [
        _Lane("generation", _generations(group, home)),
        *(_Lane(key.topic_partition, _owners(group, key, owners, home)) for key in shown),
        _Lane("coordinator", _coordinators(home)),
    ]
    marks = marked([one for one in found.explanations if one.group_id in (None, group.group_id)])
    numbers = {id(one): number for number, one in enumerate(marked(found.explanations), 1)}

    def draw(axes: Sequence[Axes], is_wide: bool) -> None:
        for plot, (topic, keys) in zip(axes, topics.items(), strict=False):
            ends = []
            for number, key in enumerate(keys):
                colour = SERIES[number % len(SERIES)]
                curves = list(_curves(group.versions[key], _until(home)))
                for times, offsets in curves:
                    plot.plot([moment(at) for at in times], offsets, color=colour, linewidth=1.6)
                ends += [(moment(times[-1]), float(offsets[-1]), str(key.partition)) for times, offsets in curves[-1:]]
                gone = [one for one in group.versions[key] if (one.gone_ms or -1) >= 0]
                at = [moment(one.gone_ms or 0) for one in gone]
                plot.plot(at, [one.last.committed_offset for one in gone], "x", color=COLOURS["critical"])
            for end, offset, text in _apart(ends, plot.get_ylim()):
                plot.annotate(text, (end, offset), (3, 0), textcoords="offset points", va="center")
            plot.set_title(cut_name(visible(topic), 60 if is_wide else 30), fontsize=12, loc="left", pad=4)
            set_number_axis(plot)
            plot.margins(x=0.05 if is_wide else 0.1)
        _draw_lanes(axes[-1], lanes, is_wide)
        _draw_moves(axes, [home])
        _draw_marks(axes, [(numbers[id(one)], one) for one in marks if id(one) in numbers])

    more = f"; {count(left_out, 'partition')} more not drawn" if left_out > 0 else ""
    return figure(
        f"Committed offsets of {visible(group.group_id)} over time, UTC{more}",
        ". ".join(_group_read(group, shown, home)),
        [*(_PLOT for _ in topics), _LANE * len(lanes)],
        draw,
    )


def cluster_picture(found: Investigation) -> str:
    """All groups: how many committed offsets stood, when groups had members, and which coordinators moved."""
    chosen = _drawn_groups(found)
    homes = {home.offsets_partition: home for home in found.histories}
    moved = sorted((home for home in found.histories if home.leaders), key=lambda home: -len(home.leaders))[:6]
    lanes = [
        _Lane(
            group.group_id,
            [bar for bar in _generations(group, homes[group.offsets_partition]) if bar.text != "empty"],
            sorted({one.place.timestamp_ms for one in group.removals} - {-1}),
        )
        for group in chosen
    ] + [_Lane(f"coordinator {home.offsets_partition}", _coordinators(home)) for home in moved]
    times, standing = _standing(found)

    def draw(axes: Sequence[Axes], is_wide: bool) -> None:
        axes[0].step([moment(at) for at in times], standing, where="post", color=SERIES[0], linewidth=1.6)
        axes[0].set_title("committed offsets that stand", fontsize=12, loc="left", pad=4)
        axes[0].set_ylim(bottom=0)
        axes[0].margins(x=0.03)
        set_number_axis(axes[0])
        _draw_lanes(axes[1], lanes, is_wide)
        _draw_moves(axes, moved)
        _draw_marks(axes, list(enumerate(marked(found.explanations), 1)))

    more = len(list(found.groups)) - len(chosen)
    return figure(
        "Committed offsets and groups over time, UTC"
        + (f"; {count(more, 'group')} more not drawn" if more > 0 else ""),
        ". ".join(_cluster_read(standing, chosen, moved)),
        [100, _LANE * max(1, len(lanes))],
        draw,
    )


def _draw_lanes(plot: Axes, lanes: Sequence[_Lane], is_wide: bool) -> None:
    begin = min((bar.begin_ms for lane in lanes for bar in lane.drawn), default=0)
    end = max((bar.end_ms for lane in lanes for bar in lane.drawn), default=1)
    letters = (end - begin) / (130 if is_wide else 36) or 1
    for row, lane in enumerate(lanes):
        for bar in lane.drawn:
            width = max(moment(bar.end_ms) - moment(bar.begin_ms), 0)
            plot.broken_barh(
                [(moment(bar.begin_ms), width)],
                (row - 0.4, 0.8),
                facecolor=bar.colour,
                alpha=bar.alpha,
                edgecolor=COLOURS["line"],
                linewidth=0.5,
            )
            room = int((bar.end_ms - bar.begin_ms) / letters)
            if room >= min(6, len(bar.text) + 1):
                plot.text(moment(bar.begin_ms), row, " " + cut_name(visible(bar.text), room), va="center", clip_on=True)
        plot.plot([moment(at) for at in lane.marks], [row] * len(lane.marks), "x", color=COLOURS["critical"])
    most = 19 if is_wide else 11
    plot.set_yticks(range(len(lanes)), [cut_name(visible(lane.label), most) for lane in lanes])
    plot.set_ylim(len(lanes) - 0.5, -0.5)
    plot.tick_params(axis="y", length=0)


def _draw_moves(axes: Sequence[Axes], homes: Sequence[PartitionHistory]) -> None:
    for at in {change.place.timestamp_ms for home in homes for change in home.leaders} - {-1}:
        for plot in axes:
            plot.axvline(moment(at), color=COLOURS["quiet"], linestyle="--", linewidth=1)


def _draw_marks(axes: Sequence[Axes], numbered: Sequence[tuple[int, Explanation]]) -> None:
    for _, one in numbered:
        for plot in axes:
            plot.axvline(moment(one.at_ms), color=COLOURS[one.severity.label], linewidth=1.2)
    places = [(0.0, moment(one.at_ms), str(number)) for number, one in numbered]
    for _, at, text in _apart(places, axes[0].get_xlim()):
        axes[0].annotate(text, (at, 1), (0, 3), ("data", "axes fraction"), "offset points", ha="center")


def _apart(
    places: Sequence[tuple[float, float, str]], limits: tuple[float, float]
) -> Iterator[tuple[float, float, str]]:
    """Texts at (x, y). Those at about the same y (of ``limits``) are made one: they would lie on each other."""
    room = (limits[1] - limits[0]) / 12
    together: list[tuple[float, float, str]] = []
    for x, y, text in sorted(places, key=lambda place: place[1]):
        if together and y - together[-1][1] < room and x == together[-1][0]:
            together[-1] = (x, together[-1][1], f"{together[-1][2]}, {text}")
        else:
            together.append((x, y, text))
    yield from together


def _drawn_keys(group: GroupHistory) -> dict[str, list[OffsetKey]]:
    """Offset keys by topic: those that lost something first, then those with the most values."""

    def weight(key: OffsetKey) -> tuple[bool, int, int]:
        versions = group.versions[key]
        return (
            any(one.gone_ms is not None for one in versions),
            len(versions),
            sum(version.commits for version in versions),
        )

    found: dict[str, list[OffsetKey]] = {}
    for key in sorted(group.versions, key=lambda key: (tuple(-int(part) for part in weight(key)), key)):
        if key.topic in found or len(found) < TOPICS:
            found.setdefault(key.topic, []).append(key)
    return {topic: sorted(keys[:PARTITIONS]) for topic, keys in found.items()}


def _drawn_groups(found: Investigation) -> list[GroupHistory]:
    explained = [one.group_id for one in found.explanations if one.group_id is not None]
    rank = {group_id: number for number, group_id in reversed(list(enumerate(explained)))}
    ordered = sorted(found.groups, key=lambda group: (rank.get(group.group_id, len(rank)), -group.records))
    return ordered[:GROUPS]


def _curves(versions: Sequence[Version], last_ms: int) -> Iterator[tuple[list[int], list[int]]]:
    """Times and committed offsets, a curve for each stretch in which an offset was there."""
    versions = [one for one in versions if min(one.valid_from.timestamp_ms, one.last_place.timestamp_ms) >= 0]
    step = max(1, len(versions) // _POINTS)
    times: list[int] = []
    offsets: list[int] = []
    for version in (one for number, one in enumerate(versions) if number % step == 0 or one.gone_ms is not None):
        if times:
            times.append(version.valid_from.timestamp_ms)
            offsets.append(offsets[-1])
        times += [version.valid_from.timestamp_ms, version.last_place.timestamp_ms]
        offsets += [version.first.committed_offset, version.last.committed_offset]
        if version.gone_ms is not None:
            yield [*times, max(version.gone_ms, times[-1])], [*offsets, offsets[-1]]
            times, offsets = [], []
    if times:
        yield [*times, max(last_ms, times[-1])], [*offsets, offsets[-1]]


def _until(home: PartitionHistory) -> int:
    """A little after the last record: what it changed shows."""
    return home.last_ms + max(0, elapsed(home.first_ms, home.last_ms)) // 20


def _generations(group: GroupHistory, home: PartitionHistory) -> list[_Bar]:
    bars = []
    ends = [change.place.timestamp_ms for change in group.changes[1:]] + [_until(home)]
    for number, (change, end_ms) in enumerate(zip(group.changes, ends, strict=False)):
        begin_ms = change.place.timestamp_ms
        if change.kind is ChangeKind.EMPTY:
            bars.append(_Bar(begin_ms, end_ms, "empty", COLOURS["line"], 0.25))
        elif change.kind in (ChangeKind.GENERATION, ChangeKind.EPOCH):
            bars.append(_Bar(begin_ms, end_ms, str(change.generation), SERIES[number % 2], 0.35))
    return bars


def _names(versions: Iterable[Version]) -> dict[str, str]:
    """A short name of each member, by member id: its instance, or its client, and the end of its id if need be."""
    members = {one.member.member_id: one.member for one in versions if one.member is not None}
    first = {key: one.instance_id or one.client_id or key for key, one in members.items()}
    taken = list(first.values())
    return {key: name if taken.count(name) == 1 else f"{name} …{key[-4:]}" for key, name in first.items()}


def _owners(group: GroupHistory, key: OffsetKey, names: dict[str, str], home: PartitionHistory) -> list[_Bar]:
    versions = group.versions[key]
    order = list(names)
    bars: list[_Bar] = []
    for version, after in zip(versions, [*versions[1:], None], strict=True):
        begin_ms = version.valid_from.timestamp_ms
        end_ms = _until(home) if after is None else after.valid_from.timestamp_ms
        if version.gone_ms is not None:
            end_ms = version.gone_ms
        text, colour = "nobody", COLOURS["line"]
        if version.member is not None:
            text = names[version.member.member_id]
            colour = SERIES[order.index(version.member.member_id) % len(SERIES)]
        elif version.origin is not None:
            text = version.origin.kind.value
        if bars and (bars[-1].text, bars[-1].end_ms) == (text, begin_ms):
            begin_ms = bars.pop().begin_ms
        bars.append(_Bar(begin_ms, end_ms, text, colour))
    return bars


def _coordinators(home: PartitionHistory) -> list[_Bar]:
    """A bar for each leader epoch of the offsets partition; where nothing was written between, there is none."""
    bars, begin_ms = [], home.first_ms
    for change in home.leaders:
        bars.append(
            _Bar(begin_ms, change.place.timestamp_ms - change.pause_ms, f"epoch {change.epoch_before}", SERIES[2])
        )
        begin_ms = change.place.timestamp_ms
    last = home.leaders[-1].place.leader_epoch if home.leaders else None
    return [*bars, _Bar(begin_ms, _until(home), "" if last is None else f"epoch {last}", SERIES[3])]


def _standing(found: Investigation) -> tuple[list[int], list[int]]:
    """Times, and how many committed offsets there were from each on."""
    steps: dict[int, int] = {}
    for group in found.groups:
        for versions in group.versions.values():
            standing = False
            for version in versions:
                if not standing:
                    steps[version.valid_from.timestamp_ms] = steps.get(version.valid_from.timestamp_ms, 0) + 1
                standing = True
                if (gone_ms := version.gone_ms) is not None:
                    steps[gone_ms] = steps.get(gone_ms, 0) - 1
                    standing = False
    # What began, or went, at an unknown time counts from the first known one on.
    times, standing_now, total = [], [], steps.pop(-1, 0)
    for at in sorted(steps):
        total += steps[at]
        times.append(at)
        standing_now.append(total)
    last = max((home.last_ms for home in found.histories), default=0)
    return [*times, max([last, *times[-1:]])], [*standing_now, total]


def _group_read(group: GroupHistory, keys: Sequence[OffsetKey], home: PartitionHistory) -> Iterator[str]:
    for key in keys:
        versions = group.versions[key]
        first, last = versions[0], versions[-1]
        gone = "" if last.gone_ms is None else f", gone at {time_text(last.gone_ms)}"
        name = visible(key.topic_partition)
        yield (
            f"{name}: {first.first.committed_offset} at {time_text(first.valid_from.timestamp_ms)}, "
            f"{last.last.committed_offset} at {time_text(last.last_place.timestamp_ms)}{gone}"
        )
    generations = [change.generation for change in group.changes if change.kind is ChangeKind.GENERATION]
    if generations:
        yield f"Generations {generations[0]} to {generations[-1]}"
    yield from _moves_read([home])


def _cluster_read(
    standing: Sequence[int], groups: Sequence[GroupHistory], moved: Sequence[PartitionHistory]
) -> Iterator[str]:
    yield f"At most {max(standing)} committed offsets stood, {standing[-1]} do at the end"
    for group in groups:
        if group.removals:
            last = time_text(group.removals[-1].place.timestamp_ms)
            yield f"{visible(group.group_id)} lost {count(len(group.removals), 'offset')}, the last at {last}"
    yield from _moves_read(moved)


def _moves_read(homes: Sequence[PartitionHistory]) -> Iterator[str]:
    for home in homes:
        for change in home.leaders:
            at = time_text(change.place.timestamp_ms)
            yield f"Coordinator of offsets partition {home.offsets_partition} moved at {at}"
