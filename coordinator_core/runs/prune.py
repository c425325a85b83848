"""Selection and removal of a cluster's old output.

Kinds: ``runs``, each with its findings, its report, its table ``history`` and its tombstones, and ``pins``. A run goes
only when ``latest.json`` does not name it, the findings of no run that stays compare with it, and no catalogue refers
to its files. Nothing of the last day goes, with any options: a task may be at it. Links among windows and runs stay,
and nothing is deleted through them: they are other names of runs, or lead elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from coordinator_core import files, storage
from coordinator_core.durations import DAY_MS
from coordinator_core.errors import UsageError
from coordinator_core.runs.place import (
    BESIDE_DIRECTORIES,
    CATALOGS_DIRECTORY,
    FINDINGS_DIRECTORY,
    LATEST,
    MANIFEST,
    PINS_DIRECTORY,
    RECONCILIATION,
    directories_of,
    may_hold_runs,
)
from coordinator_core.runs.registered import Registry, has_note
from coordinator_core.runs.schemas import TABLES
from coordinator_core.runs.table_directory import STAGING
from coordinator_core.storage import Entry

KINDS = ("runs", "pins")


@dataclass(frozen=True)
class Keep:
    """Outputs of a kind that stay: the ``newest`` so many, and those younger than ``days``; at least one is given."""

    newest: int | None = None
    days: float | None = None


@dataclass(frozen=True)
class Removal:
    """Something that may go: ``paths`` in the order in which they are deleted, ``at_ms`` when it was published."""

    kind: str
    at_ms: int
    paths: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, "path": self.paths[-1], "at_ms": self.at_ms, "with": list(self.paths[:-1])}


def prunable(
    output: str, cluster: str, keep: Mapping[str, Keep], now_ms: int, besides: Registry | None = None
) -> list[Removal]:
    """Outputs of the kinds in ``keep`` that may go, the oldest first; ``UsageError`` where the cluster has none.

    ``besides`` is a catalogue whose references do not count: the caller takes the runs out of it before they go.
    """
    place = storage.join(output, cluster)
    if storage.stat(place) is None:
        raise UsageError(f"{place}: no such directory")
    found: list[Removal] = []
    if "pins" in keep:
        found += _old_pins(place, keep["pins"], now_ms)
    if "runs" in keep:
        found += _old_runs(place, keep["runs"], now_ms, besides)
    return sorted(found, key=lambda removal: (removal.at_ms, removal.paths))


def prune(removals: list[Removal]) -> None:
    """Delete them, and local directories that are empty then. A run without its manifest is none any more, so that goes
    first."""
    for removal in removals:
        for path in removal.paths:
            storage.delete(path)
        window = storage.split(removal.paths[-1])[0]
        if storage.is_local(window):
            inside = (storage.join(window, name) for name in (*BESIDE_DIRECTORIES, CATALOGS_DIRECTORY))
            storage.remove_empty([storage.local_path(path) for path in (window, *inside)])


def _old(items: list[Removal], keep: Keep, now_ms: int) -> list[Removal]:
    by_age = sorted(items, key=lambda item: (-item.at_ms, item.paths))
    oldest_ms = now_ms - int(max(keep.days or 0, 1) * DAY_MS)
    return [item for item in by_age[keep.newest or 0 :] if item.at_ms < oldest_ms]


@dataclass
class _Found:
    """What the windows of a cluster have: ``findings`` are the paths of reconciliations about a run, by its path."""

    runs: dict[str, Removal] = field(default_factory=dict)
    registered: set[str] = field(default_factory=set)
    left: list[Removal] = field(default_factory=list)
    findings: dict[str, list[str]] = field(default_factory=dict)


def _old_runs(place: str, keep: Keep, now_ms: int, besides: Registry | None) -> list[Removal]:
    found = _Found()
    for window in directories_of(place):
        if not _is_link(window):
            _Window(window).add_to(found, besides)
    old = _old(list(found.runs.values()), keep, now_ms) + _old(found.left, replace(keep, newest=None), now_ms)
    staying = set(found.runs) - {removal.paths[-1] for removal in old} | found.registered
    named = set(_latest(place))
    for path in staying | named:
        for reconciliation in found.findings.get(path, ()):
            named |= {storage.join(place, *run) for run in _compared_with(reconciliation)}
    return [removal for removal in old if removal.paths[-1] not in named | found.registered]


def _latest(place: str) -> Iterator[str]:
    """The run that ``latest.json`` names; ``UsageError`` where that cannot be told."""
    latest = storage.join(place, LATEST)
    if storage.exists(latest):
        try:
            yield storage.join(place, *files.read_json(latest)["path"].split("/"))
        except (ValueError, KeyError, TypeError, AttributeError):
            raise UsageError(f"{latest} cannot be read: it names a run that must stay") from None


class _Window:
    """A window, by paths from there.

    In an object store, where each listing is a request, it is listed once with all below it. Elsewhere only what is
    asked for is: other directories in it may be large, and links may lead anywhere.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._entries: dict[str, Entry] = {}
        self._inside: dict[str, list[str]] = {}
        self._is_listed = storage.is_object(path)
        if self._is_listed:
            for name, entry in storage.entries_below(path):
                self._add(name.rpartition("/")[0], name, entry)

    def add_to(self, found: _Found, besides: Registry | None) -> None:
        """Adds its runs, and what is left of others; ``besides`` as of :func:`prunable`."""
        top = [entry for _, entry in self._in() if not _is_link(entry.path)]
        for entry in filter(may_hold_runs, top):
            manifest = self._entry(f"{entry.name}/{MANIFEST}")
            if manifest is not None:
                paths = (manifest.path, *self._about(entry.name), entry.path)
                found.runs[entry.path] = Removal("runs", _at_ms(manifest), paths)
                if self._is_registered(entry.name, besides):
                    found.registered.add(entry.path)
            elif self._is_left_of_run(entry.name):
                # By a writer or a deletion that was killed. It may also still be written.
                found.left += self._remains(entry.name, *self._about(entry.name))
        for _, about in self._in(FINDINGS_DIRECTORY):
            # Also about a run that is gone: ``latest.json`` may name it.
            found.findings[storage.join(self._path, about.name)] = self._reconciliations(about.name)
        for entry in top:
            if entry.is_directory and storage.is_being_deleted(entry.name):
                found.left += self._remains(entry.name)
            elif entry.name in (*BESIDE_DIRECTORIES, CATALOGS_DIRECTORY):
                # What is kept about runs that are not there any more.
                for _, about in self._in(entry.name):
                    is_there = about.name in self._entries or self._is_registered(about.name)
                    if about.is_directory and not is_there:
                        found.left += self._remains(f"{entry.name}/{about.name}")

    def _add(self, directory: str, name: str, entry: Entry) -> None:
        self._entries[name] = entry
        self._inside.setdefault(directory, []).append(name)

    def _in(self, directory: str = "") -> list[tuple[str, Entry]]:
        """What a directory has, with its path in the window; of one that is not there, or goes meanwhile, nothing."""
        if not self._is_listed and directory not in self._inside:
            self._inside[directory] = []
            for entry in self._entries_in(directory):
                self._add(directory, f"{directory}/{entry.name}" if directory else entry.name, entry)
        return [(name, self._entries[name]) for name in self._inside.get(directory, ())]

    def _entries_in(self, directory: str) -> list[Entry]:
        if not directory:
            return storage.entries_in(self._path)
        found = self._entry(directory)
        return [] if found is None or not found.is_directory else storage.entries_in(found.path)

    def _entry(self, name: str) -> Entry | None:
        self._in(name.rpartition("/")[0])
        return self._entries.get(name)

    def _below(self, directory: str) -> Iterator[Entry]:
        """Files below a directory."""
        for name, entry in self._in(directory):
            if entry.is_directory:
                yield from self._below(name)
            else:
                yield entry

    def _about(self, run: str) -> list[str]:
        """Findings about a run, reports and the table ``history`` of it."""
        others = (self._entry(f"{directory}/{run}") for directory in BESIDE_DIRECTORIES)
        return [other.path for other in others if other is not None]

    def _is_registered(self, run: str, besides: Registry | None = None) -> bool:
        return has_note((entry.name for _, entry in self._in(f"{CATALOGS_DIRECTORY}/{run}")), besides)

    def _reconciliations(self, run: str) -> list[str]:
        found = (
            self._entry(f"{directory}/{RECONCILIATION}") for directory, _ in self._in(f"{FINDINGS_DIRECTORY}/{run}")
        )
        return [entry.path for entry in found if entry is not None]

    def _is_left_of_run(self, directory: str) -> bool:
        """Whether a directory without a manifest has nothing but files of a run.

        Another one may be a snapshot, a capture or a compacted log that somebody keeps there.
        """
        return all(self._is_of_run(name, entry) for name, entry in self._in(directory))

    def _is_of_run(self, name: str, entry: Entry) -> bool:
        if not entry.is_directory:
            return entry.name.startswith(MANIFEST) or storage.is_unfinished(entry.name)
        if entry.name not in TABLES:
            return entry.name == STAGING
        return all(_is_of_table(file.name) for file in self._below(name))

    def _remains(self, directory: str, *about: str) -> list[Removal]:
        """A directory without a manifest, of the time at which it was last written to; none when that is not known."""
        entry = self._entries[directory]
        at_ms = max(map(_at_ms, self._below(directory)), default=None)
        if at_ms is None and entry.modified_ns is not None:
            # Directories alone: a file system has a time for them.
            at_ms = _at_ms(entry)
        return [] if at_ms is None else [Removal("runs", at_ms, (*about, entry.path))]


