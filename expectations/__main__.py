"""``python -m expectations RUN``: the quality gate of one run, on the command line."""

from __future__ import annotations

import json
import os
import sys

import click

from coordinator_core.errors import ExitCode, RegroupError, WriteError, not_written
from coordinator_core.rules.model import Severity
from coordinator_core.runs.read import open_run
from coordinator_core.untrusted import visible_lines
from expectations.gate import evaluate


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.argument("run")
@click.option(
    "--findings",
    metavar="DIR",
    help="Findings of the run, by regroup reconcile --publish: each rule is an expectation, too.",
)
@click.option("--data-docs", metavar="DIR", help="Write Data Docs into this directory.")
@click.option("--format", "output_format", type=click.Choice(["text", "json"]), default="text")
@click.option(
    "--fail-on",
    type=click.Choice([severity.label for severity in sorted(Severity, reverse=True)]),
    default=Severity.WARNING.label,
    show_default=True,
    help="Lowest severity that gives exit code 1; an expectation that was not evaluated always does.",
)
def gate(run: str, findings: str | None, data_docs: str | None, output_format: str, fail_on: str) -> ExitCode:
    """Evaluate the expectations of the published run in directory RUN."""
    result = evaluate(open_run(run), findings=findings, data_docs=data_docs)
    passed = result.passed(Severity.of(fail_on))
    if output_format == "json":
        document = {"passed": passed, "fail_on": fail_on, **result.as_dict(), "data_docs": data_docs}
        click.echo(json.dumps(document, indent=2, ensure_ascii=False))
    else:
        click.echo(visible_lines(f"{'passed' if passed else 'not passed'}: {result}"))
    return ExitCode.CLEAN if passed else ExitCode.FINDINGS


def _fail(error: RegroupError) -> int:
    click.echo(f"expectations: error: {visible_lines(str(error))}", err=True)
    return error.exit_code


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    try:
        code: int = gate.main(args=arguments, prog_name="python -m expectations", standalone_mode=False)
    except click.ClickException as error:
        error.show(sys.stderr)
        return ExitCode.USAGE
    except RegroupError as error:
        return _fail(error)
    except Exception as error:
        if isinstance(error, OSError) and isinstance(failure := not_written("output", error), WriteError):
            return _fail(failure)
        if os.environ.get("REGROUP_DEBUG"):
            raise
        click.echo(f"expectations: internal error: {type(error).__name__}: {visible_lines(str(error))}", err=True)
        return ExitCode.INTERNAL
    return code


if __name__ == "__main__":
    sys.exit(main())
