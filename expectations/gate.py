"""The gate: evaluates every suite on a run, and counts.

GX leaves out, without failing, an expectation whose type is not registered or whose stored form it cannot
read.  So suites are stored, read back and run, and each declared check must come out of the results exactly
once; whatever does not is a refusal.
"""

from __future__ import annotations

import gc
import logging
import os
import shutil
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from coordinator_core.runs.read import Run
from coordinator_core.runs.schemas import TABLES
from expectations.checks import FILES, FILES_COLUMNS, NOT_NULL, OF_COMPLETE_RUNS, Check, suites
from expectations.combine import CODE, Combined, code_of, raised
from expectations.data_docs import check_directory, write_data_docs
from expectations.findings import SUITE as FINDINGS_SUITE
from expectations.findings import Reconciled, read_reconciled
from expectations.frames import (
    WHOLE,
    Part,
    StoredTable,
    UnreadableTableError,
    batches,
    parameters,
    run_files,
    stored_table,
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


@dataclass(frozen=True)
class Validated:
    """Results of a suite on the rows of a part, the rows that they name, and under which key GX stores such results."""

    result: ExpectationSuiteValidationResult
    examples: pa.Table
    identifier: Any


Answers = Mapping[str, "Validated | str"]
"""By suite; a text says why its table cannot be read."""


@dataclass(frozen=True)
class Question:
    """The suites on ``run``.

    ``findings`` is the directory that ``regroup reconcile --publish`` wrote about the run: with it, each rule of the
    catalogue is an expectation too. ``began`` is the time that GX shows.
    """

    run: Run
    findings: str | None
    began: datetime

    @cached_property
    def reconciled(self) -> Reconciled | None:
        """:class:`UsageError` when the findings are not about this run."""
        return None if self.findings is None else read_reconciled(self.findings, self.run)

    @cached_property
    def declarations(self) -> dict[str, list[Check]]:
        """Checks by suite."""
        found = self.reconciled
        declared = suites() | ({} if found is None else {FINDINGS_SUITE: found.checks()})
        if not self.run.partial:
            return declared
        return {name: [one for one in checks if one.code not in OF_COMPLETE_RUNS] for name, checks in declared.items()}

    @cached_property
    def refused(self) -> dict[str, Refusal]:
        """Checks that are not asked for, by code."""
        return {} if self.reconciled is None else self.reconciled.refusals()

    def checks(self, suite: str) -> list[Check]:
        """The checks that are asked for."""
        return [check for check in self.declarations[suite] if check.code not in self.refused]

    def table(self, suite: str) -> StoredTable | None:
        """The stored table of a suite; ``None``: it is of files."""
        if suite == FINDINGS_SUITE and self.reconciled is not None:
            return self.reconciled.table()
        return None if suite == FILES else stored_table(self.run, suite)


InParts = Callable[[Question], Iterable[Answers]]
"""Has the suites evaluated on the parts of a run; the first answers are those of the first part."""


def evaluate(
    run: Run, *, findings: str | None = None, data_docs: str | None = None, in_parts: InParts | None = None
) -> GateResult:
    """Evaluate all suites on ``run``; with ``data_docs``, write GX's Data Docs into that directory.

    ``findings`` is that of :class:`Question`. The directory of Data Docs is made when it is missing. Raises
    :class:`UsageError` when it cannot be one, and when the findings are not about this run.
    """
    if data_docs is not None:
        check_directory(data_docs)
    question = Question(run, findings, datetime.now(UTC))
    declarations, absent = question.declarations, dict(question.reconciled.absent) if question.reconciled else {}
    failures: list[Failure] = []
    refusals: list[Refusal] = list(question.refused.values())
    evaluated = 0
    with _gx_context() as (context, _):
        found: dict[str, Combined] = {}
        unreadable: dict[str, str] = {}
        identifiers: dict[str, Any] = {}
        for answers in [evaluate_part(question)] if in_parts is None else in_parts(question):
            for name, answer in answers.items():
                if isinstance(answer, str):
                    unreadable.setdefault(name, answer)
                else:
                    found.setdefault(name, Combined()).add(answer.examples, answer.result)
                    identifiers[name] = answer.identifier
        for name in declarations:
            checks = question.checks(name)
            if name in unreadable:
                refusals += [Refusal(check.code, unreadable[name]) for check in checks]
                continue
            result = found[name].result()
            _store(context, name, checks)
            context.validation_results_store.set(identifiers[name], result)
            failed, refused = judge(checks, found[name].examples(), result)
            evaluated += len({check.code for check in checks} - {refusal.code for refusal in refused})
            failures += failed
            refusals += refused
        declared_of = {name: len(checks) for name, checks in declarations.items()}
        outcome = GateResult(run.path, sum(declared_of.values()), evaluated, tuple(failures), tuple(refusals), absent)
        if data_docs is not None:
            write_data_docs(context, outcome, declared_of, data_docs)
    return outcome


def evaluate_part(question: Question, part: Part = WHOLE) -> dict[str, Validated | str]:
    """Answers of the suites on a part of the run.

    The first part has small tables and files whole, the others have rows of large tables only.
    """
    tables: dict[str, StoredTable] = {}
    answers: dict[str, Validated | str] = {}
    for name in question.declarations:
        try:
            if (table := question.table(name)) is not None:
                tables[name] = table
        except UnreadableTableError as error:
            answers[name] = str(error)
    with _gx_context() as (context, data):
        from great_expectations.core.run_identifier import RunIdentifier

        run_id = RunIdentifier(run_name=str(question.run.manifest["run_id"]), run_time=question.began)
        for name in question.declarations:
            if name in answers:
                continue
            is_divided = name in tables and name in TABLES and tables[name].is_large
            if part.number and not is_divided:
                continue
            if name in tables:
                rows = batches(name, tables, part if is_divided else WHOLE)
            else:
                rows = iter([run_files(question.run)])
            values = parameters(question.run, name)
            try:
                answers[name] = _validate(context, data, name, question.checks(name), rows, values, run_id)
            except UnreadableTableError as error:
                answers[name] = str(error)
    return answers


@contextmanager
def _gx_context() -> Iterator[tuple[FileDataContext, BatchDefinition[Any]]]:
    """A GX context in a directory of its own, silent, and its asset for data frames."""
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
) -> Validated:
    """The results of a suite on a table, batch by batch."""
    import great_expectations as gx

    from expectations.columns import frame_of

    _store(context, name, checks)
    suite = context.suites.get(name)
    definition = context.validation_definitions.add(gx.ValidationDefinition(name=name, data=data, suite=suite))
    # Without unexpected_index_column_names, which costs GX as long as all else for each wrong row.
    result_format = {"result_format": "SUMMARY", "partial_unexpected_count": EXAMPLES}
    checkpoint = context.checkpoints.add(
        gx.Checkpoint(
            name=name,
            validation_definitions=[definition],
            actions=[],
            result_format=result_format,
        )
    )
    combined = Combined()
    identifier = None
    for rows in batches:
        frame = {"dataframe": frame_of(rows)}
        if identifier is None:
            outcome: Any = checkpoint.run(batch_parameters=frame, expectation_parameters=values, run_id=run_id)
            [(identifier, result)] = outcome.run_results.items()
        else:
            # Without the checkpoint, which stores each result.
            outcome = data.get_batch(frame)
            result = outcome.validate(suite, result_format=result_format, expectation_parameters=values)
        combined.add(rows, result)
        # GX's objects refer to each other, and hold the frame until somebody looks for cycles.
        del rows, frame, outcome, result
        gc.collect(1)
    return Validated(combined.result(), combined.examples(), identifier)


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