def _is_link(path: str) -> bool:
    return storage.is_local(path) and storage.local_path(path).is_symlink()


def _is_of_table(name: str) -> bool:
    return name.endswith(".parquet") or storage.is_unfinished(name)


def _at_ms(entry: Entry) -> int:
    if entry.modified_ns is None:
        raise UsageError(f"{entry.path}: its storage does not tell when it was written")
    return entry.modified_ns // 1_000_000


def _old_pins(place: str, keep: Keep, now_ms: int) -> list[Removal]:
    pins = storage.join(place, PINS_DIRECTORY)
    if storage.stat(pins) is None:
        return []
    found: dict[bool, list[Removal]] = {True: [], False: []}
    for name, entry in storage.entries_below(pins):
        # A window, and the name of the pin.
        if name.count("/") == 1 and not _is_link(storage.split(entry.path)[0]):
            found[storage.is_unfinished(entry.name)].append(Removal("pins", _at_ms(entry), (entry.path,)))
    # Files that a killed writer left are no pins to keep.
    return _old(found[False], keep, now_ms) + _old(found[True], replace(keep, newest=None), now_ms)


def _compared_with(path: str) -> Iterator[tuple[str, str]]:
    """Window and id of the run that the findings of a reconciliation compare theirs with; ``UsageError`` as
    :func:`_latest`."""
    try:
        previous = files.read_json(path)["previous"]
        named = None if previous is None else (str(previous["window"]), str(previous["run_id"]))
    except (ValueError, KeyError, TypeError):
        raise UsageError(f"{path} cannot be read: it names a run that must stay") from None
    if named is not None:
        yield named
