"""Rows of Parquet files as Kafka's Spark source gives them: read, and checked one by one.

Columns: ``key``, ``value`` (binary), ``topic``, ``partition``, ``offset``, ``timestamp``, ``timestampType``
and, with ``includeHeaders``, ``headers``. Rows count from 0 in their file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from coordinator_core import storage
from coordinator_core.errors import ExitCode, RegroupError, UsageError
from coordinator_core.log.types import OFFSETS_TOPIC

ROWS_PER_READ = 4096

CREATE_TIME, LOG_APPEND_TIME = 0, 1
_TIMESTAMP_TYPES = (-1, CREATE_TIME, LOG_APPEND_TIME)
_KINDS = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "int",
    "timestamp": "timestamp",
    "timestampType": "int",
}
_HEADERS = "headers"

Int64s = npt.NDArray[np.int64]


class BadRowsError(RegroupError):
    """A file of records that cannot be what a consumer read, with the place in it."""

    exit_code = ExitCode.DAMAGED_INPUT

    def __init__(self, path: str, row: int | None, kind: str, detail: str) -> None:
        super().__init__(f"{path}: {'' if row is None else f'row {row}: '}{kind}: {detail}")


@dataclass(frozen=True)
class Rows:
    """Successive rows of one partition; ``row`` has their places in the file.

    ``headers`` is ``None`` where no row has any; ``timestamp_ms`` is in epoch milliseconds.
    """

    partition: int
    row: Int64s
    offset: Int64s
    timestamp_ms: Int64s
    timestamp_type: Int64s
    key: pa.Array
    value: pa.Array
    headers: pa.Array | None

    def __len__(self) -> int:
        return len(self.offset)

    def take(self, which: Int64s | slice) -> Rows:
        """A part of the rows, by position or as a slice."""

        def taken(column: pa.Array) -> pa.Array:
            return column[which] if isinstance(which, slice) else column.take(pa.array(which))

        return Rows(
            self.partition,
            self.row[which],
            self.offset[which],
            self.timestamp_ms[which],
            self.timestamp_type[which],
            taken(self.key),
            taken(self.value),
            None if self.headers is None else taken(self.headers),
        )


def parquet_files(paths: Sequence[str]) -> list[str]:
    """The files that ``paths`` name, and those below directories, as Spark lays them out; sorted by path."""
    found = []
    for path in paths:
        entry = storage.stat(path)
        if entry is None:
            raise UsageError(f"{path}: no such file or directory")
        below = list(_below(path)) if entry.is_directory else [path]
        if not below:
            raise UsageError(f"{path}: no Parquet file in it")
        found += below
    return sorted(dict.fromkeys(found))


def _below(directory: str) -> Iterator[str]:
    for entry in storage.list_directory(directory):
        if entry.name.startswith((".", "_")):
            continue
        if entry.is_directory:
            yield from _below(entry.path)
        elif entry.name.endswith(".parquet"):
            yield entry.path


def read_rows(path: str) -> Iterator[Rows]:
    """The rows of a file in their order, cut where the partition changes. Raises :class:`BadRowsError`."""
    system, inner = storage.filesystem(path)
    row = 0
    try:
        with pq.ParquetFile(inner, filesystem=system, coerce_int96_timestamp_unit="ms") as file:
            names = _columns(path, file.schema_arrow)
            for batch in file.iter_batches(ROWS_PER_READ, columns=names):
                yield from _rows(path, row, batch)
                row += len(batch)
    except (pa.ArrowException, OSError) as error:
        raise BadRowsError(path, row or None, "unreadable", " ".join(str(error).split())) from None


def _columns(path: str, schema: pa.Schema) -> list[str]:
    """Names of the columns to read; an error for one that is missing or of a type that loses bytes."""
    missing = [name for name in _KINDS if name not in schema.names]
    if missing:
        raise BadRowsError(
            path,
            None,
            "missing_columns",
            f"{', '.join(missing)}; it has {', '.join(schema.names)}, and a record has {', '.join(_KINDS)}",
        )
    for name, kind in _KINDS.items():
        found = schema.field(name).type
        if not _is(found, kind):
            raise BadRowsError(path, None, "column_type", f"{name} is {found}, not {kind}")
    headers = [_HEADERS] if _HEADERS in schema.names else []
    if headers and not _is_headers(schema.field(_HEADERS).type):
        raise BadRowsError(
            path,
            None,
            "column_type",
            f"headers is {schema.field(_HEADERS).type}, not list of struct of key and value",
        )
    return [*_KINDS, *headers]


def _is(found: pa.DataType, kind: str) -> bool:
    types = pa.types
    match kind:
        case "binary":
            return bool(types.is_binary(found) or types.is_large_binary(found))
        case "string":
            text = found.value_type if types.is_dictionary(found) else found
            return bool(types.is_string(text) or types.is_large_string(text))
        case "int":
            return bool(types.is_signed_integer(found))
        case _:
            return bool(types.is_timestamp(found) or types.is_int64(found))


def _is_headers(found: pa.DataType) -> bool:
    if not (pa.types.is_list(found) or pa.types.is_large_list(found)):
        return False
    item = found.value_type
    return bool(pa.types.is_struct(item)) and {field.name for field in item} == {"key", "value"}


def _rows(path: str, first_row: int, batch: pa.RecordBatch) -> Iterator[Rows]:
    """``batch`` by partition."""
    refuse = _Refusal(path, first_row)
    for name in ("topic", "partition", "offset", "timestamp", "timestampType"):
        refuse(batch[name].is_null(), f"null_{name}", "a record has one")
    topic = batch["topic"].cast(pa.string())
    refuse(pc.not_equal(topic, OFFSETS_TOPIC), "other_topic", f"a record of {{}}, not of {OFFSETS_TOPIC}", topic)
    for name in ("partition", "offset"):
        refuse(pc.less(batch[name], 0), f"bad_{name}", "{}", batch[name])
    kinds = batch["timestampType"].cast(pa.int64())
    known = pc.is_in(kinds, pa.array(_TIMESTAMP_TYPES, pa.int64()))
    refuse(pc.invert(known), "bad_timestampType", "{} is none of Kafka's", kinds)
    headers = batch[_HEADERS] if _HEADERS in batch.schema.names else None
    if headers is not None and not pc.any(pc.greater(pc.list_value_length(headers), 0)).as_py():
        headers = None
    whole = Rows(
        -1,
        np.arange(first_row, first_row + len(batch)),
        _numbers(batch["offset"]),
        _milliseconds(batch["timestamp"]),
        _numbers(kinds),
        batch["key"].cast(pa.large_binary()),
        batch["value"].cast(pa.large_binary()),
        headers,
    )
    partition = _numbers(batch["partition"])
    for number in np.unique(partition).tolist():
        yield replace(whole.take(np.flatnonzero(partition == number)), partition=number)


@dataclass(frozen=True)
class _Refusal:
    path: str
    first_row: int

    def __call__(self, wrong: pa.Array, kind: str, detail: str, values: pa.Array | None = None) -> None:
        """Raise for the first row that is ``wrong``; ``detail`` may show its value as ``{}``."""
        at = pc.index(wrong, True).as_py()
        if at >= 0:
            shown = "" if values is None else values[at].as_py()
            raise BadRowsError(self.path, self.first_row + at, kind, detail.format(shown))


def _numbers(column: pa.Array) -> Int64s:
    return np.asarray(column.cast(pa.int64()))


def _milliseconds(column: pa.Array) -> Int64s:
    """Timestamps of any unit, or integers that are milliseconds already."""
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("ms", column.type.tz), safe=False)
    return _numbers(column)
