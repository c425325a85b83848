"""``regroup register``."""

from __future__ import annotations

from dataclasses import asdict

import click

from coordinator_core.cli.options import Format, format_option, write_result
from coordinator_core.errors import ExitCode, UsageError
from coordinator_core.runs.catalogs import open_tables
from coordinator_core.runs.read import open_run
from coordinator_core.runs.registered import DEFAULT_NAMESPACE
from coordinator_core.untrusted import visible


@click.command("register")
@click.argument("path", metavar="RUN")
@click.option("--catalog", required=True, metavar="NAME", help="Catalogue, by its name for pyiceberg.")
@click.option(
    "--namespace", default=DEFAULT_NAMESPACE, show_default=True, metavar="NAME", help="Namespace of the tables."
)
@click.option(
    "--property",
    "given",
    multiple=True,
    metavar="KEY=VALUE",
    help="Property of the catalogue (repeatable). Not for credentials.",
)
@click.option(
    "--branch",
    type=click.Choice(["main", "audited"]),
    help="Branch that has the run then. Default: main. The gate of the DAGs moves audited.",
)
@click.option("--remove", is_flag=True, help="Take the run out of all branches, so that its files may go.")
@format_option(Format.TEXT, Format.JSON)
def register_command(
    path: str,
    catalog: str,
    namespace: str,
    given: tuple[str, ...],
    branch: str | None,
    remove: bool,
    output_format: Format,
) -> int:
    """Add the tables of RUN, a published run, to those of an Apache Iceberg catalogue.

    Its files stay as they are and where they are. A run takes the place of another one of its window. Registering
    again changes nothing.
    """
    if remove and branch is not None:
        raise UsageError("--remove takes the run out of all branches; leave --branch out")
    properties = dict(map(_property, given))
    run = open_run(path)
    with open_tables(catalog, namespace, properties) as tables:
        done = tables.unregister(run) if remove else tables.register(run, branch or "main")
    what = "removed from" if remove else "registered in"
    text = (
        f"{visible(path)} {what} {catalog}.{namespace}, {' and '.join(done.branches)}",
        f"tables changed: {', '.join(done.changed) or 'none'}",
    )
    write_result(output_format, {"run": path, **asdict(done)}, text)
    return ExitCode.CLEAN


def _property(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        # Not the text: who mistypes a credential must not find it in a log.
        raise UsageError("--property: expected KEY=VALUE")
    return name, value
