"""``regroup reconcile``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import click

from coordinator_core.cli.options import (
    Engine,
    F,
    Format,
    ReplayOptions,
    engine_options,
    format_option,
    note,
    snapshot_options,
    together,
    topics_option,
    write_json,
    write_line,
    write_lines,
)
from coordinator_core.cli.signing import Signing, sign_key_option
from coordinator_core.cli.source import as_of_capture, as_run, found_beside
from coordinator_core.cli.spark_app import run_spark_app
from coordinator_core.errors import ExitCode, UsageError
from coordinator_core.process.allocator import keep_freed_memory
from coordinator_core.reports.findings import finding_objects, findings_csv, reconciliation_text
from coordinator_core.rules.beside import FOUND_LOG_BYTES, walked_over
from coordinator_core.rules.evaluate import Reconciliation, evaluate
from coordinator_core.rules.facts import Facts
from coordinator_core.rules.figures_publish import figure_files
from coordinator_core.rules.inputs import Inputs, app_arguments
from coordinator_core.rules.model import Severity
from coordinator_core.rules.previous import previous_run
from coordinator_core.rules.publish import FINDINGS_FILE, publish_findings, read_reconciliation, summary_of
from coordinator_core.runs.place import RECONCILIATION, is_one_run
from coordinator_core.runs.read import open_run

NEVER = "never"


def reconcile_options(*, fail_on: str) -> Callable[[F], F]:
    """Options of every command that evaluates rules; pass their values on to :func:`given_and_found`.

    ``fail_on`` is the default of ``--fail-on``, which goes to :func:`exit_code`.
    """
    return together(
        topics_option,
        click.option(
            "--against", metavar="RUN", help="The run before this one, to compare with. [default: the one beside RUN]"
        ),
        click.option(
            "--log",
            multiple=True,
            metavar="SNAPSHOT",
            help="The log that the run was made of, for rules about records and history; walks all of it, slowly. "
            f"[default: that of the run, up to {FOUND_LOG_BYTES >> 20} MB]",
        ),
        click.option("--no-log", is_flag=True, help="Do not walk over the log."),
        click.option(
            "--transaction-log",
            multiple=True,
            metavar="DIR",
            help="A log directory with __transaction_state-<n>, to know whose transactions are going on. "
            "[default: beside the log]",
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


@dataclass(frozen=True, slots=True)
class Given:
    """Inputs of rules besides the run: named by options, or found beside it."""

    topics_file: str | None
    against: str | None
    log: tuple[str, ...]
    transaction_log: tuple[str, ...]
    settings_file: Path | None
    codes: tuple[str, ...]


def given_and_found(run: str, *, no_log: bool, engine: Engine = Engine.LOCAL, **options: Any) -> Given:
    """The values of :func:`reconcile_options`; files beside the run that are not named are taken, too."""
    given = Given(**options)
    if no_log and given.log:
        raise UsageError("--log and --no-log exclude each other")
    found, opened = found_beside([run]), open_run(run)
    before = previous_run(opened)
    log = () if no_log else given.log
    if not no_log and not log:
        found = walked_over(opened, found, in_tasks=engine is not Engine.LOCAL)
        log = found.log
        for text in found.notes:
            note(f"regroup: {text}")
    return replace(
        given,
        topics_file=given.topics_file or found.topics,
        against=given.against or (None if before is None else before.path),
        log=log,
        transaction_log=given.transaction_log or found.transaction_log,
    )


def reconciled(run: str, given: Given) -> tuple[Facts, Reconciliation]:
    """The run with the inputs given, and the findings about it."""
    inputs = Inputs.read(
        run,
        topics=given.topics_file,
        against=given.against,
        log=given.log,
        transaction_log=given.transaction_log,
        settings_file=given.settings_file,
        codes=given.codes,
    )
    facts = inputs.facts()
    return facts, evaluate(facts, inputs.settings, codes=inputs.codes)


def exit_code(found: Reconciliation, fail_on: str) -> int:
    """1 when a finding that counts reaches the severity ``fail_on``, else 0."""
    worst = found.worst
    failed = fail_on != NEVER and worst is not None and worst >= Severity.of(fail_on)
    return ExitCode.FINDINGS if failed else ExitCode.CLEAN


@click.command("reconcile")
@click.argument("paths", nargs=-1, required=True, metavar="SNAPSHOT…|RUN")
@reconcile_options(fail_on=Severity.WARNING.label)
@click.option("--publish", is_flag=True, help="Write the findings as a table beside the run.")
@sign_key_option("what --publish writes")
@snapshot_options
@engine_options("Work in this process, or as a Spark application, which publishes the findings of a run.")
@format_option(Format.TEXT, Format.JSON, Format.JSONL, Format.CSV)
def reconcile_command(
    paths: tuple[str, ...],
    fail_on: str,
    publish: bool,
    sign_key: str | None,
    output_format: Format,
    options: ReplayOptions,
    **inputs: Any,
) -> int:
    """Findings about the groups and offsets of a RUN, or of a SNAPSHOT, with evidence and remedies.

    Topics, transaction log, log and the run before are found where they lie beside it; options win.
    """
    is_snapshot = not is_one_run(paths)
    if publish and is_snapshot:
        raise UsageError("--publish writes beside a run: make one of the snapshot first (regroup replay)")
    if sign_key is not None and (is_snapshot or not (publish or options.engine is Engine.SPARK)):
        raise UsageError("--sign-key signs files: ask for --publish")
    signing = Signing(sign_key)
    keep_freed_memory()
    directory: str | None = None
    with as_run(paths, as_of_capture(paths, options)) as run:
        given = given_and_found(run, engine=options.engine, **inputs)
        if options.engine is Engine.SPARK:
            directory = _publish_with_spark(run, options.master, given)
            summary, found = read_reconciliation(directory)
        else:
            facts, found = reconciled(run, given)
            summary = summary_of(facts, found)
            directory = publish_findings(facts, found) if publish else None
    if is_snapshot:
        summary["run"]["path"] = directory = None
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
            write_lines(reconciliation_text(summary, found.findings))
    if directory is not None:
        signing.files(directory, (FINDINGS_FILE, RECONCILIATION, *figure_files(directory)))
        note(f"regroup: findings are in {directory}")
    return exit_code(found, fail_on)


def _publish_with_spark(run: str, master: str, given: Given) -> str:
    """The directory of the findings that a Spark application has published."""
    arguments = ["--run", run, *app_arguments(asdict(given))]
    return str(run_spark_app("reconcile", master, arguments)["findings"])
