"""Runs whose tables contradict each other, under digests that fit: a documented answer, never a traceback."""

from __future__ import annotations

import atexit
import json
import shutil
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from coordinator_core.releases import profile_for_release
from coordinator_core.runs.local import replay_to_run
from coordinator_core.runs.place import RunPlace
from coordinator_core.runs.proof import proof_of
from tests.cases import CORPUS, case
from tests.fuzz.checks import WrongResultError
from tests.fuzz.file_targets import MANIFEST, VALUES, answer, fits
from tests.fuzz.hostile import Hostile
from tests.runs.logs import snapshot

_BASES = ("k431-mixed", "k431-txn")
"""Groups of every type; transactions, open ones too."""
_TOPOLOGY = "topics.json"
_PROFILE = profile_for_release("4.3.1")
_NOW_MS = 1_800_000_000_000
COMMANDS = (
    ("describe", "RUN"),
    ("describe", "RUN", "--members", "--verbose"),
    ("describe", "RUN", "--state", "--format", "json"),
    ("list", "RUN"),
    ("verify", "RUN"),
    ("diff", "BASE", "RUN"),
    ("diff", "RUN", "BASE", "--format", "json"),
    ("expire", "RUN", "--offsets-retention-ms", "1"),
    ("reconcile", "RUN", "--fail-on", "never", "--no-log"),
    ("reconcile", "BASE", "--against", "RUN", "--fail-on", "never", "--no-log"),
    ("report", "RUN", "--output", "OUT", "--format", "json", "--no-log"),
    ("report", "RUN", "--output", "OUT", "--format", "prometheus", "--no-log"),
    ("investigate", "RUN", "--format", "json"),
    ("whatif", "RUN", "--to", "consumer"),
    ("whatif", "RUN", "--retention-ms", "1"),
    ("whatif", "RUN", "--offsets-partitions", "7"),
    ("whatif", "RUN", "--delete-topic", "orders"),
    ("restore", "plan", "RUN", "--all-groups", "--against", "BASE"),
    ("restore", "plan", "BASE", "--all-groups", "--against", "RUN"),
    ("drill", "predict", "RUN", "--topology", "TOPOLOGY", "--scenario", "rolling-restart"),
    ("stats", "RUN"),
)
_OF_AN_INPUT = 3
_CLOSED = (0, 1, 2, 3)


@cache
def _bases() -> Path:
    """Published runs, made once in a process."""
    place = tempfile.mkdtemp(prefix="regroup-fuzz-")
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    for name in _BASES:
        replay_to_run(snapshot(case(name)), RunPlace(place, name, "w", "r"), profile=_PROFILE, now_ms=_NOW_MS)
    topology = json.loads((CORPUS / "k431-cluster/expected/before/topics.json").read_text())
    offsets = topology["topics"]["__consumer_offsets"]
    few = offsets["partitionInfo"]
    offsets |= {"partitions": 50, "partitionInfo": [few[n % len(few)] | {"partition": n} for n in range(50)]}
    Path(place, _TOPOLOGY).write_text(json.dumps(topology))
    return Path(place)


def make_table(hostile: Hostile) -> bytes:
    """Which run, which of its tables, and the table as it is to be."""
    random = hostile.random
    base = random.choice(_BASES)
    tables = sorted(path.parent.name for path in _bases().glob(f"{base}/w/r/*/*.parquet"))
    sizes = {name: pq.read_metadata(_bases() / base / f"w/r/{name}/part-00000.parquet").num_rows for name in tables}
    name = random.choice([name for name in tables if sizes[name]])
    table = pq.read_table(_bases() / base / f"w/r/{name}/part-00000.parquet", partitioning=None)
    for _ in range(random.choice((1, 1, 1, 2, 5))):
        table = _changed(table, random)
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    return b"\n".join((base.encode(), name.encode(), sink.getvalue().to_pybytes()))


def vary_table(hostile: Hostile, data: bytes) -> bytes:
    del data
    return make_table(hostile)


