"""Notes of catalogues beside a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from coordinator_core import storage
from coordinator_core.runs.registered import forget_registration, is_registered, note_registration


def test_the_last_note_takes_its_directory_along(tmp_path: Path) -> None:
    run = str(tmp_path / "w/r")
    for namespace in ("a", "b"):
        note_registration(run, "lake", namespace)
    forget_registration(run, "lake", "a")
    assert is_registered(run)
    forget_registration(run, "lake", "b")
    assert not is_registered(run)
    assert list((tmp_path / "w/_catalogs").iterdir()) == []
    forget_registration(run, "lake", "b")


def test_what_a_killed_writer_left_is_no_note(tmp_path: Path) -> None:
    run = str(tmp_path / "w/r")
    note_registration(run, "lake", "a")
    (tmp_path / "w/_catalogs/r/.lake,a.json.x1y2z3").touch()
    assert is_registered(run)
    forget_registration(run, "lake", "a")
    assert not is_registered(run)


def test_a_note_that_another_process_makes_meanwhile_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, directory = str(tmp_path / "w/r"), tmp_path / "w/_catalogs/r"
    note_registration(run, "lake", "a")
    delete, remove_empty = storage.delete, storage.remove_empty

    def noted_before(remove: Any) -> Any:
        def removing(what: Any) -> None:
            if what in (str(directory), [directory]):
                note_registration(run, "lake", "b")
            remove(what)

        return removing

    monkeypatch.setattr(storage, "delete", noted_before(delete))
    monkeypatch.setattr(storage, "remove_empty", noted_before(remove_empty))
    forget_registration(run, "lake", "a")
    assert [note.name for note in directory.iterdir()] == ["lake,b.json"]
