"""The report of a drill: one document, and its forms: a page, JSON, text."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

from coordinator_core import __version__, storage
from coordinator_core.drill.compare import ComparedClaim, Comparison, Match, Verdict
from coordinator_core.drill.journal import Event, of_kind
from coordinator_core.drill.model import Prediction
from coordinator_core.drill.observed import Observed, Service
from coordinator_core.drill.verdict import worst
from coordinator_core.jsontext import fields_of, to_json
from coordinator_core.reports.drill_page import drill_page
from coordinator_core.untrusted import visible

Document = dict[str, Any]

PAGE, JSON = "drill.html", "drill.json"

TEXT_ROWS = 50
"""Misses that the text shows; rows left out are counted."""


def drill_report(prediction: Prediction, events: Sequence[Event], seen: Observed, comparison: Comparison) -> Document:
    """The report as a document, from which page, JSON and text are made."""
    begin = events[0]
    steady = of_kind(events, "steady_state")
    hypothesis = of_kind(events, "hypothesis")
    fault = of_kind(events, "method", stage="ended")
    rollback = of_kind(events, "rollback", stage="ended")
    restored = of_kind(events, "restored")
    return {
        "verdict": comparison.verdict.value,
        "headline": _headline(comparison, seen),
        "outcome": seen.outcome,
        "reason": seen.reason,
        "recovered": seen.restored,
        "scenario": str(prediction.scenario),
        "cluster": prediction.cluster,
        "cluster_id": begin["cluster_id"],
        "bootstrap_server": begin["bootstrap_server"],
        "drill_id": begin["drill_id"],
        "times": {
            "predicted_at_ms": prediction.predicted_at_ms,
            **fields_of(seen, "begins_ms", "fault_at_ms", "rollback_at_ms", "restored_at_ms", "ends_ms"),
        },
        "hypothesis": {
            "text": hypothesis[0]["text"] if hypothesis else None,
            "steady": steady[-1]["steady"] if steady else None,
            "problems": steady[-1]["problems"] if steady else [],
        },
        "method": {
            "command": begin["fault_command"],
            "pids": begin["pids"],
            "exit_code": fault[-1]["exit_code"] if fault else None,
            "output": fault[-1]["output"] if fault else None,
        },
        "rollback": {
            "command": begin["recover_command"],
            "by": seen.recovered_by,
            "exit_code": rollback[-1]["exit_code"] if rollback else None,
            "output": rollback[-1]["output"] if rollback else None,
            "reason": restored[-1]["reason"] if restored else None,
        },
        "objectives": _objectives(prediction, seen),
        "counts": {match.value: comparison.count(match) for match in Match},
        "claims": _claims(comparison.rows),
        "rows": [to_json(row) for row in comparison.rows],
        "partitions": _partitions(prediction, seen),
        "groups_not_predicted": list(comparison.groups_not_predicted),
        "backwards": of_kind(events, "backwards"),
        "behind": of_kind(events, "behind"),
        "trouble": [event["text"] for event in of_kind(events, "trouble")],
        "tool": {"name": "regroup", "version": __version__},
    }


def _headline(comparison: Comparison, seen: Observed) -> str:
    """The first thing to be read."""
    if comparison.verdict is Verdict.AS_PREDICTED:
        return "As predicted"
    if comparison.verdict is Verdict.MISSES:
        return f"{comparison.count(Match.MISS)} of {len(comparison.rows)} claims missed"
    if seen.fault_at_ms is None:
        why = {"not_steady": "the cluster was not in the predicted state", None: "it was killed before"}
        return f"Nothing was done: {why.get(seen.outcome, 'it could not begin')}"
    how = {"interrupted": "Interrupted", "failed": "Failed", "observed": "Ended too soon"}
    ended = how.get(seen.outcome or "killed", "Killed half-way")
    after = {True: "recovered", False: "not recovered", None: "not recovered: run regroup drill recover"}
    return f"{ended}, {after[seen.restored]}"


def _objectives(prediction: Prediction, seen: Observed) -> Document:
    rto = prediction.objectives.rto_ms
    longest = worst([one.outage_ms for one in seen.partitions]) if seen.complete and seen.partitions else None
    met = None
    if longest is not None and rto is not None:
        # Between the two lies the pause between probes.
        met = True if longest.high is not None and longest.high <= rto else False if longest.low > rto else None
    return {
        "rto_ms": rto,
        "rpo_ms": prediction.objectives.rpo_ms,
        "predicted_verdict": prediction.verdict.value,
        "predicted_worst_outage_ms": to_json(prediction.totals.worst_outage_ms),
        "observed_worst_outage_ms": to_json(longest),
        "rto_met": met,
    }


def _claims(rows: Sequence[ComparedClaim]) -> list[Document]:
    """Numbers of held, missed and open claims, by kind."""
    counts: dict[tuple[str, str], Counter[str]] = {}
    for row in rows:
        counts.setdefault((row.of, row.what), Counter())[row.match.value] += 1
    return [
        {"of": of, "what": what, **{match.value: found[match.value] for match in Match}}
        for (of, what), found in sorted(counts.items(), key=lambda one: (one[0][0] == "group", one[0][1]))
    ]


def _partitions(prediction: Prediction, seen: Observed) -> list[Document]:
    expected = {one.offsets_partition: one.available_ms for one in prediction.partitions if one.available_ms}
    return [
        {
            **fields_of(one, "offsets_partition", "leader_before", "leader_after"),
            "load_ms": list(one.load_ms),
            "outage_ms": to_json(one.outage_ms),
            "predicted_available_ms": to_json(expected.get(one.offsets_partition)),
            "slowest_commit_ms": one.slowest_commit_ms,
            "lost_records": one.lost_records,
            "stretches": [
                {"service": each.service.value, "begins_ms": each.begins_ms, "ends_ms": each.ends_ms}
                for each in one.stretches
            ],
            "disturbed": any(each.service is not Service.SERVED for each in one.stretches),
        }
        for one in seen.partitions
    ]


def comparison_text(document: Document) -> str:
    """The report for a terminal."""
    counts = document["counts"]
    lines = [
        f"drill:        {document['headline']}",
        f"scenario:     {document['scenario']}",
        f"claims:       {counts['as_predicted']} as predicted, {counts['miss']} missed, "
        f"{counts['not_compared']} not compared",
    ]
    if document["reason"]:
        lines.append(f"reason:       {visible(document['reason'])}")
    if document["recovered"] is not None:
        state = "as it was" if document["recovered"] else "NOT as it was"
        lines.append(f"recovery:     by {document['rollback']['by']}; the cluster is {state}")
    lines += [
        f"              {claim['of']} {claim['what']}: {claim['as_predicted']} as predicted, "
        f"{claim['miss']} missed, {claim['not_compared']} not compared"
        for claim in document["claims"]
    ]
    misses = [row for row in document["rows"] if row["match"] == Match.MISS.value]
    for row in misses[:TEXT_ROWS]:
        said = f"predicted {shown(row['predicted'])}, observed {shown(row['observed'])}"
        lines.append(f"miss:         {row['of']} {visible(str(row['name']))}: {row['what']}: {said}")
    if len(misses) > TEXT_ROWS:
        lines.append(f"and {len(misses) - TEXT_ROWS} more misses; --format json has them all")
    return "\n".join(map(visible, lines))


def shown(value: Any) -> str:
    """``value`` as JSON on one line."""
    return visible(json.dumps(value, ensure_ascii=False))


def write_drill_report(directory: str, document: Document) -> str:
    """Writes the page and the JSON into ``directory``, which is made when missing; path of the page."""
    text = json.dumps(document, ensure_ascii=False, indent=1) + "\n"
    storage.write_text(storage.join(directory, JSON), text)
    page = storage.join(directory, PAGE)
    storage.write_atomic(page, drill_page(document).encode("utf-8", "replace"))
    return page
