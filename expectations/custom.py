"""Expectations of our own; importing this module registers them with GX."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import pandas as pd
from great_expectations.execution_engine.pandas_execution_engine import PandasExecutionEngine
from great_expectations.expectations.expectation import BatchExpectation, MulticolumnMapExpectation
from great_expectations.expectations.metrics.map_metric_provider.multicolumn_condition_partial import (
    multicolumn_condition_partial,
)
from great_expectations.expectations.metrics.map_metric_provider.multicolumn_map_metric_provider import (
    MulticolumnMapMetricProvider,
)


class ExpectTableArrowSchemaToEqual(BatchExpectation):
    """The columns are ``columns``, in that order: pairs of name and type as Arrow prints it."""

    columns: list[tuple[str, str]]

    metric_dependencies: ClassVar[tuple[str, ...]] = ("table.column_types",)
    success_keys: ClassVar[tuple[str, ...]] = ("columns",)
    args_keys: ClassVar[tuple[str, ...]] = ("columns",)

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


class RecordOffsetInsideCut(MulticolumnMapMetricProvider):
    """Per row, whether the second column lies in the cut of the partition in the first."""

    condition_metric_name = "multicolumn_values.record_offset_inside_cut"
    condition_value_keys = ("cut", "unseen")

    @multicolumn_condition_partial(engine=PandasExecutionEngine)  # type: ignore[untyped-decorator]
    def _pandas(cls, column_list: pd.DataFrame, **kwargs: Any) -> pd.Series:  # noqa: N805
        partitions, positions = (column_list.iloc[:, index] for index in (0, 1))
        start = partitions.map({int(name): bounds[0] for name, bounds in kwargs["cut"].items()})
        end = partitions.map({int(name): bounds[1] for name, bounds in kwargs["cut"].items()})
        absent = positions.isna()
        if kwargs["unseen"] is not None:
            absent |= (positions == kwargs["unseen"]).fillna(False)
        within = ((positions >= start) & (positions < end)).fillna(False)
        return (start.notna() & (absent | within)).astype(bool)


class ExpectRecordOffsetInsideCut(MulticolumnMapExpectation):
    """``column_list`` is an offsets partition and a record offset in it, null where there is none.

    ``cut`` has the first and the behind-last offset by offsets partition (text); ``unseen`` is a value that
    stands for no record.
    """

    column_list: list[str]
    cut: dict[str, Any]
    unseen: int | None = None
    ignore_row_if: Literal["never"] = "never"

    map_metric = "multicolumn_values.record_offset_inside_cut"
    success_keys: ClassVar[tuple[str, ...]] = ("cut", "unseen", "mostly")
    args_keys: ClassVar[tuple[str, ...]] = ("column_list", "cut", "unseen")


class NoFindingOfRule(MulticolumnMapMetricProvider):
    """Per row of findings, whether it is of another rule or muted."""

    condition_metric_name = "multicolumn_values.no_finding_of_rule"
    condition_value_keys = ("rule",)

    @multicolumn_condition_partial(engine=PandasExecutionEngine)  # type: ignore[untyped-decorator]
    def _pandas(cls, column_list: pd.DataFrame, **kwargs: Any) -> pd.Series:  # noqa: N805
        rule, muted = (column_list.iloc[:, index] for index in (0, 1))
        return ((rule != kwargs["rule"]) | muted.notna()).astype(bool)


class ExpectNoFindingOfRule(MulticolumnMapExpectation):
    """No row is of ``rule``, but muted ones; ``column_list`` is the code of the rule and the mute."""

    column_list: list[str]
    rule: str
    ignore_row_if: Literal["never"] = "never"

    map_metric = "multicolumn_values.no_finding_of_rule"
    success_keys: ClassVar[tuple[str, ...]] = ("rule", "mostly")
    args_keys: ClassVar[tuple[str, ...]] = ("column_list", "rule")


class ColumnsNotNull(MulticolumnMapMetricProvider):
    """Per row, whether no column is null."""

    condition_metric_name = "multicolumn_values.not_null"
    condition_value_keys = ()

    @multicolumn_condition_partial(engine=PandasExecutionEngine)  # type: ignore[untyped-decorator]
    def _pandas(cls, column_list: pd.DataFrame, **kwargs: Any) -> pd.Series:  # noqa: N805
        return ~column_list.isna().any(axis="columns")


class ExpectColumnsNotNull(MulticolumnMapExpectation):
    """No column of ``column_list`` is null in any row."""

    column_list: list[str]
    ignore_row_if: Literal["never"] = "never"

    map_metric = "multicolumn_values.not_null"
    args_keys: ClassVar[tuple[str, ...]] = ("column_list",)


class WithinBounds(MulticolumnMapMetricProvider):
    """Per row, whether the second column is within the bounds; null is."""

    condition_metric_name = "multicolumn_values.within_bounds"
    condition_value_keys = ("min_value", "max_value")

    @multicolumn_condition_partial(engine=PandasExecutionEngine)  # type: ignore[untyped-decorator]
    def _pandas(cls, column_list: pd.DataFrame, **kwargs: Any) -> pd.Series:  # noqa: N805
        values = column_list.iloc[:, 1]
        outside = pd.Series(False, values.index)
        if kwargs["min_value"] is not None:
            outside |= (values < kwargs["min_value"]).fillna(False).astype(bool)
        if kwargs["max_value"] is not None:
            outside |= (values > kwargs["max_value"]).fillna(False).astype(bool)
        return ~outside


class ExpectValuesWithinBounds(MulticolumnMapExpectation):
    """No value is below ``min_value`` or above ``max_value``, where they are set; ``column_list`` is an offsets partition
    and the value.

    GX's own expectation looks at one value after the other, and copies the table to leave out nulls.
    """

    column_list: list[str]
    min_value: Any = None
    max_value: Any = None
    ignore_row_if: Literal["never"] = "never"

    map_metric = "multicolumn_values.within_bounds"
    success_keys: ClassVar[tuple[str, ...]] = ("min_value", "max_value", "mostly")
    args_keys: ClassVar[tuple[str, ...]] = ("column_list", "min_value", "max_value")


class ColumnsUniqueTogether(MulticolumnMapMetricProvider):
    """Per row, whether no other row has the same values in all columns."""

    condition_metric_name = "multicolumn_values.unique_together"
    condition_value_keys = ()

    @multicolumn_condition_partial(engine=PandasExecutionEngine)  # type: ignore[untyped-decorator]
    def _pandas(cls, column_list: pd.DataFrame, **kwargs: Any) -> pd.Series:  # noqa: N805
        # Few rows share the first two columns, which are coordinates; the others need not be looked at.
        again = column_list.iloc[:, :2].duplicated(keep=False).to_numpy(bool)
        again[again] = column_list[again].duplicated(keep=False).to_numpy(bool)
        return pd.Series(~again, column_list.index)


class ExpectColumnsToBeUniqueTogether(MulticolumnMapExpectation):
    """No two rows have the same values in all columns of ``column_list``."""

    column_list: list[str]
    ignore_row_if: Literal["never"] = "never"

    map_metric = "multicolumn_values.unique_together"
    args_keys: ClassVar[tuple[str, ...]] = ("column_list",)
