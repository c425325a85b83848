"""Looking up facts in the table of releases (``lines.py``)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Final

from coordinator_core.releases.facts import CLASSIC_KEY_TYPES, DumpText, Loader, Profile, Sign, Tools, ValueLayout
from coordinator_core.releases.lines import LINES, Line, Patch
from coordinator_core.releases.number import Release


class ReleaseTable:
    """The rows of ``lines``, with what each takes over from those above it.

    Raises :class:`ValueError` for rows that are not in ascending order.
    """

    def __init__(self, lines: Sequence[Line]) -> None:
        self._lines = tuple(lines)
        self._since = tuple(Release.parse(line.since) for line in lines)
        _check_order(self._since)
        for line, following in zip(self._lines, (*self._since[1:], None), strict=True):
            patches = [Release.parse(patch.since) for patch in line.patches]
            _check_order([Release.parse(line.since), *patches, *([following] if following else [])])
        self._profiles: dict[Loader, list[Profile | None]] = {loader: [] for loader in Loader}
        self._tools: list[Tools] = []
        self._coordinators: list[tuple[Loader, ...]] = []
        for line in self._lines:
            for loader, profiles in self._profiles.items():
                profiles.append(_changed(profiles[-1] if profiles else None, line, loader))
            tools = line.tools if isinstance(line.tools, Tools) else self._tools[-1]
            self._tools.append(line.tools(tools) if callable(line.tools) else tools)
            self._coordinators.append(line.coordinators or self._coordinators[-1])

    @property
    def oldest(self) -> Release:
        """The first release of the first row."""
        return self._since[0]

    @property
    def newest(self) -> Release:
        """The first release of the last row."""
        return self._since[-1]

    def coordinators(self, release: Release) -> tuple[Loader, ...]:
        """Coordinators that brokers of ``release`` can have, the default first."""
        return self._coordinators[self._row(release)]

    def profile(self, release: Release, loader: Loader) -> Profile:
        """The facts of ``release`` with one of its :meth:`coordinators`."""
        row = self._row(release)
        profile = self._profiles[loader][row]
        for patch in self._lines[row].patches:
            if Release.parse(patch.since) <= release:
                profile = _changed(profile, patch, loader)
        assert profile is not None, f"Kafka {release} has no {loader.coordinator} coordinator"
        return replace(profile, release=release)

    def latest(self) -> Iterator[tuple[Release, Loader]]:
        """The newest release of every row with each of its coordinators, rows oldest first, the default
        coordinator first."""
        for line, coordinators in zip(self._lines, self._coordinators, strict=True):
            for loader in coordinators if line.latest else ():
                yield Release.parse(line.latest), loader

    def changes(self) -> Iterator[tuple[Release, Loader]]:
        """The first release of every row, and of every patch in it, that is released, with each of its coordinators."""
        for line, since, coordinators in zip(self._lines, self._since, self._coordinators, strict=True):
            releases = [since, *(Release.parse(patch.since) for patch in line.patches)] if line.latest else []
            for release in releases:
                if release <= Release.parse(line.latest):
                    for loader in coordinators:
                        yield release, loader

    def inferred_from(self, sign: Sign) -> tuple[Release, Loader]:
        """The release, and its default coordinator, that a log with this ``sign`` is taken for."""
        row = next(row for row, line in enumerate(self._lines) if sign in line.inferred_from)
        return Release.parse(self._lines[row].latest), self._coordinators[row][0]

    def first_with_field(self, field: str) -> Release:
        """The release that added ``field``, as ``<schema>.<field>``; ``KeyError`` if none did."""
        for line, since in zip(self._lines, self._since, strict=True):
            if field in line.new_fields:
                return since
        raise KeyError(field)

    def first_with_key_types(self, key_types: Collection[int]) -> Release | None:
        """The release that first wrote the newest of the given types of group records; ``None``: all are
        types of classic groups, or unknown."""
        before = CLASSIC_KEY_TYPES
        first = None
        for since, profile in zip(self._since, self._profiles[Loader.JAVA], strict=True):
            known = profile.known_key_types if profile else before
            if not (known - before).isdisjoint(key_types):
                first = since
            before = known
        return first

    def latest_alike(self, release: Release, *, in_layout: bool = False) -> Release:
        """The newest release that writes group records as ``release`` does: no field and no type is new, nor
        (``in_layout``) the layout of their values."""
        row = self._row(release)
        found = row
        for later in range(row + 1, len(self._lines)):
            types = (self._known(later), self._known(later - 1))
            if self._lines[later].new_fields or types[0] != types[1] or not self._lines[later].latest:
                break
            if in_layout and self._layout(later) is not self._layout(row):
                break
            found = later
        return Release.parse(self._lines[found].latest)

    def tools(self, release: Release) -> Tools:
        """Facts about the output of the command line tools of ``release``."""
        return self._tools[self._row(release)]

    def dump_changes(self) -> Iterator[tuple[Release, DumpText]]:
        """The releases whose dump tool prints a log otherwise than the one before, with its form."""
        before: object = None
        fields = 0
        for row, (line, tools) in enumerate(zip(self._lines, self._tools, strict=True)):
            fields += len(line.new_fields)
            profile = self._profiles[Loader.JAVA][row]
            printed: tuple[object, ...] = (tools,)
            if tools.dumped_key_types and profile:
                # Text printed as JSON follows the schemas of the release.
                layouts = profile.value_layout, profile.max_legacy_offset_value_version
                printed = tools, fields, layouts
            if printed != before:
                yield self._since[row], tools.dump_text
            before = printed

    def _row(self, release: Release) -> int:
        return max((row for row, since in enumerate(self._since) if since <= release), default=0)

    def _layout(self, row: int) -> ValueLayout | None:
        profile = self._profiles[Loader.JAVA][row]
        return profile.value_layout if profile else None

    def _known(self, row: int) -> frozenset[int]:
        profile = self._profiles[Loader.JAVA][row]
        return profile.known_key_types if profile else CLASSIC_KEY_TYPES


def _changed(was: Profile | None, line: Line | Patch, loader: Loader) -> Profile | None:
    change = line.classic if loader is Loader.SCALA else line.new
    if change is None or isinstance(change, Profile):
        return change or was
    assert was is not None, f"{line.since} changes a coordinator that no row above it introduces"
    return change(was)


def _check_order(releases: Sequence[Release]) -> None:
    for before, after in pairwise(releases):
        if not before < after:
            raise ValueError(f"row {after} stands below {before}")


TABLE: Final = ReleaseTable(LINES)
