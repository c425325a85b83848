"""The gate: evaluates every suite on a run, and counts.

GX leaves out, without failing, an expectation whose type is not registered or whose stored form it cannot
read.  So suites are stored, read back and run, and each declared check must come out of the results exactly
once; whatever does not is a refusal.
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from coordinator_core.runs.read import Run
from coordinator_core.runs.schemas import TABLES
from expectations.checks import FILES, FILES_COLUMNS, NOT_NULL, Check, suites
from expectations.combine import CODE, Combined, code_of, raised
from expectations.data_docs import check_directory, write_data_docs
from expectations.findings import SUITE as FINDINGS_SUITE
from expectations.findings import read_reconciled
from expectations.frames import (
    StoredTable,
    UnreadableTableError,
    counts_for,
    parameters,
    run_files,
    stored_table,
    with_counts,
)
from expectations.result import EXAMPLES, Failure, GateResult, Refusal

if TYPE_CHECKING:
    from great_expectations import ExpectationSuite
    from great_expectations.core import ExpectationSuiteValidationResult, ExpectationValidationResult
    from great_expectations.core.batch_definition import BatchDefinition
    from great_expectations.core.run_identifier import RunIdentifier
    from great_expectations.data_context.data_context.file_data_context import FileDataContext

CONTEXT = Path(__file__).parent / "great_expectations.yml"
_COORDINATES = ("offsets_partition", "record_offset")
_KEYS = {FILES: FILES_COLUMNS[:2], FINDINGS_SUITE: ("group_id", "topic", "partition", "member_id", "message")}


def evaluate(run: Run, *, findings: str | None = None, data_docs: str | None = None) -> GateResult:
    """Evaluate all suites on ``run``; with ``data_docs``, write GX's Data Docs into that directory.

    ``findings`` is the directory that ``regroup reconcile --publish`` wrote about the run: with it, each rule
    of the catalogue is an expectation too.  The directory of Data Docs is made when it is missing.  Raises
    :class:`UsageError` when it cannot be one, and when the findings are not about this run.
    """
    if data_docs is not None:
        check_directory(data_docs)
    reconciled = None if findings is None else read_reconciled(findings, run)
    declarations = suites() | ({} if reconciled is None else {FINDINGS_SUITE: reconciled.checks()})
    tables: dict[str, StoredTable] = {}
    unreadable: dict[str, str] = {}
    for name in declarations:
        try:
            if name == FINDINGS_SUITE and reconciled is not None:
                tables[name] = reconciled.table()
            elif name != FILES:
                tables[name] = stored_table(run, name)
        except UnreadableTableError as error:
            unreadable[name] = str(error)
    failures: list[Failure] = []
    refused_rules = {} if reconciled is None else reconciled.refusals()
    refusals: list[Refusal] = list(refused_rules.values())
    declared = evaluated = 0
    with _gx_context() as (context, data):
        from great_expectations.core.run_identifier import RunIdentifier

        run_id = RunIdentifier(run_name=str(run.manifest["run_id"]))
        for name, all_checks in declarations.items():
            checks = [check for check in all_checks if check.code not in refused_rules]
            declared += len(all_checks)
            try:
                if name in unreadable:
                    raise UnreadableTableError(unreadable[name])
                counts = counts_for(name, tables)
                batches = iter([run_files(run)]) if name == FILES else tables[name].batches()
                parts = (with_counts(rows, counts) for rows in batches)
                found = _validate(context, data, name, checks, parts, parameters(run, name), run_id)
            except UnreadableTableError as error:
                refusals += [Refusal(check.code, str(error)) for check in checks]
                continue
            failed, refused = judge(checks, found.examples(), found.result())
            evaluated += len({check.code for check in checks} - {refusal.code for refusal in refused})
            failures += failed
            refusals += refused
        absent = {} if reconciled is None else dict(reconciled.absent)
        result = GateResult(run.path, declared, evaluated, tuple(failures), tuple(refusals), absent)
        if data_docs is not None:
            declared_of = {name: len(checks) for name, checks in declarations.items()}
            write_data_docs(context, result, declared_of, data_docs)
    return result


@contextmanager
def _gx_context() -> Iterator[tuple[FileDataContext, BatchDefinition[Any]]]:
    """A GX context in a directory of its own, silent, and what stands for a data frame in it."""
    os.environ["GX_ANALYTICS_ENABLED"] = "false"  # read when GX is imported
    with tempfile.TemporaryDirectory(prefix="regroup-expectations-") as directory, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import great_expectations as gx

        import_module("expectations.custom")  # registers them
        logger = logging.getLogger("great_expectations")
        level = logger.level
        logger.setLevel(logging.CRITICAL + 1)
        try:
            shutil.copy(CONTEXT, directory)
            context = gx.get_context(mode="file", context_root_dir=directory)
            yield (
                context,
                context.data_sources.add_pandas("run")
                .add_dataframe_asset("table")
                .add_batch_definition_whole_dataframe("rows"),
            )
        finally:
            logger.setLevel(level)


def _validate(
    context: FileDataContext,
    data: BatchDefinition[Any],
    name: str,
    checks: Sequence[Check],
    batches: Iterator[pa.Table],
    values: dict[str, Any],
    run_id: RunIdentifier,
) -> Combined:
    """The results of a suite on a table, batch by batch; what the Data Docs are made of is that of all."""
    import great_expectations as gx
    import pandas as pd

    _store(context, name, checks)
    suite = context.suites.get(name)
    definition = context.validation_definitions.add(gx.ValidationDefinition(name=name, data=data, suite=suite))
    checkpoint = context.checkpoints.add(
        gx.Checkpoint(
            name=name,
            validation_definitions=[definition],
            actions=[],
            # Without unexpected_index_column_names, which costs GX as long as all else for each wrong row.
            result_format={"result_format": "SUMMARY", "partial_unexpected_count": EXAMPLES},
        )
    )
    combined = Combined()
    for rows in batches:
        frame = rows.to_pandas(types_mapper=pd.ArrowDtype)
        outcome = checkpoint.run(batch_parameters={"dataframe": frame}, expectation_parameters=values, run_id=run_id)
        [(identifier, result)] = outcome.run_results.items()
        combined.add(rows, result)
    if combined.batches > 1:
        # GX has stored the result of each batch under the same name.
        context.validation_results_store.set(identifier, combined.result())
    return combined


def _store(context: FileDataContext, name: str, checks: Sequence[Check]) -> ExpectationSuite:
    import great_expectations as gx
    from great_expectations.expectations.expectation_configuration import ExpectationConfiguration
    from great_expectations.expectations.metadata_types import FailureSeverity

    return context.suites.add(
        gx.ExpectationSuite(
            name,
            expectations=[
                ExpectationConfiguration(
                    type=check.kind,
                    kwargs=check.arguments,
                    meta={CODE: check.code},
                    description=check.summary,
                    severity=FailureSeverity(check.severity.label),
                )
                for check in checks
            ],
        )
    )


def judge(
    checks: Sequence[Check], rows: pa.Table, outcomes: ExpectationSuiteValidationResult
) -> tuple[list[Failure], list[Refusal]]:
    """Failures and refusals of one suite on ``rows``; results that no check asked for are refused too."""
    results: dict[str, ExpectationValidationResult] = {}
    counts: Counter[str] = Counter()
    for result in outcomes.results:
        code = code_of(result)
        counts[code] += 1
        results[code] = result
    failures: list[Failure] = []
    refusals: list[Refusal] = []
    for check in checks:
        times = counts.pop(check.code, 0)
        if times != 1:
            reason = "GX dropped it" if times == 0 else f"it was evaluated {times} times"
            refusals.append(Refusal(check.code, reason))
            continue
        result = results[check.code]
        what = raised(result.exception_info)
        if what is not None:
            refusals.append(Refusal(check.code, f"it raised: {what}"))
        elif not result.success:
            failures.append(_failure(check, rows, result.result))
    refusals += [Refusal(code, "it was evaluated but not declared") for code in sorted(counts)]
    return failures, refusals


def _failure(check: Check, rows: pa.Table, result: Mapping[str, Any]) -> Failure:
    observed = result.get("observed_value")
    if result.get("partial_missing_list"):
        observed = f"no {', '.join(map(str, result['partial_missing_list']))}"
    wrong = result.get("partial_unexpected_index_list") or ()
    return Failure(
        check.code,
        check.severity,
        check.summary,
        result.get("unexpected_count"),
        tuple(_example(check, rows.slice(index, 1)) for index in wrong),
        None if observed is None else str(observed),
    )


def _example(check: Check, row: pa.Table) -> dict[str, Any]:
    """The row's coordinates, the others of its key, and what the check looked at (of nulls, only those)."""
    key = _KEYS.get(check.suite) or TABLES[check.suite].key
    values: dict[str, Any] = row.to_pylist()[0]
    names = dict.fromkeys([*_COORDINATES, *key])
    names |= dict.fromkeys(name for name in check.columns if check.kind != NOT_NULL or values[name] is None)
    return {name: values[name] for name in names if name in values}
