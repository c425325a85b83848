"""A new release is one row: the section of CONTRIBUTING.md about it, carried out on a copy of the package."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
LOG = ROOT / "tests" / "corpus" / "k431-txn" / "log"
ROW, FIELD = re.findall(
    r"```\n(.*?)```",
    (ROOT / "CONTRIBUTING.md").read_text().split("## Add a Kafka release")[1],
    re.DOTALL,
)[:2]
NAMED_FIELD = re.findall(r"`(new_fields=\(.*?\))`", (ROOT / "CONTRIBUTING.md").read_text())[0]

FACTS = """
import json
from coordinator_core.coordinator.api_versions import api_versions
from coordinator_core.lifecycle.expiry import plan_expiry
from coordinator_core.releases import PROFILE_RELEASES, Release, profile_for, profile_for_release
from coordinator_core.replay.inference import Evidence, release_of
from coordinator_core.reports.dump_styles import STYLES, style_of, tables_of

new, before = profile_for_release("4.10.0"), profile_for_release("4.9.3")
seen = Evidence(fields_since={Release.parse("4.9"), Release.parse("4.4"), Release.parse("4.10")})
print(json.dumps({
    "label": new.label,
    "family": profile_for("J5").label,
    "families": [*PROFILE_RELEASES],
    "before": before.label,
    "initial epoch": new.initial_epoch,
    "sweeps": [before.expiry.share_sweep, new.expiry.share_sweep],
    "apis": api_versions(new.requests) == api_versions(profile_for_release("4.3.1").requests),
    "lines": [style_of(release).line == style_of("4.4.0").line for release in ("4.9.3", "4.10.0")],
    "compiled": tables_of(style_of("4.10.0")) is not None,
    "styles": [str(style.since) for style in STYLES[-2:]],
    "in order": Release.parse("4.10.0") > Release.parse("4.9.3"),
    "inferred": [str(release_of(seen)[0]), str(release_of(Evidence())[0])],
}))
"""

FIELDS = """
import json
from dataclasses import replace
from coordinator_core.log.types import Batch
from coordinator_core.records.codec import encode_key, encode_value
from coordinator_core.releases import Release
from coordinator_core.replay.inference import Evidence, release_of
from coordinator_core.reports.dump_styles import style_of
from tests.replay.histories import History, parsed

history = History().modern(3, {"groupId": "g"}, {"epoch": 7, "metadataHash": 0, "zone": 5})
[(batch, [record])] = parsed(history.batches)
evidence = Evidence()
evidence.add(batch, [record])
print(json.dumps({
    "inferred": [str(part) for part in release_of(evidence)],
    "dumped": {release: style_of(release).texts(record)[1] for release in ("4.4.0", "4.9.3", "4.10.0")},
}))
"""


COMMANDS = """
import contextlib, io, json, sys
from coordinator_core.cli.app import run
said = []
for words in json.loads(sys.argv[1]):
    out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(words)
    out.flush()
    said.append([code, out.buffer.getvalue().decode(), err.getvalue()])
print(json.dumps(said))
"""


def changed(path: Path, before: str, after: str) -> None:
    text = path.read_text()
    assert text.count(before) == 1, f"{before!r} in {path}"
    path.write_text(text.replace(before, after))


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The package with a row 4.9 at the end of the table, and then the one that CONTRIBUTING.md shows."""
    package = tmp_path / "coordinator_core"
    shutil.copytree(ROOT / "coordinator_core", package, ignore=shutil.ignore_patterns("__pycache__"))
    rows = f'    Line("4.9", "4.9.3"),\n{ROW}'
    changed(package / "releases" / "lines.py", ')\n"""Oldest first."""', f'{rows})\n"""Oldest first."""')
    return tmp_path


def run(copy: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": f"{copy}{os.pathsep}{ROOT}"}
    return subprocess.run(
        [sys.executable, *arguments], cwd=copy, env=environment, capture_output=True, text=True, check=False
    )


def said_by(copy: Path, script: str, *arguments: str) -> Any:
    done = run(copy, "-c", script, *arguments)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_one_row_makes_a_release(copy: Path) -> None:
    assert said_by(copy, FACTS) == {
        "label": "J5 (4.10.0, new coordinator)",
        "family": "J5 (4.10.0, new coordinator)",
        "families": ["S0", "S1", "S2", "S3", "S4", "J0", "J1", "J2", "J3", "J4", "J5"],
        "before": "J4 (4.9.3, new coordinator)",
        "initial epoch": 1,
        "sweeps": ["fails_on_offsets", "deletes"],
        "apis": True,
        "lines": [True, True],
        "compiled": True,
        "styles": ["4.3", "4.4"],
        "in order": True,
        "inferred": ["4.10.0", "4.3.1"],
    }


def test_the_command_line_knows_it(copy: Path) -> None:
    asked = (["describe", "--group", "x-plain-after"], ["dump"], ["expire", "--now-ms", "1795251200000"])
    words = [
        [command, str(LOG), *options, "--kafka-version", release]
        for release in ("4.4.0", "4.10.0")
        for command, *options in asked
    ]
    refused = ["describe", str(LOG), "--kafka-version", "4.11.0"]
    *said, (refusal, _, why) = said_by(copy, COMMANDS, json.dumps([*words, refused]))
    for known, new in zip(said[:3], said[3:], strict=True):
        code, out, err = new
        assert [code, out, err.replace("J5 (4.10.0", "J4 (4.4.0")] == known
        assert out
    assert refusal != 0
    assert "releases 0.8.2 to 4.10 are known" in why


def test_a_field_that_the_row_adds_is_read_dumped_and_tells_the_release(copy: Path) -> None:
    changed(
        copy / "coordinator_core" / "releases" / "lines.py",
        ROW,
        ROW.replace("    ),\n", f"        {NAMED_FIELD},\n    ),\n"),
    )
    before = 'added_in=_added("ConsumerGroupMetadataValue.metadataHash")),\n'
    changed(copy / "coordinator_core" / "records" / "schemas.py", before, before + FIELD)
    assert said_by(copy, FIELDS) == {
        "inferred": ["4.10.0", "new"],
        "dumped": {
            "4.4.0": '{"version":"0","data":{"epoch":7}}',
            "4.9.3": '{"version":"0","data":{"epoch":7}}',
            "4.10.0": '{"version":"0","data":{"epoch":7,"zone":5}}',
        },
    }
