"""All rules on one run."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coordinator_core.rules.catalogue import RULES
from coordinator_core.rules.facts import Facts, Part
from coordinator_core.rules.findings import findings_of, in_order
from coordinator_core.rules.model import Rule, Severity
from coordinator_core.rules.needs import NEED_OPTIONS
from coordinator_core.rules.settings import Mute, RuleSettings

_NO_SETTINGS = RuleSettings()


@dataclass(frozen=True)
class Reconciliation:
    """Result of all rules on a run.

    Every rule of the catalogue is in exactly one of ``evaluated``, ``not_evaluated`` (code to the missing input) and
    ``not_applicable`` (code to the reason).  ``findings`` is of schema ``FINDINGS``; those with ``muted`` do not count.
    """

    findings: pa.Table
    evaluated: tuple[str, ...]
    not_evaluated: Mapping[str, str]
    not_applicable: Mapping[str, str]
    settings: RuleSettings

    @property
    def counts(self) -> dict[str, int]:
        """Findings that are not muted, by severity."""
        found = self.findings.filter(pc.is_null(self.findings["muted"]))["severity"]
        return {level.label: pc.sum(pc.equal(found, level.label)).as_py() or 0 for level in reversed(Severity)}

    @property
    def muted(self) -> int:
        return int(self.findings.num_rows) - sum(self.counts.values())

    @property
    def worst(self) -> Severity | None:
        """The highest severity of a finding that counts."""
        return next((level for level in reversed(Severity) if self.counts[level.label]), None)


@dataclass(frozen=True)
class Chosen:
    """Rules that are evaluated, and why others are not."""

    evaluated: tuple[Rule, ...]
    not_evaluated: Mapping[str, str]
    not_applicable: Mapping[str, str]


@dataclass(frozen=True)
class Hits:
    """Result of one rule on some offsets partitions.

    ``each`` has a finding for each of ``count`` hits, ``together`` one for each group: what counts when all
    parts together have more hits than the limit.  Inputs that cannot be asked for any more are ``None``.
    """

    code: str
    count: int
    each: pa.Table | None
    together: pa.Table | None


def chosen_rules(facts: Facts, codes: Collection[str] | None) -> Chosen:
    """Rules with these ``codes`` (``None``: all) that can be evaluated on ``facts``."""
    evaluated: list[Rule] = []
    not_evaluated: dict[str, str] = {}
    not_applicable: dict[str, str] = {}
    for rule in RULES.values():
        if codes is not None and rule.code not in codes:
            continue
        missing = [need for need in rule.needs if facts.missing(need)]
        if rule.applies is not None and not rule.applies(facts.profile):
            not_applicable[rule.code] = f"not a rule for {facts.run.profile}"
        elif missing:
            not_evaluated[rule.code] = "needs " + ", ".join(f"{need} ({NEED_OPTIONS[need]})" for need in missing)
        else:
            evaluated.append(rule)
    return Chosen(tuple(evaluated), not_evaluated, not_applicable)


def find(facts: Facts, rules: Iterable[Rule], settings: RuleSettings, *, is_all: bool) -> list[Hits]:
    """Results of ``rules`` on ``facts``, which are of the whole run (``is_all``) or of a part of it."""
    found = []
    limits = settings.limits(facts.profile)
    limit = int(limits["findings_per_rule"])
    for rule in rules:
        hits = rule.find(facts, limits)
        if hits.num_rows:
            # Before hits are gathered: one that stands for others has only its own names.
            hits = _muted(rule, hits, settings.mutes, facts.now_ms)
            severity = settings.severity(rule.code, rule.severity)
            is_over = hits.num_rows > limit
            each = None if is_over else findings_of(rule, severity, hits)
            together = None if is_all and not is_over else findings_of(rule, severity, hits, gathered=True)
            found.append(Hits(rule.code, hits.num_rows, each, together))
    return found


def find_in_part(part: Part, rules: Iterable[Rule], settings: RuleSettings, *, is_all: bool) -> list[Hits]:
    """:func:`find` of rules that are not across, of those that can be asked of ``part``."""
    asked = [rule for rule in rules if (part.has_groups if rule.by_group else part.has_partitions)]
    return find(part.facts, asked, settings, is_all=is_all)


def reconciled(
    facts: Facts, chosen: Chosen, found: Iterable[Hits], settings: RuleSettings = _NO_SETTINGS
) -> Reconciliation:
    """Result of all rules on the run, from their results on it or on all of its parts."""
    of_rule: dict[str, list[Hits]] = {}
    for hits in found:
        of_rule.setdefault(hits.code, []).append(hits)
    findings = []
    limit = settings.limits(facts.profile)["findings_per_rule"]
    for parts in of_rule.values():
        is_over = sum(hits.count for hits in parts) > limit
        tables = [hits.together if is_over else hits.each for hits in parts]
        rows = pa.concat_tables([table for table in tables if table is not None])
        findings.append(rows)
    evaluated = tuple(rule.code for rule in chosen.evaluated)
    return Reconciliation(in_order(findings), evaluated, chosen.not_evaluated, chosen.not_applicable, settings)


def evaluate(
    facts: Facts, settings: RuleSettings = _NO_SETTINGS, *, codes: Collection[str] | None = None
) -> Reconciliation:
    """Evaluate the rules with these ``codes`` (``None``: all) on ``facts``.

    Pure: the time is the run's ``now_ms``, the order of findings depends on nothing but the findings.
    """
    chosen = chosen_rules(facts, codes)
    across = [rule for rule in chosen.evaluated if rule.across]
    of_parts = [rule for rule in chosen.evaluated if not rule.across]
    found = [find(facts, across, settings, is_all=True)]
    found += facts.each_part(lambda part: find_in_part(part, of_parts, settings, is_all=part.facts is facts))
    return reconciled(facts, chosen, chain.from_iterable(found), settings)


def _muted(rule: Rule, hits: pa.Table, mutes: Sequence[Mute], now_ms: int) -> pa.Table:
    """``hits`` with the first mute that matches each, in the order of the settings."""
    reasons = pa.nulls(hits.num_rows, pa.string())
    for mute in mutes:
        if mute.rule != rule.code or mute.is_over(now_ms):
            continue
        matches = np.ones(hits.num_rows, np.bool_)
        for name, pattern in (("group_id", mute.group), ("topic", mute.topic)):
            if pattern is not None:
                matches &= _matching(hits[name], pattern) if name in hits.column_names else False
        reasons = pc.if_else(pc.and_(pc.is_null(reasons), pa.array(matches)), mute.text, reasons)
    return hits.append_column("muted", reasons)


def _matching(column: pa.ChunkedArray, pattern: str) -> np.ndarray:
    expression = re.compile(pattern)
    names = column.cast(pa.string()).combine_chunks().dictionary_encode()
    fits = [bool(expression.fullmatch(name)) for name in names.dictionary.to_pylist()]
    taken = pa.array(fits, pa.bool_()).take(names.indices)
    found: np.ndarray = pc.fill_null(taken, False).to_numpy(zero_copy_only=False)
    return found
