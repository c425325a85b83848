"""Outputs of commands do not depend on the order of sets: they are the same under three seeds of Python's hashes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from coordinator_core.cli.app import cli
from tests.cases import CORPUS, case
from tests.cli.commands import WITH_A_BROKER, leaves

LOG = str(case("k431-mixed").paths[0])
TRACE = str(min((CORPUS.parent / "traces").rglob("4.3.1/*.jsonl"), key=lambda path: path.stat().st_size))
FIXED = ["--kafka-version", "4.3.1", "--now-ms", "1800000000000", "--no-fold-cache"]
PUBLISHED = "runs/c/w/r"
COMMANDS = [
    ["replay", LOG, "--output", "runs", "--cluster", "c", "--window", "w", "--run-id", "r", *FIXED],
    ["replay", LOG, "--output", "runs", "--cluster", "c", "--window", "w", "--run-id", "s", *FIXED],
    ["audit", "export", PUBLISHED, "--output", "evidence", *FIXED[2:]],
    ["audit", "verify", "evidence", "--log", LOG],
    ["compact", LOG, "--output", "compacted", *FIXED],
    ["describe", LOG, "--members", "--verbose", *FIXED],
    ["describe", PUBLISHED, "--format", "json"],
    ["diff", PUBLISHED, "runs/c/w/s", "--format", "json"],
    [
        "drill",
        "predict",
        PUBLISHED,
        "--topology",
        "topology.json",
        "--scenario",
        "rolling-restart",
        "--load-samples",
        "samples",
    ],
    ["dump", LOG, "--format", "jsonl", "--kafka-version", "4.3.1"],
    ["expire", PUBLISHED, "--offsets-retention-ms", "1", "--publish", "--format", "json"],
    ["explain", LOG, "--group", "#hash#group", *FIXED],
    ["find-coordinator", "b", "a", "c"],
    ["history", LOG, "--output", "history.parquet", *FIXED],
    ["investigate", PUBLISHED, "--output", "investigation", "--now-ms", "1800000000000"],
    ["list", LOG, *FIXED],
    ["loads", LOG],
    ["prune", "runs", "--cluster", "c", "--keep", "1"],
    ["reconcile", PUBLISHED, "--fail-on", "never", "--publish", "--format", "json"],
    ["report", PUBLISHED, "--output", "report"],
    ["rescue", LOG, *FIXED],
    ["restore", "plan", PUBLISHED, "--all-groups", "--against", "runs/c/w/s", "--format", "csv"],
    ["rules"],
    ["simulate", TRACE],
    ["stats", LOG, "--format", "json", *FIXED],
    ["verify", LOG],
    ["whatif", PUBLISHED, "--to", "streams", "--format", "json"],
    ["whatif", PUBLISHED, "--offsets-partitions", "7", "--format", "json"],
]
ELSEWHERE = {"drill compare", "import-records", "register"}
"""``tests/drill/test_compare.py`` compares pages with pages; a log of records has no order of its own; tables of a
catalogue have ids by chance."""

RUN = """
import contextlib, hashlib, io, json, sys
from pathlib import Path
from coordinator_core.cli.app import run
said = {}
for words in json.loads(sys.argv[1]):
    out = io.TextIOWrapper(io.BytesIO())
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()) as err:
        code = run(words)
    out.flush()
    said[" ".join(words)] = [code, out.buffer.getvalue().decode("utf-8", "replace"), err.getvalue()]
files = [path for path in sorted(Path().rglob("*")) if path.is_file()]
print(json.dumps([said, {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}]))
"""
TIMED = ("replay", "compact")
"""Their summaries say how long it took."""


def test_every_command_is_in_this_test() -> None:
    covered = {leaf for leaf in leaves(cli) if any(words[: len(leaf.split())] == leaf.split() for words in COMMANDS)}
    assert covered | ELSEWHERE | WITH_A_BROKER.keys() == set(leaves(cli))


@pytest.mark.full
def test_outputs_do_not_depend_on_the_order_of_sets(tmp_path: Path) -> None:
    running = []
    for seed in (1, 2, 3):
        place = tmp_path / str(seed)
        place.mkdir()
        (place / "topology.json").write_text(json.dumps(_topology()))
        (place / "samples").write_text('{"records": 100000, "load_ms": 300}\n{"records": 10, "load_ms": 4}\n')
        command = [sys.executable, "-c", RUN, json.dumps(COMMANDS)]
        environment = os.environ | {"PYTHONHASHSEED": str(seed)}
        running.append(subprocess.Popen(command, cwd=place, env=environment, stdout=subprocess.PIPE, text=True))
    found = []
    for process in running:
        out, _ = process.communicate()
        assert process.returncode == 0
        found.append(json.loads(out.splitlines()[-1]))
    (first, first_files), *others = found
    for words, (code, _, err) in first.items():
        assert code in (0, 1), f"{words}: {err}"
    for said, written in others:
        assert [words for words in first if not words.startswith(TIMED) and said[words] != first[words]] == []
        assert written.keys() == first_files.keys()
        differing = [path for path in first_files if written[path] != first_files[path]]
        # They say when and how fast they were made.
        assert {Path(path).name for path in differing} <= {"manifest.json", "compaction.json", "latest.json"}


def _topology() -> dict[str, Any]:
    """That of a cluster of three brokers, with as many offsets partitions as the log."""
    document: dict[str, Any] = json.loads((CORPUS / "k431-cluster/expected/before/topics.json").read_text())
    offsets = document["topics"]["__consumer_offsets"]
    few = offsets["partitionInfo"]
    offsets |= {"partitions": 50, "partitionInfo": [few[n % len(few)] | {"partition": n} for n in range(50)]}
    return document
