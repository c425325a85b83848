"""Parquet files of runs while they are written, by local path or URI."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from coordinator_core import storage


class ParquetOutput(pq.ParquetWriter):  # type: ignore[misc, unused-ignore]
    """A file that is written; ``options`` are those of ``ParquetWriter``. Errors are those of ``storage.writing``."""

    def __init__(self, path: str, schema: pa.Schema, **options: Any) -> None:
        self.path = path
        system, inner = storage.filesystem(path)
        with storage.writing(path):
            super().__init__(inner, schema, filesystem=system, **options)

    def write_table(self, table: pa.Table, row_group_size: int | None = None) -> None:
        with storage.writing(self.path):
            super().write_table(table, row_group_size)

    def close(self) -> None:
        with storage.writing(self.path):
            super().close()

    def __del__(self) -> None:
        # Of a file that could not be written Arrow would try again to write the end, and Python print the error.
        with suppress(Exception):
            super().__del__()
