from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from expectations.__main__ import main

from .faults import published

ROOT = Path(__file__).resolve().parent.parent.parent

WATCHED = """
import sys
sys.path.insert(0, {root!r})
seen = []
def hook(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.sendto"):
        seen.append((event, arguments))
sys.addaudithook(hook)
from expectations.__main__ import main
code = main(sys.argv[1:])
sys.exit(code or (9 if seen else 0))
"""

LOADED = """
import sys
sys.path.insert(0, {root!r})
import expectations.__main__, expectations.gate
print("great_expectations" in sys.modules)
"""


@pytest.mark.real
def test_a_clean_run_passes_in_silence_and_without_network(tmp_path: Path) -> None:
    run = published("k241/before", tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", WATCHED.format(root=str(ROOT)), run.path, "--format", "json"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    document = json.loads(done.stdout)
    assert document["passed"]
    assert document["evaluated"] == document["declared"]
    assert document["failed"] == {"critical": 0, "warning": 0, "info": 0}
    assert [path.name for path in tmp_path.iterdir()] == ["corpus"]


def test_importing_the_gate_does_not_import_gx() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOADED.format(root=str(ROOT))], capture_output=True, text=True, check=False
    )
    assert done.stdout == "False\n", done.stderr


@pytest.mark.parametrize("arguments", [[], ["--nonsense"], ["RUN", "--format", "xml"], ["RUN", "--fail-on", "x"]])
def test_wrong_options_are_usage_errors(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    assert "Error: " in capsys.readouterr().err


def test_what_is_no_run_is_a_usage_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path)]) == 2
    assert "is not a published run: it has no manifest.json" in capsys.readouterr().err


def test_a_place_where_data_docs_cannot_be_is_a_usage_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = published("k082/after", tmp_path)
    assert main([run.path, "--data-docs", str(Path(run.path) / "manifest.json")]) == 2
    assert "is not a directory" in capsys.readouterr().err
    assert main([run.path, "--data-docs", "s3://user:secret@bucket/docs"]) == 2
    assert "a URI with credentials" in capsys.readouterr().err


def test_an_internal_error_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("REGROUP_DEBUG", raising=False)
    run = published("k082/after", tmp_path)

    def fails(*_: object, **__: object) -> None:
        raise ValueError("no such thing should happen")

    monkeypatch.setattr("expectations.__main__.evaluate", fails)
    assert main([run.path]) == 5
    assert capsys.readouterr().err == "expectations: internal error: ValueError: no such thing should happen\n"
