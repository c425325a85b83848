"""Selection and removal of a cluster's old output.

Kinds: ``runs``, each with its findings, its report and its table ``history``, and ``pins``. A run goes only when
``latest.json`` does not name it, the findings of no run that stays compare with it, and no catalogue refers to its
files. Nothing of the last day goes, with any options: a task may be at it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
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
    beside,
    directories_of,
)
from coordinator_core.runs.registered import Registry, is_registered
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


def _old_runs(place: str, keep: Keep, now_ms: int, besides: Registry | None) -> list[Removal]:
    windows = {window: set(directories_of(window)) for window in directories_of(place)}
    manifests = {run: storage.stat(storage.join(run, MANIFEST)) for there in windows.values() for run in there}
    runs = {path: _run(path, manifest) for path, manifest in manifests.items() if manifest is not None}
    old = _old(list(runs.values()), keep, now_ms)
    # Left by a writer or a deletion that was killed. A run without a manifest may also still be written.
    left = [(path, _about(path)) for path in manifests.keys() - runs.keys() if _is_left_of_run(path)]
    left += [(path, []) for window, there in windows.items() for path in _left_beside(window, there)]
    remains = [removal for path, about in left if (removal := _remains(path, about)) is not None]
    old += _old(remains, replace(keep, newest=None), now_ms)
    registered = {path for path in runs if is_registered(path, besides=besides)}
    staying = set(runs) - {removal.paths[-1] for removal in old} | registered
    named = set(_latest(place))
    for path in staying | named:
        named |= {storage.join(place, *run) for run in _compared_with(path)}
    return [removal for removal in old if removal.paths[-1] not in named | registered]


def _latest(place: str) -> Iterator[str]:
    """The run that ``latest.json`` names; ``UsageError`` where that cannot be told."""
    latest = storage.join(place, LATEST)
    if storage.exists(latest):
        try:
            yield storage.join(place, *files.read_json(latest)["path"].split("/"))
        except (ValueError, KeyError, TypeError, AttributeError):
            raise UsageError(f"{latest} cannot be read: it names a run that must stay") from None


def _run(path: str, manifest: Entry) -> Removal:
    return Removal("runs", _at_ms(manifest), (manifest.path, *_about(path), path))


def _left_beside(window: str, runs: Collection[str]) -> Iterator[str]:
    """Directories that are being deleted, and what is kept about runs that are not there any more."""
    for entry in storage.list_directory(window):
        if not entry.is_directory:
            continue
        if storage.is_being_deleted(entry.name):
            yield entry.path
        elif entry.name in (*BESIDE_DIRECTORIES, CATALOGS_DIRECTORY):
            for about in storage.list_directory(entry.path):
                run = storage.join(window, about.name)
                if about.is_directory and run not in runs and not is_registered(run):
                    yield about.path


def _is_left_of_run(path: str) -> bool:
    """Whether a directory without a manifest has nothing but files of a run.

    Another one may be a snapshot, a capture or a compacted log that somebody keeps there.
    """
    return all(
        entry.name == STAGING
        or (entry.name in TABLES and all(_is_of_table(file.name) for file in _files_below(entry.path)))
        if entry.is_directory
        else entry.name.startswith(MANIFEST) or storage.is_unfinished(entry.name)
        for entry in _entries(path)
    )


def _is_of_table(name: str) -> bool:
    return name.endswith(".parquet") or storage.is_unfinished(name)


def _remains(path: str, about: Sequence[str]) -> Removal | None:
    """A directory without a manifest, of the time at which it was last written to; ``None`` when that is not known."""
    at_ms = max(map(_at_ms, _files_below(path)), default=None)
    if at_ms is None:
        # Directories alone: a file system has a time for them.
        found = storage.stat(path)
        at_ms = None if found is None or found.modified_ns is None else _at_ms(found)
    return None if at_ms is None else Removal("runs", at_ms, (*about, path))


def _files_below(path: str) -> Iterator[Entry]:
    """Like :func:`storage.files_below`, while another process may delete any of the directories."""
    for entry in _entries(path):
        if entry.is_directory:
            yield from _files_below(entry.path)
        else:
            yield entry


def _entries(path: str) -> Sequence[Entry]:
    """What a directory has; nothing where another process deletes it."""
    try:
        return list(storage.list_directory(path))
    except UsageError:
        if storage.exists(path):
            raise
        return []


def _about(path: str) -> list[str]:
    """Findings about a run, reports and the table ``history`` of it."""
    others = (beside(path, directory) for directory in BESIDE_DIRECTORIES)
    return [other for other in others if storage.stat(other) is not None]


def _at_ms(entry: Entry) -> int:
    if entry.modified_ns is None:
        raise UsageError(f"{entry.path}: its storage does not tell when it was written")
    return entry.modified_ns // 1_000_000


def _old_pins(place: str, keep: Keep, now_ms: int) -> list[Removal]:
    pins = storage.join(place, PINS_DIRECTORY)
    if storage.stat(pins) is None:
        return []
    found: dict[bool, list[Removal]] = {True: [], False: []}
    windows = [window.path for window in storage.list_directory(pins) if window.is_directory]
    for window in windows:
        for entry in storage.list_directory(window):
            found[storage.is_unfinished(entry.name)].append(Removal("pins", _at_ms(entry), (entry.path,)))
    # Files that a killed writer left are no pins to keep.
    return _old(found[False], keep, now_ms) + _old(found[True], replace(keep, newest=None), now_ms)


def _compared_with(run: str) -> Iterator[tuple[str, str]]:
    """Window and id of the runs that findings about ``run`` compare it with; ``UsageError`` as :func:`_latest`."""
    findings = beside(run, FINDINGS_DIRECTORY)
    if storage.stat(findings) is None:
        return
    for directory in storage.list_directory(findings):
        path = storage.join(directory.path, RECONCILIATION)
        if storage.exists(path):
            try:
                previous = files.read_json(path)["previous"]
                named = None if previous is None else (str(previous["window"]), str(previous["run_id"]))
            except (ValueError, KeyError, TypeError):
                raise UsageError(f"{path} cannot be read: it names a run that must stay") from None
            if named is not None:
                yield named
