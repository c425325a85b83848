"""``regroup replay``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from coordinator_core.cli.options import (
    Engine,
    Format,
    ReplayOptions,
    format_option,
    note,
    note_inferred,
    replay_options,
    write_result,
)
from coordinator_core.cli.publish import publish_locally
from coordinator_core.cli.signing import Signing, sign_key_option
from coordinator_core.durations import numbered
from coordinator_core.errors import ExitCode
from coordinator_core.process.allocator import keep_freed_memory
from coordinator_core.runs.place import RunPlace, default_window, new_run_id
from coordinator_core.untrusted import visible


@click.command("replay")
@click.argument("paths", nargs=-1, required=True, metavar="SNAPSHOT…")
@click.option("--output", required=True, metavar="DIR", help="Where runs are published (a path or a URI).")
@click.option("--cluster", required=True, metavar="NAME", help="Name of the cluster the log comes from.")
@click.option("--window", metavar="KEY", help="Key of the scheduling window (default: the UTC date of now).")
@click.option("--run-id", metavar="ID", help="Id of the run (default: a new one).")
@sign_key_option("the manifest")
@replay_options
@format_option(Format.TEXT, Format.JSON)
def replay_command(
    paths: tuple[str, ...],
    output: str,
    cluster: str,
    window: str | None,
    run_id: str | None,
    sign_key: str | None,
    output_format: Format,
    options: ReplayOptions,
) -> int:
    """Replay SNAPSHOT and publish a run: tables as Parquet, then the manifest. Prints its summary."""
    place = RunPlace(output, cluster, window or default_window(options.now_ms), run_id or new_run_id())
    signing = Signing(sign_key)
    if options.engine is Engine.SPARK:
        from coordinator_core.cli.spark_app import publish_with_spark

        # A run is signed before it is the latest.
        result = publish_with_spark(paths, place, options, latest=sign_key is None)
        if sign_key is not None:
            from coordinator_core.runs.publish import promote
            from coordinator_core.runs.read import open_run

            signing.run(place.path)
            result["latest"] = promote(place, open_run(place.path).manifest)
    else:
        keep_freed_memory()
        manifest = publish_locally(paths, place, options)
        signing.run(place.path)
        # Loaded here, so that the first segment is folded sooner.
        from coordinator_core.runs.manifest import summary
        from coordinator_core.runs.publish import promote

        result = summary(manifest, path=place.path, latest=promote(place, manifest))
    note_inferred(options, result["profile"], is_told=result["rows"]["record_counts"] > 0)
    if result["damage"]:
        from coordinator_core.cli.source import warn_about_told
        from coordinator_core.runs.read import open_run

        warn_about_told(open_run(place.path).manifest, options.on_damage)
    write_result(output_format, result, _text(result))
    if result["load_failures"]:
        records = numbered(result["load_failures"], "record")
        note(f"regroup: warning: {records} at which {result['profile']} stops loading")
        return ExitCode.FINDINGS
    return ExitCode.CLEAN


def _text(result: dict[str, Any]) -> Iterator[str]:
    """The summary, a line a field; nested ones on one line, without what nobody has looked for."""
    for name, value in result.items():
        if isinstance(value, dict):
            value = ", ".join(f"{key} {item}" for key, item in value.items() if item is not None) or "-"
        yield visible(f"{name.replace('_', ' ')}: {value}")
