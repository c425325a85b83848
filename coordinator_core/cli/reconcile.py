"""``regroup reconcile``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from coordinator_core.cli.options import (
    Engine,
    Format,
    engine_options,
    format_option,
    note,
    together,
    write_json,
    write_line,
)
from coordinator_core.cli.source import run_spark_app
from coordinator_core.errors import ExitCode
from coordinator_core.process.allocator import keep_freed_memory
from coordinator_core.reports.findings import finding_objects, findings_csv, reconciliation_text
from coordinator_core.rules.evaluate import Reconciliation, evaluate
from coordinator_core.rules.facts import Facts
from coordinator_core.rules.inputs import Inputs
from coordinator_core.rules.model import Severity
from coordinator_core.rules.publish import publish_findings, read_reconciliation, summary_of

F = TypeVar("F", bound=Callable[..., Any])

NEVER = "never"


def reconcile_options(*, fail_on: str) -> Callable[[F], F]:
    """Options of every command that evaluates rules; pass their values on to :func:`reconciled`.

    ``fail_on`` is the default of ``--fail-on``, which goes to :func:`exit_code`.
    """
    return together(
        click.option("--topics", metavar="FILE", help="topics.json: ids, partitions, start and end offsets of topics."),
        click.option("--against", metavar="RUN", help="The run before this one, to compare with."),
        click.option(
            "--log",
            metavar="SNAPSHOT",
            help="The log that the run was made of, for rules about raw records; walks all of it, slowly.",
        ),
        click.option(
            "--transaction-log",
            metavar="DIR",
            help="A log directory with __transaction_state-<n>, to know whose transactions are going on.",
        ),
        click.option(
            "--rules",
            "settings_file",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            help="YAML with severities, thresholds and mutes (docs/rules.md).",
        ),
        click.option("--rule", "codes", multiple=True, metavar="CODE", help="Evaluate only this rule (repeatable)."),
        click.option(
            "--fail-on",
            type=click.Choice([*(level.label for level in reversed(Severity)), NEVER]),
            default=fail_on,
            show_default=True,
            help="Exit with 1 from this severity on.",
        ),
    )


def reconciled(run: str, **given: Any) -> tuple[Facts, Reconciliation]:
    """The run with its optional inputs (:meth:`Inputs.read`), and what the rules say of it."""
    inputs = Inputs.read(run, **given)
    facts = inputs.facts()
    return facts, evaluate(facts, inputs.settings, codes=inputs.codes)


def exit_code(found: Reconciliation, fail_on: str) -> int:
    """1 when a finding that counts reaches the severity ``fail_on``, else 0."""
    worst = found.worst
    failed = fail_on != NEVER and worst is not None and worst >= Severity.of(fail_on)
    return ExitCode.FINDINGS if failed else ExitCode.CLEAN


@click.command("reconcile")
@click.argument("run", metavar="RUN")
@reconcile_options(fail_on=Severity.WARNING.label)
@click.option("--publish", is_flag=True, help="Write the findings as a table beside the run.")
@engine_options("Evaluate in this process, or as a Spark application, which publishes the findings.")
@format_option(Format.TEXT, Format.JSON, Format.JSONL, Format.CSV)
def reconcile_command(
    run: str,
    fail_on: str,
    publish: bool,
    engine: Engine,
    master: str,
    output_format: Format,
    **inputs: Any,
) -> int:
    """Findings about the groups and offsets of a published RUN, with evidence and remedies."""
    directory: str | None
    if engine is Engine.SPARK:
        directory = _publish_with_spark(run, master, **inputs)
        summary, found = read_reconciliation(directory)
    else:
        keep_freed_memory()
        facts, found = reconciled(run, **inputs)
        summary = summary_of(facts, found)
        directory = publish_findings(facts, found) if publish else None
    match output_format:
        case Format.JSON:
            document = summary | {"findings": list(finding_objects(found.findings))}
            write_json(document)
        case Format.JSONL:
            for finding in finding_objects(found.findings):
                write_json(finding)
        case Format.CSV:
            write_line(findings_csv(found.findings).rstrip("\n"))
        case _:
            for line in reconciliation_text(summary, found.findings):
                write_line(line)
    if directory is not None:
        note(f"regroup: findings are in {directory}")
    return exit_code(found, fail_on)


def _publish_with_spark(
    run: str, master: str, *, settings_file: Path | None, codes: tuple[str, ...], **given: str | None
) -> str:
    """The directory of the findings that a Spark application has published."""
    arguments = ["--run", run]
    for name, value in (given | {"rules": settings_file}).items():
        arguments += [] if value is None else [f"--{name.replace('_', '-')}", str(value)]
    for code in codes:
        arguments += ["--rule", code]
    return str(run_spark_app("reconcile", master, arguments)["findings"])
