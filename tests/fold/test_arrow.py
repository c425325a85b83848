from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from coordinator_core.fold.arrow import column, joined


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


def test_a_single_chunk_is_joined_without_a_copy() -> None:
    values = pa.array(["a", "bc", None])
    assert joined(pa.chunked_array([values])).buffers()[2].address == values.buffers()[2].address
    assert joined(pa.chunked_array([values, values[1:]])).to_pylist() == ["a", "bc", None, "bc", None]
    assert joined(pa.chunked_array([], pa.string())).equals(pa.array([], pa.string()))
