"""Findings of the rules as expectations: one for each rule of the catalogue, on the table ``findings``.

``regroup reconcile`` evaluates the rules; the check here is that it did, and that they found nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from coordinator_core import storage
from coordinator_core.errors import UsageError
from coordinator_core.jsontext import parse_json
from coordinator_core.rules.catalogue import RULES
from coordinator_core.rules.findings import FINDINGS
from coordinator_core.rules.model import Severity
from coordinator_core.rules.publish import FINDINGS_FILE
from coordinator_core.runs.place import RECONCILIATION
from coordinator_core.runs.read import Run
from expectations.checks import Check, in_set, not_null, row_count, schema
from expectations.frames import StoredTable, UnreadableTableError
from expectations.result import Refusal

SUITE = FINDINGS.name


@dataclass(frozen=True)
class Reconciled:
    """Findings that were published about one run.

    ``evaluated`` are codes of rules, ``absent`` those that could not be evaluated or do not apply, with the
    reason; ``severities`` are those that the cluster's settings changed, ``rows`` is the number of findings.
    """

    directory: str
    evaluated: frozenset[str]
    absent: Mapping[str, str]
    severities: Mapping[str, Severity]
    rows: int

    def table(self) -> StoredTable:
        """The findings as they are stored; :class:`UnreadableTableError` when they cannot be read."""
        path = storage.join(self.directory, FINDINGS_FILE)
        if not storage.exists(path):
            raise UnreadableTableError(f"{path} is missing")
        return StoredTable([(path, path)], FINDINGS.arrow, FINDINGS.key)

    def checks(self) -> list[Check]:
        """One check for each rule that is not absent, and those of the table itself."""
        return [
            schema(FINDINGS),
            not_null(FINDINGS),
            row_count(SUITE, self.rows, f"as many findings as {RECONCILIATION} says"),
            in_set(f"{SUITE}.rule.values", "rule", sorted(self.evaluated), "rule is one that was evaluated"),
            in_set(
                f"{SUITE}.severity.values",
                "severity",
                [level.label for level in Severity],
                "severity is one of info, warning, critical",
            ),
            *(
                Check(
                    f"{SUITE}.{rule.code}",
                    "expect_no_finding_of_rule",
                    {"column_list": ["rule", "muted"], "rule": rule.code},
                    f"no finding of {rule.code} {rule.name} that is not muted",
                    self.severities.get(rule.code, rule.severity),
                )
                for rule in RULES.values()
                if rule.code not in self.absent
            ),
        ]

    def refusals(self) -> dict[str, Refusal]:
        """By code of the check: rules that were neither evaluated nor excused, or that nobody knows."""
        found = {
            f"{SUITE}.{code}": Refusal(f"{SUITE}.{code}", "the rule was not evaluated, and nothing says why")
            for code in RULES
            if code not in self.evaluated and code not in self.absent
        }
        return found | {
            f"{SUITE}.{code}": Refusal(f"{SUITE}.{code}", "the catalogue has no such rule")
            for code in sorted((self.evaluated | set(self.absent)) - set(RULES))
        }


def read_reconciled(directory: str, run: Run) -> Reconciled:
    """Findings that ``regroup reconcile --publish`` wrote into ``directory`` about ``run``.

    Raises :class:`UsageError` when it is nothing of the kind, or about another run.
    """
    path = storage.join(directory, RECONCILIATION)
    if not storage.exists(path):
        raise UsageError(f"{directory} holds no {RECONCILIATION}; regroup reconcile --publish writes one")
    try:
        document = parse_json(bytes(storage.read(path)))
        about = document["run"]
        found = Reconciled(
            directory,
            frozenset(document["evaluated"]),
            {**document["not_evaluated"], **document["not_applicable"]},
            {code: Severity.of(label) for code, label in document["settings"]["severities"].items()},
            sum(document["counts"].values()) + document["muted"],
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"{path} is no reconciliation: {type(error).__name__}: {error}") from None
    if (about["run_id"], about["state_hash"]) != (run.manifest["run_id"], run.state_hash):
        raise UsageError(f"{path} is about run {about['run_id']}, not about {run.path}")
    return found