def run_tables(data: bytes, choices: Random) -> str:
    """Commands of a run of which one table is another: all their exit codes are documented ones for such input."""
    base, table, content = (*data.split(b"\n", 2), b"", b"")[:3]
    if base.decode("latin-1") not in _BASES:
        return "nothing"
    sound = _bases() / base.decode() / "w/r"
    name = f"{table.decode()}/part-00000.parquet"
    with tempfile.TemporaryDirectory() as place:
        run = Path(shutil.copytree(sound, Path(place, "run")))
        (run / name).write_bytes(content)
        manifest = json.loads((run / MANIFEST).read_text())
        listed = manifest["tables"][table.decode()]
        listed |= {
            "proofs": [dict(proof_of(str(run / name)))],
            "rows": pq.read_metadata(run / name).num_rows,
            "hash": "0" * 64,
        }
        (run / MANIFEST).write_text(json.dumps(manifest))
        places = {"RUN": str(run), "BASE": str(sound), "OUT": f"{place}/out", "TOPOLOGY": f"{_bases()}/{_TOPOLOGY}"}
        codes = set()
        for command in choices.sample(COMMANDS, _OF_AN_INPUT):
            code, said = answer([places.get(word, word) for word in command])
            if code not in _CLOSED:
                raise WrongResultError(f"{' '.join(command)} ends with {code}:\n{said}")
            codes.add(code)
    return str(max(codes))


def _changed(table: pa.Table, random: Random) -> pa.Table:
    """Rows that come again, go, or have another's values; values that are missing or hostile, at any depth."""
    index = random.randrange(table.num_columns)
    field = table.schema.field(index)
    rows = table.num_rows
    if not rows:
        return table
    row = random.randrange(rows)
    match random.randrange(7):
        case 0:
            return pa.concat_tables([table, table.slice(row, 1)])
        case 1:
            return pa.concat_tables([table.slice(0, row), table.slice(row + 1)])
        case 2:
            return table.take(pa.array(random.sample(range(rows), rows)))
        case 3:
            return table.set_column(index, _loose(field), pa.nulls(rows, _loose(field).type))
        case 4:
            return table.set_column(index, field.name, pa.nulls(rows, random.choice(_OTHER_TYPES)))
        case _:
            values = table[field.name].to_pylist()
            for _ in range(random.choice((1, 1, 3, rows))):
                at = random.randrange(rows)
                values[at] = random.choice(values) if random.random() < 0.3 else _other(values[at], field.type, random)
            # Not everything fits beside each other in a column.
            with suppress(pa.ArrowException):
                return table.set_column(index, _loose(field), pa.array(values, _loose(field).type))
            return table


_OTHER_TYPES = (pa.string(), pa.int8(), pa.list_(pa.int64()), pa.float64())


def _loose(field: pa.Field) -> pa.Field:
    """The same field, where anything may be missing."""
    kind = field.type
    if pa.types.is_list(kind):
        kind = pa.list_(_loose(kind.value_field))
    elif pa.types.is_struct(kind):
        kind = pa.struct([_loose(one) for one in kind])
    return pa.field(field.name, kind, nullable=True, metadata=field.metadata)


def _other(value: Any, kind: pa.DataType, random: Random) -> Any:
    """Another value of this type: one place in it is missing, comes again, or is hostile."""
    if pa.types.is_list(kind) and value and random.random() < 0.8:
        at = random.randrange(len(value))
        return [*value[:at], _other(value[at], kind.value_type, random), *value[at + random.randrange(2) :]]
    if pa.types.is_struct(kind) and value and random.random() < 0.8:
        one = random.choice([*kind])
        return value | {one.name: _other(value.get(one.name), one.type, random)}
    if isinstance(value, bytes) and value and random.random() < 0.5:
        at = random.randrange(len(value))
        return value[:at] + bytes([random.randrange(256)]) + value[at + 1 :]
    return random.choice([one for one in (*VALUES, b"", b"\xff\xff") if fits(one, kind)])
