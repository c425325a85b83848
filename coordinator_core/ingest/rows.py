"""Rows of Parquet files as Kafka's Spark source gives them: read, and checked one by one.

Columns: ``key``, ``value`` (binary), ``topic``, ``partition``, ``offset``, ``timestamp``, ``timestampType``
and, with ``includeHeaders``, ``headers``. Rows count from 0 in their file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from coordinator_core import storage
from coordinator_core.errors import ExitCode, RegroupError, UsageError, lack_behind
from coordinator_core.log.limits import Limits
from coordinator_core.log.types import OFFSETS_TOPIC
from coordinator_core.untrusted import INT32_END, INT64_END, is_utf8

ROWS_PER_READ = 4096

_LIMITS = Limits()
_PIECE_BYTES = 1 << 26
"""Bytes of keys, values and topics that are handled at once: Parquet stores a value once that all rows have."""
_HEADERS_OF_GROUP = 1 << 24
"""Most headers of a row group. Records of this topic have none."""

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
_SIZED = ("key", "value", "topic")
"""Columns with values of any size."""

Int64s = npt.NDArray[np.int64]


class BadRowsError(RegroupError):
    """A file of records that no consumer can have read, with the place in it."""

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
    """The files that ``paths`` name, and those below directories, as Spark lays them out; sorted by path.

    Raises ``UsageError`` for a path that is not there or not UTF-8, and for a directory without such files.
    """
    found = []
    for path in paths:
        entry = storage.stat(path)
        if entry is None:
            raise UsageError(f"{path}: no such file or directory")
        below = list(_below(path)) if entry.is_directory else [path]
        if not below:
            raise UsageError(f"{path}: no Parquet file in it")
        found += below
    for path in found:
        if not is_utf8(path):
            raise UsageError(f"{path}: a path that is not UTF-8; give the file another name")
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
    """The rows of a file in their order, cut where the partition changes. Raises :class:`BadRowsError`, and as
    :func:`storage.raise_refused` where the file may not, or not now, be read."""
    system, inner = storage.filesystem(path)
    row = 0
    try:
        with _opened(system, inner) as file:
            names = _columns(path, file.schema_arrow)
            _check_headers(path, file.metadata)
            for batch in file.iter_batches(ROWS_PER_READ, columns=names):
                batch.validate(full=True)
                for piece in _pieces(path, row, batch):
                    yield from _rows(path, row, piece)
                    row += len(piece)
    except (pa.ArrowException, OSError) as error:
        if (lack := lack_behind(error)) is not None:
            raise RegroupError(lack) from error
        storage.raise_refused(path, error)
        raise BadRowsError(path, row or None, "unreadable", " ".join(str(error).split())) from None


def _opened(system: Any, path: str) -> pq.ParquetFile:
    options = {"filesystem": system, "coerce_int96_timestamp_unit": "ms"}
    try:
        return pq.ParquetFile(path, read_dictionary=list(_SIZED), **options)
    except KeyError:
        # One of these columns is not there.
        return pq.ParquetFile(path, **options)


def _check_headers(path: str, file: pq.FileMetaData) -> None:
    """An error for a row group of more headers than fit in memory: none of them need take a byte in the file."""
    for number in range(file.num_row_groups):
        group = file.row_group(number)
        columns = [group.column(at) for at in range(group.num_columns)]
        most = max((one.num_values for one in columns if one.path_in_schema.startswith(f"{_HEADERS}.")), default=0)
        if most > _HEADERS_OF_GROUP:
            raise BadRowsError(path, None, "too_large", f"{most} headers in row group {number}")


def _pieces(path: str, first_row: int, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """``batch`` in parts of so many bytes and headers as are handled at once."""
    sizes = sum((_sizes(batch[name]) for name in _SIZED), np.zeros(len(batch), np.int64))
    headers = np.zeros(len(batch), np.int64)
    if _HEADERS in batch.schema.names:
        headers = _numbers(pc.fill_null(pc.list_value_length(batch[_HEADERS]), 0))
    for what, found, most in (("bytes", sizes, _LIMITS.max_batch_bytes), ("headers", headers, _LIMITS.max_records)):
        if len(large := np.flatnonzero(found > most)):
            row = int(large[0])
            raise BadRowsError(path, first_row + row, "too_large", f"{found[row]} {what}, a record has at most {most}")
    # Headers that have no bytes are counted as if they had some.
    ends = np.cumsum(sizes + headers * (_PIECE_BYTES // _LIMITS.max_records))
    start = 0
    while start < len(batch):
        before = int(ends[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + _PIECE_BYTES, "right")))
        yield batch.slice(start, stop - start)
        start = stop


def _sizes(column: pa.Array) -> Int64s:
    """Bytes of each value."""
    if isinstance(column, pa.DictionaryArray):
        return _numbers(pc.fill_null(pc.binary_length(column.dictionary).take(column.indices), 0))
    return _numbers(pc.fill_null(pc.binary_length(column), 0))


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
    for name in (*_KINDS, _HEADERS):
        if schema.names.count(name) > 1:
            raise BadRowsError(path, None, "column_type", f"there are {schema.names.count(name)} columns {name}")
    for name, kind in _KINDS.items():
        found = schema.field(name).type
        found = found.value_type if pa.types.is_dictionary(found) else found
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
            return bool(types.is_string(found) or types.is_large_string(found))
        case "int":
            return bool(types.is_signed_integer(found))
        case _:
            return bool(types.is_timestamp(found) or types.is_int64(found))


def _is_headers(found: pa.DataType) -> bool:
    if not (pa.types.is_list(found) or pa.types.is_large_list(found)):
        return False
    item = found.value_type
    if not pa.types.is_struct(item) or sorted(field.name for field in item) != ["key", "value"]:
        return False
    value = item.field("value").type
    return _is(item.field("key").type, "string") and (_is(value, "binary") or _is(value, "string"))


def _rows(path: str, first_row: int, batch: pa.RecordBatch) -> Iterator[Rows]:
    """``batch`` by partition."""
    refuse = _Refusal(path, first_row)
    for name in ("topic", "partition", "offset", "timestamp", "timestampType"):
        refuse(batch[name].is_null(), f"null_{name}", "a record has one")
    topic = batch["topic"].cast(pa.string())
    refuse(pc.not_equal(topic, OFFSETS_TOPIC), "other_topic", f"a record of {{}}, not of {OFFSETS_TOPIC}", topic)
    timestamps = pa.array(_milliseconds(batch["timestamp"]))
    for name, values, first, end in (
        ("partition", batch["partition"], 0, INT32_END),
        # A log that ends beyond an int64 is none, and so are times that differ by more.
        ("offset", batch["offset"], 0, INT64_END - 1),
        ("timestamp", timestamps, -1, INT64_END // 2),
    ):
        numbers = values.cast(pa.int64())
        wrong = pc.or_(pc.less(numbers, first), pc.greater_equal(numbers, end))
        refuse(wrong, f"bad_{name}", "{}", numbers)
    kinds = batch["timestampType"].cast(pa.int64())
    known = pc.is_in(kinds, pa.array(_TIMESTAMP_TYPES, pa.int64()))
    refuse(pc.invert(known), "bad_timestampType", "{} is none of Kafka's", kinds)
    headers = batch[_HEADERS] if _HEADERS in batch.schema.names else None
    if headers is not None:
        items = pc.list_flatten(headers)
        empty = pc.list_parent_indices(headers).filter(items.is_null())
        refuse(pc.is_in(pa.array(np.arange(len(batch))), empty), "bad_headers", "a header has a key and a value")
    if headers is not None and not pc.any(pc.greater(pc.list_value_length(headers), 0)).as_py():
        headers = None
    whole = Rows(
        -1,
        np.arange(first_row, first_row + len(batch)),
        _numbers(batch["offset"]),
        _numbers(timestamps),
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
