"""Findings as text, JSON, JSON lines and CSV, and the catalogue of rules as text and JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from coordinator_core.durations import numbered
from coordinator_core.jsontext import fields_of
from coordinator_core.rules.findings import SUBJECT
from coordinator_core.rules.model import Rule, Severity
from coordinator_core.untrusted import csv_text, visible

COLUMNS = ("rule", "severity", *SUBJECT, "rows", "message", "evidence", "remedy", "muted")
"""Fields of a finding, in the order of JSON and CSV."""


def finding_objects(findings: pa.Table) -> Iterator[dict[str, Any]]:
    """Findings as JSON objects."""
    for batch in findings.to_batches(max_chunksize=10_000):
        for row in batch.to_pylist():
            row["evidence"] = json.loads(row["evidence"])
            yield {name: row[name] for name in COLUMNS}


def findings_csv(findings: pa.Table) -> str:
    """Findings as CSV with a header; evidence is JSON."""
    rows = findings.to_pylist()
    return csv_text(COLUMNS, (["" if row[name] is None else row[name] for name in COLUMNS] for row in rows))


def reconciliation_text(summary: Mapping[str, Any], findings: pa.Table) -> Iterator[str]:
    """The verdict, every finding, rules not evaluated and muted ones, line by line."""
    run = summary["run"]
    yield (
        f"{summary['verdict']}: {counts_text(summary['counts'])}"
        + (f", {summary['muted']} muted" if summary["muted"] else "")
        + f"; {numbered(len(summary['evaluated']), 'rule')} evaluated, {len(summary['not_evaluated'])} not evaluated, "
        f"{len(summary['not_applicable'])} not applicable"
    )
    # A snapshot has a run for as long as the command.
    of_run = f"run {run['run_id']} of {run['cluster']}, window {run['window']}"
    yield (
        f"{'a snapshot' if run['path'] is None else of_run}, {run['profile']}"
        + ("" if run["complete"] else ", PARTIAL: not all of the log is known")
    )
    if findings.num_rows:
        yield ""
        yield f"{'SEVERITY':<9} {'RULE':<5} {'PARTITION':>9} {'RECORD-OFFSET':>13} {'GROUP':<24} MESSAGE"
    for row in findings.to_pylist():
        partition, offset = ("-" if row[name] is None else row[name] for name in ("offsets_partition", "record_offset"))
        group = "-" if row["group_id"] is None else visible(row["group_id"])
        muted = "" if row["muted"] is None else f" [muted: {visible(row['muted'])}]"
        yield (
            f"{row['severity']:<9} {row['rule']:<5} {partition:>9} {offset:>13} {group:<24} "
            f"{visible(row['message'])}{muted}"
        )
    if summary["not_evaluated"]:
        yield ""
        for code, reason in summary["not_evaluated"].items():
            yield f"not evaluated: {code} {reason}"
    for mute in summary["mutes_over"]:
        yield f"mute of {mute['rule']} is over since {mute['until']}: {visible(mute['reason'])}"


def counts_text(counts: Mapping[str, int]) -> str:
    """Numbers of findings by severity, worst first: ``1 critical, 0 warning, 2 info``."""
    return ", ".join(f"{counts[level.label]} {level.label}" for level in reversed(Severity))


def rule_object(rule: Rule) -> dict[str, Any]:
    """A rule as a JSON object."""
    return {
        **fields_of(rule, "code", "name"),
        "severity": rule.severity.label,
        **fields_of(rule, "summary", "why", "evidence", "remedy"),
        "tables": list(rule.reads),
        "needs": [need.value for need in rule.needs],
        "thresholds": list(rule.thresholds),
        "profiles": None if rule.profiles is None else sorted(rule.profiles),
        "also": list(rule.also),
    }


def rules_text(rules: list[Rule]) -> str:
    """A line for each rule."""
    lines = [f"{'CODE':<5} {'SEVERITY':<9} {'NEEDS':<23} NAME"]
    for rule in rules:
        needs = ", ".join(need.value for need in rule.needs) or "-"
        lines.append(f"{rule.code:<5} {rule.severity.label:<9} {needs:<23} {rule.name}")
    return "\n".join(lines)


def rule_text(rule: Rule) -> str:
    """Everything about one rule."""
    rows = {
        **fields_of(rule, "why", "evidence", "remedy"),
        "tables": ", ".join(rule.reads) or "-",
        "needs": ", ".join(need.value for need in rule.needs) or "the run alone",
        "thresholds": ", ".join(rule.thresholds) or "-",
        "profiles": "all" if rule.profiles is None else ", ".join(sorted(rule.profiles)),
    }
    head = f"{rule.code} {rule.name} ({rule.severity.label})\n{rule.summary}\n"
    return head + "\n".join(f"  {name:<11} {text}" for name, text in rows.items())
