"""Run directories and cluster files that hold what they should not: a documented answer, never a traceback."""

from __future__ import annotations

import atexit
import io
import json
import os
import shutil
import tempfile
from contextlib import redirect_stderr, redirect_stdout, suppress
from copy import deepcopy
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from coordinator_core.cli.app import run as regroup
from coordinator_core.runs.proof import proof_of
from tests.fuzz.checks import WrongResultError
from tests.fuzz.hostile import Hostile, changed
from tests.rules.logs import HEALTHY, one

MANIFEST = "manifest.json"
_COMMANDS = (
    ("describe", "RUN"),
    ("list", "RUN"),
    ("verify", "RUN"),
    ("diff", "BASE", "RUN"),
    ("expire", "RUN", "--offsets-retention-ms", "1"),
    ("reconcile", "RUN", "--fail-on", "never"),
    ("report", "RUN", "--output", "OUT"),
)
_DRAWN = 0.03
"""Share of inputs of which a report is made: its pictures take a second."""
VALUES: tuple[Any, ...] = (
    *(None, True, 0, -1, 1 << 31, (1 << 63) - 1, -(1 << 63), 1 << 64, 1.5, float("inf"), float("nan")),
    *("", "x", "../../x", "\x1b[2J", "\ud800", "\0", [], [None], {}, {"": None}, [[[]]]),
)


def _base() -> Path:
    return Path(_made_base())


@cache
def _made_base() -> str:
    """A published run, made once in a process."""
    place = tempfile.mkdtemp(prefix="regroup-fuzz-")
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    return one(*HEALTHY).publish(Path(place)).path


# Run directories


def make_file(hostile: Hostile) -> bytes:
    """A file of a run: its name, whether digests are to be those of the file, its content."""
    if hostile.chance(0.5):
        document = with_others(json.loads((_base() / MANIFEST).read_text()), hostile.random)
        return b"\n".join((MANIFEST.encode(), b"", json.dumps(document).encode()))
    table = hostile.pick(sorted(path.parent.name for path in _base().glob("*/*.parquet")))
    name = f"{table}/part-00000.parquet"
    sink = pa.BufferOutputStream()
    # What Parquet cannot hold, nulls in lists without, is bytes that changed instead.
    with suppress(pa.ArrowInvalid):
        if not hostile.chance(0.3):
            pq.write_table(_other_table(pq.read_table(_base() / name, partitioning=None), hostile.random), sink)
            return b"\n".join((name.encode(), b"sound", sink.getvalue().to_pybytes()))
    return b"\n".join((name.encode(), b"", changed((_base() / name).read_bytes(), hostile.random)))


def vary_file(hostile: Hostile, data: bytes) -> bytes:
    name, sound, content = data.split(b"\n", 2)
    if sound:
        return make_file(hostile)
    return b"\n".join((name, sound, changed(content, hostile.random)))


def run_directory(data: bytes, choices: Random) -> str:
    """Commands of a run of which one file is another: all their exit codes are documented ones for such input."""
    name, sound, content = (*data.split(b"\n", 2), b"", b"")[:3]
    if not 0 < len(name) < 100 or b"\0" in name or not (_base() / os.fsdecode(name)).is_file():
        return "nothing"
    with tempfile.TemporaryDirectory() as place:
        run = Path(shutil.copytree(_base(), Path(place, "run")))
        path = run / os.fsdecode(name)
        path.write_bytes(content)
        if sound:
            manifest = json.loads((run / MANIFEST).read_text())
            listed = manifest["tables"][path.parent.name]
            listed["proofs"] = [dict(proof_of(str(path)))]
            listed["rows"] = pq.read_metadata(path).num_rows + choices.choice((0, 0, 1))
            (run / MANIFEST).write_text(json.dumps(manifest))
        places = {"RUN": str(run), "BASE": str(_base()), "OUT": f"{place}/out"}
        codes = {}
        for command in _COMMANDS:
            if command[0] != "report" or choices.random() < _DRAWN:
                codes[command[0]], said = answer([places.get(word, word) for word in command])
                if codes[command[0]] not in (0, 1, 2, 3):
                    raise WrongResultError(f"{command[0]} ends with {codes[command[0]]}:\n{said}")
    return str(max(codes.values()))


def answer(words: list[str]) -> tuple[int, str]:
    error = io.StringIO()
    with redirect_stdout(io.TextIOWrapper(io.BytesIO())), redirect_stderr(error):
        return int(regroup(words)), error.getvalue()


def with_others(document: Any, random: Random) -> Any:
    """The document with some of its values replaced, or left out."""
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        found = list(places(document))
        if not found:
            break
        holder, key = random.choice(found)
        if isinstance(holder, dict) and random.random() < 0.2:
            del holder[key]
        else:
            holder[key] = deepcopy(random.choice(VALUES))
    return document


def places(value: Any) -> Any:
    """Every place of a value in a document: what holds it, and the key."""
    keys = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield value, key
        yield from places(value[key])


def _other_table(table: pa.Table, random: Random) -> pa.Table:
    """Rows that come again, a column without values, of another type, with hostile values, or gone."""
    column = random.randrange(table.num_columns)
    field = table.schema.field(column)
    match random.randrange(6):
        case 0:
            return table.remove_column(column)
        case 1:
            return pa.concat_tables([table, table.slice(0, 1)])
        case 2:
            return table.slice(0, 0)
        case 3:
            other = random.choice((pa.string(), pa.int8(), pa.list_(pa.int64()), pa.float64()))
            return table.set_column(column, field.name, pa.nulls(table.num_rows, other))
        case 4:
            return table.set_column(column, field.name, pa.nulls(table.num_rows, field.type))
        case _:
            values = [value for value in VALUES if fits(value, field.type)]
            rows = [random.choice(values) if values else None for _ in range(table.num_rows)]
            return table.set_column(column, field.name, pa.array(rows, field.type))


def fits(value: Any, kind: pa.DataType) -> bool:
    try:
        pa.array([value], kind)
    except (pa.ArrowException, ValueError, OverflowError, TypeError):
        return False
    return True


# Cluster files

_CLUSTERS = """
root: data
retries: 5
defaults: {output: runs}
clusters:
  eu-1:
    source: [broker-1, "s3://bucket/{window}"]
    offsets_topic_num_partitions: 100
    kafka_version: "3.9.2"
    coordinator: classic
    schedule: "30 2 * * *"
    start_date: 2026-02-03
    spark: {conf: {a: b}, executor_cores: 2}
    compaction: {output: compacted, delete_retention_ms: 1}
"""


def make_clusters(hostile: Hostile) -> bytes:
    return yaml.safe_dump(with_others(yaml.safe_load(_CLUSTERS), hostile.random)).encode("utf-8", "surrogatepass")


def vary_clusters(hostile: Hostile, data: bytes) -> bytes:
    return changed(data, hostile.random) if hostile.chance(0.5) else make_clusters(hostile)


def cluster_file(data: bytes, choices: Random) -> str:
    """The cluster file of the DAGs is read, or refused with a reason."""
    del choices
    os.environ.setdefault("AIRFLOW_HOME", tempfile.gettempdir())
    # Loaded here: importing Airflow takes seconds that other targets need not wait for.
    from dags.common.clusters import ClusterFileError, load_clusters

    with tempfile.TemporaryDirectory() as place:
        path = Path(place, "clusters.yaml")
        path.write_bytes(data)
        try:
            load_clusters(path)
        except ClusterFileError:
            return "refused"
    return "read"
