"""``regroup simulate``."""

from __future__ import annotations

from pathlib import Path

import click

from coordinator_core.cli.options import Whole, note, write_json, write_line
from coordinator_core.coordinator.trace import add_given, differences, observed, play, read_trace
from coordinator_core.coordinator.trace.compare import TOLERANCE_MS
from coordinator_core.durations import numbered
from coordinator_core.errors import ExitCode, UsageError
from coordinator_core.untrusted import visible


@click.command("simulate")
@click.argument(
    "traces",
    nargs=-1,
    required=True,
    metavar="TRACE…",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
)
@click.option("--check", is_flag=True, help="Compare with the broker's replies and records in the trace.")
@click.option(
    "--write-given", is_flag=True, help="Write the inputs that a TRACE gives the model into its first line, once."
)
@click.option(
    "--time-tolerance-ms",
    type=Whole(min=0),
    metavar="MS",
    help=f"How far times may be apart, with --check.  [default: {TOLERANCE_MS}]",
)
def simulate_command(traces: tuple[Path, ...], check: bool, write_given: bool, time_tolerance_ms: int | None) -> int:
    """Play the requests of each TRACE through the coordinator model of its release.

    Prints the model's replies and the records it appends, as the trace has them (JSON lines). With --check
    prints the differences instead; exit code 1 when there are any. Facts that no request decides come from
    the field given of the first line; --write-given reads it off replies and records of a TRACE that has none.
    """
    if check and write_given:
        raise UsageError("--check and --write-given exclude each other")
    if time_tolerance_ms is not None and not check:
        raise UsageError("--time-tolerance-ms goes with --check")
    found = read_off = 0
    for path in traces:
        trace = read_trace(path)
        given = trace.given
        if given is None:
            given = observed(trace)
            read_off += 1
            if write_given:
                add_given(path, given)
        if write_given:
            continue
        played = play(trace, given)
        if trace.profile.requests is None:
            note(f"{path}: Kafka {trace.kafka} is not modelled: answered as by {trace.stand_in}")
        if not check:
            for line in played.lines():
                write_json(line)
            continue
        for difference in differences(trace, played, TOLERANCE_MS if time_tolerance_ms is None else time_tolerance_ms):
            found += 1
            write_line(visible(str(difference)))
    if write_given:
        note(f"field given written into {read_off} of {numbered(len(traces), 'trace')}")
    elif check:
        note(f"{numbered(len(traces), 'trace')}, {numbered(found, 'difference')}")
        if read_off:
            unchecked = numbered(read_off, "trace")
            note(f"{unchecked} without the field given: sweeps, loads, ids and orders were not checked")
    return ExitCode.FINDINGS if found else ExitCode.CLEAN
