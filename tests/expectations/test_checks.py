from __future__ import annotations

from coordinator_core.runs.schemas import TABLES
from expectations.checks import COUNTED, FILES, MINIMA, VALUE_SETS, Check, Severity, suites


def checks() -> list[Check]:
    return [check for suite in suites().values() for check in suite]


def test_there_is_a_suite_for_every_table_and_one_for_the_files() -> None:
    assert list(suites()) == [*TABLES, FILES]


def test_codes_are_unique_and_begin_with_their_suite() -> None:
    codes = [check.code for check in checks()]
    assert len(codes) == len(set(codes))
    assert all(check.code.startswith(f"{name}.") for name, suite in suites().items() for check in suite)


def test_what_is_written_by_hand_names_columns_that_exist() -> None:
    """A column that is renamed must not leave its check behind, looking at nothing."""
    columns = {(table.name, column) for table in TABLES.values() for column in table.arrow.names}
    assert set(VALUE_SETS) <= columns
    assert set(MINIMA) <= {column for _, column in columns}
    for reference in COUNTED:
        for column in reference.columns:
            assert {(reference.table, column), (reference.target, column)} <= columns
        if reference.where is not None:
            assert (reference.target, reference.where[0]) in columns


def test_every_table_is_checked_for_schema_rows_key_nulls_and_place_in_the_log() -> None:
    for name in TABLES:
        codes = {check.code for check in suites()[name]}
        assert {f"{name}.{what}" for what in ("schema", "rows", "key", "not_null")} <= codes
        assert {f"{name}.record_offset.cut", f"{name}.offsets_partition.values"} & codes


def test_every_severity_is_in_use() -> None:
    assert {check.severity for check in checks()} == set(Severity)
