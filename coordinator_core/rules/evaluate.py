"""All rules on one run."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coordinator_core.rules.catalogue import RULES
from coordinator_core.rules.facts import Facts
from coordinator_core.rules.findings import FINDINGS, findings_of, in_order
from coordinator_core.rules.model import NEED_OPTIONS, Rule, Severity
from coordinator_core.rules.settings import Mute, Settings

_NO_SETTINGS = Settings()


@dataclass(frozen=True)
class Reconciliation:
    """What all rules say of a run.

    Every rule of the catalogue is in exactly one of ``evaluated``, ``not_evaluated`` (code to what is
    missing) and ``not_applicable`` (code to the reason).  ``findings`` is of schema ``FINDINGS``; those with
    ``muted`` do not count.
    """

    findings: pa.Table
    evaluated: tuple[str, ...]
    not_evaluated: Mapping[str, str]
    not_applicable: Mapping[str, str]
    settings: Settings

    @property
    def counts(self) -> dict[str, int]:
        """Findings that are not muted, by severity."""
        found = self.findings.filter(pc.is_null(self.findings["muted"]))["severity"]
        return {
            level.label: pc.sum(pc.equal(found, level.label)).as_py() or 0 for level in reversed(Severity)
        }

    @property
    def muted(self) -> int:
        return int(self.findings.num_rows) - sum(self.counts.values())

    @property
    def worst(self) -> Severity | None:
        """The highest severity of a finding that counts."""
        return next((level for level in reversed(Severity) if self.counts[level.label]), None)


def evaluate(
    facts: Facts, settings: Settings = _NO_SETTINGS, *, codes: Sequence[str] | None = None
) -> Reconciliation:
    """Evaluate the rules with these ``codes`` (``None``: all) on ``facts``.

    Pure: the time is the run's ``now_ms``, the order of findings depends on nothing but the findings.
    """
    evaluated: list[str] = []
    not_evaluated: dict[str, str] = {}
    not_applicable: dict[str, str] = {}
    found: list[pa.Table] = []
    limits = settings.limits
    for rule in RULES.values():
        if codes is not None and rule.code not in codes:
            continue
        missing = [need for need in rule.needs if facts.missing(need)]
        if rule.profiles is not None and facts.profile.name not in rule.profiles:
            not_applicable[rule.code] = f"not a rule for {facts.run.profile}"
        elif missing:
            not_evaluated[rule.code] = "needs " + ", ".join(
                f"{need} ({NEED_OPTIONS[need]})" for need in missing
            )
        else:
            evaluated.append(rule.code)
            hits = rule.find(facts, limits)
            if hits.num_rows:
                severity = settings.severity(rule.code, rule.severity)
                rows = findings_of(rule, severity, hits, int(limits["findings_per_rule"]))
                found.append(_muted(rule, rows, settings.mutes, facts.now_ms))
    return Reconciliation(in_order(found), tuple(evaluated), not_evaluated, not_applicable, settings)


def _muted(rule: Rule, findings: pa.Table, mutes: Sequence[Mute], now_ms: int) -> pa.Table:
    """``findings`` with the first mute that matches each, in the order of the settings."""
    reasons = pa.nulls(findings.num_rows, pa.string())
    for mute in mutes:
        if mute.rule != rule.code or mute.is_over(now_ms):
            continue
        matches = np.ones(findings.num_rows, np.bool_)
        for name, pattern in (("group_id", mute.group), ("topic", mute.topic)):
            if pattern is not None:
                matches &= _matching(findings[name], pattern)
        reasons = pc.if_else(pc.and_(pc.is_null(reasons), pa.array(matches)), mute.text, reasons)
    index = FINDINGS.arrow.get_field_index("muted")
    return findings.set_column(index, FINDINGS.arrow.field("muted"), reasons)


def _matching(column: pa.ChunkedArray, pattern: str) -> np.ndarray:
    expression = re.compile(pattern)
    names = column.combine_chunks().dictionary_encode()
    fits = [bool(expression.fullmatch(name)) for name in names.dictionary.to_pylist()]
    taken = pa.array(fits, pa.bool_()).take(names.indices)
    found: np.ndarray = pc.fill_null(taken, False).to_numpy(zero_copy_only=False)
    return found
