"""``regroup diff``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import click

from coordinator_core.cli.options import Format, format_option, note, write_line, write_lines
from coordinator_core.errors import ExitCode
from coordinator_core.rules.differences import ADDED, REMOVED, Difference, alone, difference, only_in
from coordinator_core.rules.publish import scope_of
from coordinator_core.runs.read import open_run
from coordinator_core.untrusted import csv_text, visible

_FIELDS = ("kind", "change", "offsets_partition", "group_id", "topic", "partition", "columns", "before", "after")


@click.command("diff")
@click.argument("before", metavar="RUN")
@click.argument("now", metavar="RUN")
@format_option(Format.TEXT, Format.JSON, Format.JSONL, Format.CSV)
def diff_command(before: str, now: str, output_format: Format) -> int:
    """Groups and committed offsets that were added, removed or changed from one RUN to the other.

    Exits with 0 when both hold the same state, with 1 when they do not.
    """
    runs = open_run(before), open_run(now)
    for run in runs:
        # Tables whose hashes are equal are not read.
        run.check_files()
    found = difference(*runs)
    for run, other, counted_as in ((runs[0], runs[1], REMOVED), (runs[1], runs[0], ADDED)):
        if not found.is_identical and (numbers := only_in(run, other)):
            note(f"regroup: warning: {alone(numbers, run.path, counted_as)}")
    match output_format:
        case Format.JSON:
            write_line(json.dumps(_document(found), ensure_ascii=False, default=bytes.hex))
        case Format.JSONL:
            for change in found.changes():
                write_line(json.dumps(change, ensure_ascii=False, default=bytes.hex))
        case Format.CSV:
            write_line(_csv(found))
        case _:
            write_lines(_text(found))
    return ExitCode.CLEAN if found.is_identical else ExitCode.FINDINGS


def _document(found: Difference) -> dict[str, Any]:
    return {
        "identical": found.is_identical,
        "before": scope_of(found.before),
        "after": scope_of(found.now),
        "identical_tables": list(found.same_tables),
        "differing_tables": list(found.differing_tables),
        "counts": found.counts,
        "only_before": only_in(found.before, found.now),
        "only_after": only_in(found.now, found.before),
        "changes": list(found.changes()),
    }


def _csv(found: Difference) -> str:
    def row(change: dict[str, Any]) -> list[object]:
        texts = {name: json.dumps(change[name], default=bytes.hex) for name in ("before", "after")}
        texts["columns"] = " ".join(change["columns"])
        return [texts.get(name, "" if change[name] is None else change[name]) for name in _FIELDS]

    return csv_text(_FIELDS, map(row, found.changes())).rstrip("\n")


def _text(found: Difference) -> Iterator[str]:
    if found.is_identical:
        yield f"identical: state hash {found.now.state_hash}"
    for name, counts in found.counts.items():
        yield f"{name}: " + ", ".join(f"{number} {change}" for change, number in counts.items())
    if found.differing_tables:
        yield f"tables that differ: {', '.join(found.differing_tables)}"
    for change in found.changes():
        subject = visible(change["group_id"])
        if change["topic"] is not None:
            subject += f" {visible(change['topic'])}-{change['partition']}"
        yield f"{change['change']:<8} {change['kind']:<6} {subject}{_values(change)}"


def _values(change: dict[str, Any]) -> str:
    if change["change"] == "changed":
        shown = [
            f"{name} {_value(change['before'][name])} -> {_value(change['after'][name])}"
            if name in change["before"]
            else name
            for name in change["columns"]
        ]
        return ": " + ", ".join(shown)
    if change["kind"] == "offset":
        values = change["before"] or change["after"]
        return f": committed_offset {values['committed_offset']}"
    return ""


def _value(value: Any) -> str:
    return "-" if value is None else visible(str(value))
