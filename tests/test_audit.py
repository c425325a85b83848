"""``make audit``: known vulnerabilities of locked packages, from a copy."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
(PYARROW,) = re.findall(r"^pyarrow==(\S+)", (ROOT / ".ci/locks/core.txt").read_text(), re.MULTILINE)
AFTER = f"{int(PYARROW.partition('.')[0]) + 1}.0"


def audited(place: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / ".ci/audit.py"), str(place)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def advisory(identifier: str, package: str = "pyarrow", ecosystem: str = "PyPI", **more: Any) -> dict[str, Any]:
    """An OSV advisory; ``events``, ``versions`` are those of the package."""
    events = more.pop("events", [])
    affected = {
        "package": {"ecosystem": ecosystem, "name": package},
        "ranges": [{"type": "ECOSYSTEM", "events": events}] if events else [],
        "versions": more.pop("versions", []),
    }
    return {"id": identifier, "summary": "what it is", "affected": [affected], **more}


CONCERNED = {
    "never-fixed": advisory("never-fixed", events=[{"introduced": "0"}]),
    "fixed-later": advisory(
        "fixed-later", "PyArrow", events=[{"introduced": "0"}, {"fixed": AFTER}], aliases=["CVE-1"]
    ),
    "again": advisory("again", events=[{"introduced": "0"}, {"fixed": "0.9"}, {"introduced": "1.0"}, {"fixed": AFTER}]),
    "last": advisory("last", events=[{"introduced": "0"}, {"last_affected": PYARROW}]),
    "listed": advisory("listed", versions=["0.1", PYARROW]),
}
OTHERS = {
    "fixed": advisory("fixed", events=[{"introduced": "0"}, {"fixed": PYARROW}]),
    "last-before": advisory("last-before", events=[{"introduced": "0"}, {"last_affected": "1.0"}]),
    "later": advisory("later", events=[{"introduced": AFTER}]),
    "withdrawn": advisory("withdrawn", versions=[PYARROW], withdrawn="2026-01-01T00:00:00Z"),
    "elsewhere": advisory("elsewhere", ecosystem="npm", versions=[PYARROW]),
    "unused": advisory("unused", "no-such-package", versions=["1.0"]),
}


@pytest.mark.parametrize("zipped", [False, True])
def test_what_concerns_a_locked_version_is_named(tmp_path: Path, zipped: bool) -> None:
    for name, document in (CONCERNED | OTHERS).items():
        (tmp_path / f"{name}.json").write_text(json.dumps(document))
    place = tmp_path
    if zipped:
        place = tmp_path / "all.zip"
        with zipfile.ZipFile(place, "w") as archive:
            for path in tmp_path.glob("*.json"):
                archive.write(path, path.name)
    done = audited(place)
    assert done.returncode == 1, done.stderr
    *lines, last = done.stdout.splitlines()
    assert {line.split(": ")[1].split(", ")[0] for line in lines} == CONCERNED.keys()
    assert f"pyarrow {PYARROW}: fixed-later, CVE-1: what it is" in lines
    assert last.endswith(f"{len(CONCERNED) + len(OTHERS) - 1} advisories, {len(CONCERNED)} found")


def test_nothing_found_and_nothing_to_compare_with(tmp_path: Path) -> None:
    assert audited(tmp_path).returncode == 2
    for name, document in OTHERS.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(document))
    assert audited(tmp_path).returncode == 0
