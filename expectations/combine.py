"""Results of one suite on the batches of a table, as the result on the whole table.

A batch has the rows whose key has a certain hash (``frames.StoredTable``), so equal keys are in one batch: the counts
of GX in batches add up to its count in the table.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from expectations.result import EXAMPLES

if TYPE_CHECKING:
    from great_expectations.core import ExpectationSuiteValidationResult, ExpectationValidationResult

CODE = "code"
"""Name under which an expectation's ``meta`` has the code of its check."""

ROWS = "expect_table_row_count_to_equal"

_SUMS = ("element_count", "missing_count", "unexpected_count")
_LISTS = ("partial_unexpected_list", "partial_unexpected_index_list", "partial_unexpected_counts")


def code_of(result: ExpectationValidationResult) -> str:
    """Code of the check that asked for a result."""
    config = result.expectation_config
    return "" if config is None else str(config.meta.get(CODE, config.type))


def raised(info: Mapping[str, Any] | None) -> str | None:
    """The exception of a result, from its ``exception_info``: GX has one mapping, or one per metric."""
    info = info or {}
    for entry in (info, *(value for value in info.values() if isinstance(value, dict))):
        if entry.get("raised_exception"):
            return str(entry.get("exception_message"))
    return None


class Combined:
    """The results so far, and of the rows those that a result names."""

    def __init__(self) -> None:
        self._outcomes: list[ExpectationSuiteValidationResult] = []
        self._examples: list[pa.Table] = []
        self._of_code: Counter[str] = Counter()

    def add(self, rows: pa.Table, outcome: ExpectationSuiteValidationResult) -> None:
        """Take in the result on a batch of these rows, of which only examples are kept."""
        for result in outcome.results:
            wrong = (result.result or {}).get("partial_unexpected_index_list") or []
            code = code_of(result)
            wrong = wrong[: max(0, EXAMPLES - self._of_code[code])]
            if "partial_unexpected_index_list" in (result.result or {}):
                result.result["partial_unexpected_index_list"] = [len(self._examples) + at for at in range(len(wrong))]
            self._examples += [rows.slice(index, 1) for index in wrong]
            self._of_code[code] += len(wrong)
        self._outcomes.append(outcome)

    @property
    def batches(self) -> int:
        return len(self._outcomes)

    def examples(self) -> pa.Table:
        """The rows to which the lists of indexes in :meth:`result` refer."""
        return pa.concat_tables(self._examples) if self._examples else pa.table({})

    def result(self) -> ExpectationSuiteValidationResult:
        """The result on all rows.

        A check that a batch has no result of has none here; one that a batch has several of has several.
        """
        whole = copy(self._outcomes[0])
        if self.batches == 1:
            return whole
        by_code: list[dict[str, list[ExpectationValidationResult]]] = []
        for outcome in self._outcomes:
            found: dict[str, list[ExpectationValidationResult]] = {}
            for result in outcome.results:
                found.setdefault(code_of(result), []).append(result)
            by_code.append(found)
        results: list[ExpectationValidationResult] = []
        for code in dict.fromkeys(code for found in by_code for code in found):
            of_batches = [found.get(code, []) for found in by_code]
            if all(of_batches):
                one = _combined([result for batch in of_batches for result in batch])
                results += [one] * max(map(len, of_batches))
        whole.results = results
        good = sum(bool(result.success) for result in results)
        whole.success = good == len(results)
        whole.statistics = {
            "evaluated_expectations": len(results),
            "successful_expectations": good,
            "unsuccessful_expectations": len(results) - good,
            "success_percent": 100 * good / len(results) if results else None,
        }
        return whole


def _combined(results: Sequence[ExpectationValidationResult]) -> ExpectationValidationResult:
    """One result of those of all batches; of one that raised there is nothing else to say."""
    one = copy(next((result for result in results if raised(result.exception_info)), results[0]))
    if raised(one.exception_info):
        return one
    one.success = all(result.success for result in results)
    parts = [result.result for result in results]
    one.result = dict(next(result.result for result in results if result.success == one.success))
    config = one.expectation_config
    if config is not None and config.type == ROWS:
        found = sum(part["observed_value"] for part in parts)
        one.result["observed_value"] = found
        one.success = found == config.kwargs["value"]
    for name in _SUMS:
        if name in parts[0]:
            one.result[name] = sum(part.get(name) or 0 for part in parts)
    for name in _LISTS:
        if name in parts[0]:
            one.result[name] = [item for part in parts for item in part.get(name) or ()][:EXAMPLES]
    if "unexpected_count" in parts[0]:
        rows, missing, wrong = (one.result.get(name, 0) for name in _SUMS)
        for name, of in (("unexpected_percent", rows - missing), ("unexpected_percent_total", rows)):
            one.result[name] = 100 * wrong / of if of else 0.0
        one.result["unexpected_percent_nonmissing"] = one.result["unexpected_percent"]
        if "missing_percent" in parts[0]:
            one.result["missing_percent"] = 100 * missing / rows if rows else 0.0
    return one
