"""The archive of classes: written by the first JVM, used by the next, left out where it cannot be."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from spark_apps.classdata import ClassData, cache_directory


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def java() -> str:
    home = os.environ.get("JAVA_HOME")
    found = os.path.join(home, "bin", "java") if home else shutil.which("java")
    assert found is not None
    return found


def run_jvm(options: list[str], *more: str) -> tuple[subprocess.Popen[bytes], str]:
    command = [java(), *options, *more, "-version"]
    jvm = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    assert jvm.stderr is not None
    return jvm, jvm.stderr.read().decode()


def test_the_second_jvm_maps_what_the_first_wrote() -> None:
    first = ClassData()
    assert not first.archive.exists()
    jvm, _ = run_jvm(first.jvm_options())
    first.keep(jvm)
    assert jvm.returncode == 0
    assert list(cache_directory().iterdir()) == [first.archive]

    second = ClassData()
    assert second.archive == first.archive
    # With -Xshare:on the JVM ends when it cannot map an archive.
    jvm, said = run_jvm(second.jvm_options(), "-Xshare:on")
    second.keep(jvm)
    assert (jvm.wait(), "sharing" in said) == (0, True)
    assert list(cache_directory().iterdir()) == [first.archive]


def test_an_archive_that_is_none_does_no_harm() -> None:
    data = ClassData()
    data.archive.parent.mkdir(mode=0o700, parents=True)
    data.archive.write_bytes(b"not an archive")
    jvm, said = run_jvm(data.jvm_options())
    assert jvm.wait() == 0
    assert "version" in said


def test_a_jvm_that_writes_nothing_leaves_nothing() -> None:
    data = ClassData()
    data.jvm_options()
    with subprocess.Popen(["false"], stdin=subprocess.PIPE) as process:
        data.keep(process)
    assert list(cache_directory().iterdir()) == []


def test_leftovers_of_killed_sessions_go() -> None:
    cache_directory().mkdir(parents=True)
    old, new = cache_directory() / ".old.new", cache_directory() / ".young.new"
    for path in (old, new):
        path.touch()
    os.utime(old, (0, 0))
    ClassData().jvm_options()
    assert not old.exists()
    assert new.exists()


def test_a_cache_that_cannot_be_made_is_done_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "file"
    file.touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(file))
    data = ClassData()
    assert data.jvm_options() == []
    with subprocess.Popen(["true"], stdin=subprocess.PIPE) as process:
        data.keep(process)


@pytest.mark.parametrize(
    "what", ["others may write to the directory", "others may write to it", "a link", "of another"]
)
def test_an_archive_that_somebody_else_may_have_put_there_is_not_used(what: str) -> None:
    data = ClassData()
    data.archive.parent.mkdir(mode=0o700, parents=True)
    data.archive.write_bytes(b"classes")
    assert data.jvm_options() == [f"-XX:SharedArchiveFile={data.archive}", "-Xlog:disable"]
    match what:
        case "others may write to the directory":
            data.archive.parent.chmod(0o777)
        case "others may write to it":
            data.archive.chmod(0o666)
        case "a link":
            other = data.archive.with_suffix(".other")
            data.archive.rename(other)
            data.archive.symlink_to(other)
        case _:
            if os.geteuid():
                pytest.fail("this test gives a file to another user, as root only can")
            os.chown(data.archive, 65534, 65534)
    assert ClassData().jvm_options() == []
