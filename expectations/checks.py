"""Expectations for the tables of a run, as data.

Columns, types, keys and nullability come from ``coordinator_core.runs.schemas``, sets of values from the
enums of ``coordinator_core.groups.model``; only expectations that neither knows are written here.  Values that differ
from run to run (rows of the manifest, the cut) are suite parameters of GX.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from coordinator_core.groups.model import REBALANCE_STATES, GroupState, GroupType, MemberState, TransactionOutcome
from coordinator_core.rules.model import Severity
from coordinator_core.runs.schemas import TABLES, TableSchema

FILES = "files"
"""A suite beside those of the tables: its rows are the files that the manifest lists or that are there."""

FILES_COLUMNS = ("table", "file", "listed", "found", "intact")

NOT_NULL = "expect_columns_not_null"


@dataclass(frozen=True)
class Check:
    """One expectation. ``kind`` and ``arguments`` are GX's type and keyword arguments; ``code`` is unique.

    ``CRITICAL``: the run contradicts itself and must not become the latest.  ``WARNING``: the log has the same values,
    which no broker writes.  ``INFO``: worth knowing.
    """

    code: str
    kind: str
    arguments: dict[str, Any] = field(hash=False)
    summary: str
    severity: Severity = Severity.CRITICAL

    @property
    def suite(self) -> str:
        return suite_of(self.code)

    @property
    def columns(self) -> list[str]:
        """The columns it looks at; none when it is about the table as a whole."""
        single = (self.arguments.get(name) for name in ("column", "column_A", "column_B"))
        return [*(name for name in single if name is not None), *self.arguments.get("column_list", ())]


def suite_of(code: str) -> str:
    """The suite of a check: codes begin with it."""
    return code.partition(".")[0]


class Reference(NamedTuple):
    """Rows of ``table`` need a row of ``target`` with equal ``columns`` (and ``where``, when it is set)."""

    table: str
    target: str
    columns: tuple[str, ...]
    where: tuple[str, str] | None = None

    @property
    def count_column(self) -> str:
        """The column with the number of rows found, which the gate adds to the table."""
        return f"{self.target}.rows"


_GROUP = ("offsets_partition", "group_id")

REFERENCES = (
    *(
        Reference(table, "groups", _GROUP)
        for table in ("members", "target_assignments", "regexes", "share_state", "streams_topology")
    ),
    Reference(
        "pending_offsets",
        "transactions",
        ("offsets_partition", "producer_id"),
        ("outcome", TransactionOutcome.OPEN.value),
    ),
)
MEMBER_COUNT = Reference("groups", "members", _GROUP)
"""Counted against ``member_count`` instead of being required."""

COUNTED = (*REFERENCES, MEMBER_COUNT)

_GROUP_TYPES = tuple(GroupType)
VALUE_SETS: dict[tuple[str, str], tuple[str, ...]] = {
    ("groups", "type"): _GROUP_TYPES,
    ("groups", "state"): tuple(state for state in GroupState if state not in REBALANCE_STATES),
    ("members", "group_type"): _GROUP_TYPES,
    ("members", "state"): tuple(MemberState),
    ("target_assignments", "group_type"): tuple(kind for kind in GroupType if kind is not GroupType.CLASSIC),
    ("share_state", "status"): ("initializing", "initialized", "deleting"),
    ("transactions", "outcome"): tuple(TransactionOutcome),
}

# Smallest value of a column, in every table but NO_MINIMUM. A value that stands in the log is a warning.
MINIMA: dict[str, tuple[int, Severity]] = {
    "partition": (0, Severity.WARNING),
    "position": (0, Severity.CRITICAL),
    "member_count": (0, Severity.CRITICAL),
    "value_version": (0, Severity.WARNING),
    "keys": (1, Severity.CRITICAL),
    "records": (0, Severity.CRITICAL),
    "producer_id": (0, Severity.WARNING),
    "producer_epoch": (0, Severity.WARNING),
    "committed_offset": (0, Severity.WARNING),
    "leader_epoch": (0, Severity.WARNING),
    "timestamp_ms": (0, Severity.WARNING),
    "commit_timestamp_ms": (0, Severity.WARNING),
    "expire_timestamp_ms": (0, Severity.WARNING),
    "state_timestamp_ms": (0, Severity.WARNING),
    "assignment_timestamp_ms": (0, Severity.WARNING),
}
# What is not interpreted has any version.
NO_MINIMUM = {("carried_records", "value_version")}

OF_COMPLETE_RUNS = {f"{name}.key" for name in ("transactions", "load_failures", "carried_records")}
"""Checks of complete runs alone. These tables have a row for a record, and in a damaged log offsets may repeat."""

# Positions in the offsets log; those of members are -1 when no record of that type was seen.
_POSITIONS = ("record_offset", "assignment_record_offset", "last_record_offset", "end_marker_offset")
_UNSEEN = {("members", "record_offset"), ("members", "assignment_record_offset")}

# Times that the clock of the run cannot be behind.
_PAST = ("commit_timestamp_ms", "timestamp_ms", "state_timestamp_ms")


def suites() -> dict[str, list[Check]]:
    """The checks of every table of a run, and of its files, by name of the suite."""
    return {name: _table_checks(table) for name, table in TABLES.items()} | {FILES: _files_checks()}


def _table_checks(table: TableSchema) -> list[Check]:
    return [
        schema(table),
        row_count(table.name, {"$PARAMETER": "rows"}, "as many rows as the manifest says"),
        Check(
            f"{table.name}.key",
            "expect_columns_to_be_unique_together",
            {"column_list": list(table.key)},
            f"no two rows with the same {', '.join(table.key)}",
        ),
        not_null(table),
        *_column_checks(table),
        *_cut_checks(table),
        *_reference_checks(table.name),
    ]


def row_count(suite: str, rows: object, summary: str) -> Check:
    """The table has that many rows."""
    return Check(f"{suite}.rows", "expect_table_row_count_to_equal", {"value": rows}, summary)


def in_set(code: str, column: str, values: object, summary: str) -> Check:
    """Every value of the column is one of ``values``."""
    return Check(code, "expect_column_values_to_be_in_set", {"column": column, "value_set": values}, summary)


def _between(
    code: str, column: str, bounds: dict[str, Any], summary: str, severity: Severity = Severity.CRITICAL
) -> Check:
    columns = ["offsets_partition", column]
    return Check(code, "expect_values_within_bounds", {"column_list": columns, **bounds}, summary, severity)


def schema(table: TableSchema) -> Check:
    columns = [[column.name, str(column.type)] for column in table.arrow]
    columns += [[reference.count_column, "int64"] for reference in COUNTED if reference.table == table.name]
    return Check(
        f"{table.name}.schema",
        "expect_table_arrow_schema_to_equal",
        {"columns": columns},
        "the declared columns, in order, with the declared types",
    )


def _column_checks(table: TableSchema) -> list[Check]:
    checks = []
    for column in table.arrow:
        name = column.name
        code = f"{table.name}.{name}"
        if (table.name, name) in VALUE_SETS:
            values = [str(value) for value in VALUE_SETS[table.name, name]]
            checks.append(in_set(f"{code}.values", name, values, f"{name} is one of {', '.join(values)}"))
        if name in MINIMA and (table.name, name) not in NO_MINIMUM:
            minimum, severity = MINIMA[name]
            summary = f"{name} is not below {minimum}"
            checks.append(_between(f"{code}.minimum", name, {"min_value": minimum}, summary, severity))
        if name in _PAST:
            latest = {"max_value": {"$PARAMETER": "now_ms"}}
            summary = f"{name} is not later than now_ms of the run"
            checks.append(_between(f"{code}.not_later_than_now", name, latest, summary, Severity.INFO))
    return checks


def _cut_checks(table: TableSchema) -> list[Check]:
    """The cut bounds partitions and record offsets, so neither needs a minimum."""
    positions = [name for name in _POSITIONS if name in table.arrow.names]
    return [
        Check(
            f"{table.name}.{name}.cut",
            "expect_record_offset_inside_cut",
            {
                "column_list": ["offsets_partition", name],
                "unseen": -1 if (table.name, name) in _UNSEEN else None,
                "cut": {"$PARAMETER": "cut"},
            },
            f"{name} lies in the part of its offsets partition that the run has read",
        )
        for name in positions
    ] or [
        in_set(
            f"{table.name}.offsets_partition.values",
            "offsets_partition",
            {"$PARAMETER": "offsets_partitions"},
            "offsets_partition is one that the run has read",
        )
    ]


def not_null(table: TableSchema) -> Check:
    columns = [column.name for column in table.arrow if not column.nullable]
    return Check(
        f"{table.name}.not_null",
        NOT_NULL,
        {"column_list": columns},
        f"none of {', '.join(columns)} is null",
    )


def _reference_checks(table: str) -> list[Check]:
    checks = []
    for reference in REFERENCES:
        if reference.table == table:
            where = "" if reference.where is None else f" whose {' is '.join(reference.where)}"
            summary = f"a row of {reference.target}{where} has the same {', '.join(reference.columns)}"
            code = f"{table}.{reference.target}.reference"
            checks.append(_between(code, reference.count_column, {"min_value": 1}, summary))
    if table == MEMBER_COUNT.table:
        checks.append(
            Check(
                "groups.member_count.members",
                "expect_column_pair_values_to_be_equal",
                {
                    "column_A": "member_count",
                    "column_B": MEMBER_COUNT.count_column,
                    "ignore_row_if": "neither",
                },
                "member_count is the number of rows of members",
            )
        )
    return checks


def _files_checks() -> list[Check]:
    return [
        in_set(f"{FILES}.found", "found", [True], "every file that the manifest lists is there"),
        in_set(f"{FILES}.listed", "listed", [True], "there is no file that the manifest does not list"),
        in_set(f"{FILES}.intact", "intact", [True], "every file that the manifest lists is the published one"),
        Check(
            f"{FILES}.table",
            "expect_column_distinct_values_to_contain_set",
            {"column": "table", "value_set": sorted(TABLES)},
            "every table has a file",
        ),
    ]
