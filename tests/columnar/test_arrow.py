from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from coordinator_core.columnar.arrow import column


@pytest.mark.parametrize("kind", ["int8", "int16", "int32", "int64", "uint8", "uint64", "float64", "bool"])
def test_columns_are_those_of_pa_array(kind: str) -> None:
    values = np.arange(20).astype(kind)
    mask = values.astype(np.int64) % 3 == 0
    for part, hidden in ((values, mask), (values[::2], mask[::2]), (values[:0], mask[:0]), (values, None)):
        made, expected = column(part, hidden), pa.array(part, mask=hidden)
        made.validate(full=True)
        assert made.type == expected.type
        assert made.null_count == expected.null_count
        assert made.equals(expected)


PROCESS = """
import sys
import numpy as np
import pyarrow as pa
from coordinator_core.columnar.arrow import column, keep_pandas_out
column(np.arange(3))
assert "pandas" not in sys.modules
keep_pandas_out()
assert pa.array(np.arange(3)).to_pylist() == [0, 1, 2]
assert pa.Table.from_pylist([{"a": 1}]).num_rows == 1
assert "pandas" not in sys.modules
"""


def test_no_call_of_arrow_imports_pandas() -> None:
    subprocess.run([sys.executable, "-c", PROCESS], cwd=Path(__file__).parents[2], check=True)
