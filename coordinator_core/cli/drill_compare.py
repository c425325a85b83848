"""``regroup drill compare``."""

from __future__ import annotations

import click

from coordinator_core import storage
from coordinator_core.cli.drill_observe import read_prediction
from coordinator_core.cli.options import ExistingFile, Format, format_option, note, write_json, write_line
from coordinator_core.cli.outputs import refuse_read
from coordinator_core.drill.compare import Verdict, compare
from coordinator_core.drill.events import COMPARED
from coordinator_core.drill.journal import Event, read_journal
from coordinator_core.drill.model import Prediction
from coordinator_core.drill.observed import observed
from coordinator_core.errors import ExitCode, UsageError
from coordinator_core.investigate.words import moment
from coordinator_core.reports.drill_report import JSON, PAGE, comparison_text, drill_report, write_drill_report

_CODES = {
    Verdict.AS_PREDICTED: ExitCode.CLEAN,
    Verdict.MISSES: ExitCode.FINDINGS,
    Verdict.INCOMPLETE: ExitCode.APPLY_FAILED,
}


def _check_scenario(said: Prediction, begin: Event, journal: str) -> None:
    """Raises ``UsageError`` for a drill of another scenario; says so of another prediction of the same one."""
    scenario, predicted_at_ms = str(said.scenario), said.predicted_at_ms
    if begin.get("scenario", scenario) != scenario:
        raise UsageError(f"{journal} is of the drill {begin['scenario']}, the prediction of {scenario}")
    if begin.get("predicted_at_ms", predicted_at_ms) != predicted_at_ms:
        moments = f"{moment(begin['predicted_at_ms'])}, this is one of {moment(predicted_at_ms)}"
        note(f"regroup: warning: the drill began with a prediction of {moments}")


@click.command("compare")
@click.argument("prediction", metavar="PREDICTION", type=ExistingFile())
@click.argument("journal", metavar="JOURNAL", type=ExistingFile())
@click.option("--output", metavar="DIR", help="Write drill.html and drill.json into this directory.")
@format_option(Format.TEXT, Format.JSON)
def compare_command(prediction: str, journal: str, output: str | None, output_format: Format) -> int:
    """Compare a PREDICTION with a drill's JOURNAL, misses first.

    Exit code 1: there are misses. 4: the drill was not done as a whole, or the cluster is not recovered.
    """
    if output is not None:
        for name in (PAGE, JSON):
            refuse_read(storage.join(output, name), [prediction, journal])
    said = read_prediction(prediction)
    events = read_journal(journal, shapes=COMPARED)
    said.check_cluster(events[0]["cluster_id"], journal)
    _check_scenario(said, events[0], journal)
    seen = observed(events)
    comparison = compare(said, seen)
    document = drill_report(said, events, seen, comparison)
    if output is not None:
        note(f"regroup: the report is {write_drill_report(output, document)}")
    if output_format is Format.JSON:
        write_json(document)
    else:
        write_line(comparison_text(document))
    return ExitCode.APPLY_FAILED if seen.restored is False else _CODES[comparison.verdict]
