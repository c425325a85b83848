"""Expectations of our own; importing this module registers them with GX.

Those on rows look at Arrow columns as a whole: a metric of the table counts the unexpected rows and has the first of
them. Single rows are looked at only where the smallest or largest value, or the number of nulls, says that there are
any. GX's own expectations on rows look at one value after the other, and each copies the table several times.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from great_expectations.core.metric_domain_types import MetricDomainTypes
from great_expectations.execution_engine.pandas_execution_engine import PandasExecutionEngine
from great_expectations.expectations.expectation import BatchExpectation
from great_expectations.expectations.metrics.metric_provider import metric_value
from great_expectations.expectations.metrics.table_metric_provider import TableMetricProvider

from expectations.columns import columns_of
from expectations.ordered import is_ordered, repeats
from expectations.result import EXAMPLES

Wrong = npt.NDArray[np.bool_] | None
"""Per row, whether it is unexpected; ``None``: no row is."""


class ExpectTableArrowSchemaToEqual(BatchExpectation):
    """The columns are ``columns``, in that order: pairs of name and type as Arrow prints it."""

    columns: list[tuple[str, str]]

    metric_dependencies: ClassVar[tuple[str, ...]] = ("table.column_types",)
    success_keys: ClassVar[tuple[str, ...]] = ("columns",)

    def _validate(
        self,
        metrics: dict[str, Any],
        runtime_configuration: dict[str, Any] | None = None,
        execution_engine: Any = None,
    ) -> dict[str, Any]:
        found = [(column["name"], _arrow_type(column["type"])) for column in metrics["table.column_types"]]
        return {
            "success": found == self.columns,
            "result": {"observed_value": _difference(dict(self.columns), dict(found))},
        }


def _arrow_type(dtype: Any) -> str:
    return str(dtype.pyarrow_dtype if isinstance(dtype, pd.ArrowDtype) else dtype)


def _difference(declared: dict[str, str], found: dict[str, str]) -> str:
    parts = [f"{name} is missing" for name in declared if name not in found]
    parts += [f"{name} is not declared" for name in found if name not in declared]
    parts += [
        f"{name} is {found[name]}, not {kind}"
        for name, kind in declared.items()
        if name in found and found[name] != kind
    ]
    if not parts and list(found) != list(declared):
        parts = [f"the order is {', '.join(found)}"]
    return "; ".join(parts) or "as declared"


class _UnexpectedRows(TableMetricProvider):
    """The result of an expectation on rows, as GX's own on several columns have it (``SUMMARY``)."""

    value_keys: tuple[str, ...] = ("column_list",)

    @metric_value(engine=PandasExecutionEngine)
    def _pandas(
        cls,  # noqa: N805 - GX passes the class
        execution_engine: PandasExecutionEngine,
        metric_domain_kwargs: dict[str, Any],
        metric_value_kwargs: dict[str, Any],
        **_: Any,
    ) -> dict[str, Any]:
        frame, *_rest = execution_engine.get_compute_domain(metric_domain_kwargs, domain_type=MetricDomainTypes.TABLE)
        rows = columns_of(frame, metric_value_kwargs["column_list"])
        return _summary(rows, cls.wrong(rows, metric_value_kwargs))

    @staticmethod
    @abstractmethod
    def wrong(rows: pa.Table, arguments: Mapping[str, Any]) -> Wrong:
        """The unexpected rows of a table with the columns of ``column_list``; ``arguments`` are of ``value_keys``."""


