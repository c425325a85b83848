"""Notes beside a run of the catalogues that refer to its files, so that nothing removes them.

A note is ``<window>/_catalogs/<run id>/<catalogue>,<namespace>.json``. It names the catalogue, never its credentials.
"""

from __future__ import annotations

from collections.abc import Iterable

from coordinator_core import files, storage
from coordinator_core.runs.place import CATALOGS_DIRECTORY, beside, check_component

DEFAULT_NAMESPACE = "regroup"
"""Namespace of the tables in a catalogue, unless another one is asked for."""

Registry = tuple[str, str]
"""Names of a catalogue and of a namespace in it."""


def note_registration(run: str, catalog: str, namespace: str) -> None:
    """Note that the tables of ``namespace`` in ``catalog`` name files of the run at the path ``run``."""
    directory = beside(run, CATALOGS_DIRECTORY)
    storage.make_directory(directory)
    files.write_json(_note(directory, catalog, namespace), {"catalog": catalog, "namespace": namespace})


def forget_registration(run: str, catalog: str, namespace: str) -> None:
    """Remove the note; none there is fine. Its directory stays where another process notes something meanwhile."""
    directory = beside(run, CATALOGS_DIRECTORY)
    storage.delete(_note(directory, catalog, namespace))
    if storage.is_local(directory):
        storage.remove_empty([storage.local_path(directory)])


def is_registered(run: str) -> bool:
    """Whether a catalogue refers to files of the run."""
    directory = beside(run, CATALOGS_DIRECTORY)
    if storage.stat(directory) is None:
        return False
    return has_note(entry.name for entry in storage.list_directory(directory, missing_ok=True))


def has_note(names: Iterable[str], besides: Registry | None = None) -> bool:
    """Whether one of these files in the directory of a run's notes is of a catalogue other than ``besides``."""
    notes = {name for name in names if name.endswith(".json") and not storage.is_unfinished(name)}
    return bool(notes - {_file(*besides)} if besides is not None else notes)


def check_names(catalog: str, namespace: str) -> None:
    """``UsageError`` for names that no file can have."""
    check_component("catalog", catalog)
    check_component("namespace", namespace)


def _note(directory: str, catalog: str, namespace: str) -> str:
    return storage.join(directory, _file(catalog, namespace))


def _file(catalog: str, namespace: str) -> str:
    return f"{catalog},{namespace}.json"