def _mask(found: pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    """Null is false."""
    mask: npt.NDArray[np.bool_] = found.fill_null(False).to_numpy()
    return mask


def _either(one: Wrong, other: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    return other if one is None else one | other


def _summary(rows: pa.Table, wrong: Wrong) -> dict[str, Any]:
    places = np.flatnonzero([] if wrong is None else wrong)
    percent = len(places) / rows.num_rows * 100 if rows.num_rows else None
    # Not Table.take, which makes one array of the chunks of each column.
    first = [row for place in places[:EXAMPLES].tolist() for row in rows.slice(place, 1).to_pylist()]
    result = {
        "element_count": rows.num_rows,
        "unexpected_count": len(places),
        "unexpected_percent": percent,
        "partial_unexpected_list": first,
        "missing_count": 0,
        "missing_percent": 0.0 if rows.num_rows else None,
        "unexpected_percent_total": percent,
        "unexpected_percent_nonmissing": percent,
        "partial_unexpected_index_list": places[:EXAMPLES].tolist(),
    }
    with suppress(TypeError):  # of values that have no order, or of lists
        counts = Counter(tuple(row.values()) for row in first)
        most = sorted(counts.items(), key=lambda one: (-one[1], one[0]))
        result["partial_unexpected_counts"] = [{"value": value, "count": count} for value, count in most]
    return result


class _RowsExpectation(BatchExpectation):
    """No row is unexpected. ``column_list``: the columns that are looked at."""

    column_list: list[str]

    success_keys: ClassVar[tuple[str, ...]] = ("column_list",)

    def _validate(
        self,
        metrics: dict[str, Any],
        runtime_configuration: dict[str, Any] | None = None,
        execution_engine: Any = None,
    ) -> dict[str, Any]:
        result = metrics[self.metric_dependencies[0]]
        return {"success": result["unexpected_count"] == 0, "result": dict(result)}


class RowsOutsideCut(_UnexpectedRows):
    metric_name = "table.rows_outside_cut"
    value_keys = ("column_list", "cut", "unseen")

    @staticmethod
    def wrong(rows: pa.Table, arguments: Mapping[str, Any]) -> Wrong:
        partitions, positions = rows.columns
        bounds = {int(name): bounds for name, bounds in arguments["cut"].items()}
        first, last = _range(partitions)
        if first is not None and first == last and first in bounds and not partitions.null_count:
            lowest, highest = _range(positions)
            start, end = bounds[first]
            if lowest is None or (start <= lowest and highest < end):
                return None
        known = pc.index_in(partitions, value_set=pa.array(list(bounds), partitions.type))
        start, end = (pa.array([one[place] for one in bounds.values()], pa.int64()).take(known) for place in (0, 1))
        within = pc.and_(pc.greater_equal(positions, start), pc.less(positions, end))
        absent = pc.is_null(positions)
        if arguments["unseen"] is not None:
            absent = pc.or_(absent, pc.equal(positions, arguments["unseen"]).fill_null(False))
        is_good = pc.and_(pc.is_valid(known), pc.or_(absent, within.fill_null(False)))
        return _mask(pc.invert(is_good))


class ExpectRecordOffsetInsideCut(_RowsExpectation):
    """``column_list`` is an offsets partition and a record offset in it, null where there is none.

    ``cut`` has the first and the behind-last offset by offsets partition (text); ``unseen`` is a value that
    stands for no record.
    """

    cut: dict[str, Any]
    unseen: int | None = None

    metric_dependencies: ClassVar[tuple[str, ...]] = (RowsOutsideCut.metric_name,)
    success_keys: ClassVar[tuple[str, ...]] = ("column_list", "cut", "unseen")


class FindingsOfRule(_UnexpectedRows):
    metric_name = "table.findings_of_rule"
    value_keys = ("column_list", "rule")

    @staticmethod
    def wrong(rows: pa.Table, arguments: Mapping[str, Any]) -> Wrong:
        of_rule, muted = rows.columns
        return _mask(pc.and_(pc.equal(of_rule, arguments["rule"]), pc.is_null(muted)))


class ExpectNoFindingOfRule(_RowsExpectation):
    """No row is of ``rule``, but muted ones; ``column_list`` is the code of the rule and the mute."""

    rule: str

    metric_dependencies: ClassVar[tuple[str, ...]] = (FindingsOfRule.metric_name,)
    success_keys: ClassVar[tuple[str, ...]] = ("column_list", "rule")


class RowsWithNull(_UnexpectedRows):
    metric_name = "table.rows_with_null"

    @staticmethod
    def wrong(rows: pa.Table, arguments: Mapping[str, Any]) -> Wrong:
        found = None
        for column in rows.columns:
            if column.null_count:
                found = _either(found, _mask(pc.is_null(column)))
        return found


class ExpectColumnsNotNull(_RowsExpectation):
    """No column of ``column_list`` is null in any row."""

    metric_dependencies: ClassVar[tuple[str, ...]] = (RowsWithNull.metric_name,)


class RowsOutOfBounds(_UnexpectedRows):
    metric_name = "table.rows_out_of_bounds"
    value_keys = ("column_list", "min_value", "max_value")

    @staticmethod
    def wrong(rows: pa.Table, arguments: Mapping[str, Any]) -> Wrong:
        values, (smallest, largest) = rows.column(1), (arguments[name] for name in ("min_value", "max_value"))
        lowest, highest = _range(values)
        found = None
        if smallest is not None and lowest is not None and lowest < smallest:
            found = _mask(pc.less(values, smallest))
        if largest is not None and highest is not None and highest > largest:
            found = _either(found, _mask(pc.greater(values, largest)))
        return found


class ExpectValuesWithinBounds(_RowsExpectation):
    """No value is below ``min_value`` or above ``max_value``, where they are set; null is within.

    ``column_list`` is an offsets partition and the value.
    """

    min_value: Any = None
    max_value: Any = None

    metric_dependencies: ClassVar[tuple[str, ...]] = (RowsOutOfBounds.metric_name,)
    success_keys: ClassVar[tuple[str, ...]] = ("column_list", "min_value", "max_value")


def _range(values: pa.ChunkedArray) -> tuple[Any, Any]:
    """Smallest and largest value; ``None`` where there is none."""
    found = pc.min_max(values).as_py()
    return found["min"], found["max"]


class RepeatedRows(_UnexpectedRows):
    metric_name = "table.repeated_rows"

    @staticmethod
    def wrong(rows: pa.Table, arguments: Mapping[str, Any]) -> Wrong:
        # Few rows share the first two columns, which are coordinates; the others need not be looked at.
        coordinates = rows.select(range(2))
        again = repeats(coordinates) if is_ordered(coordinates) else _duplicated(coordinates)
        if not again.any():
            return None
        again[again] = _duplicated(rows.filter(pa.array(again)))
        return again


def _duplicated(rows: pa.Table) -> npt.NDArray[np.bool_]:
    found: npt.NDArray[np.bool_] = rows.to_pandas(types_mapper=pd.ArrowDtype).duplicated(keep=False).to_numpy(bool)
    return found


class ExpectColumnsToBeUniqueTogether(_RowsExpectation):
    """No two rows have the same values in all columns of ``column_list``."""

    metric_dependencies: ClassVar[tuple[str, ...]] = (RepeatedRows.metric_name,)
