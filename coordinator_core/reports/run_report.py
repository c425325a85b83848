"""The report of a run as one document: the source of HTML page, JSON, Markdown and metrics.

The order is that of the page: verdict and scope, what changed, findings, and then what an operator asks next.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coordinator_core import __version__
from coordinator_core.durations import DAY_MS, utc_text
from coordinator_core.groups.model import TransactionOutcome
from coordinator_core.ingest.unknown import partial_text
from coordinator_core.lifecycle.expiry import plan_expiry
from coordinator_core.lifecycle.plan import TombstoneKind
from coordinator_core.reports.commit_rate import commit_rate
from coordinator_core.reports.findings import finding_objects, rule_object
from coordinator_core.rules.catalogue import RULES
from coordinator_core.rules.columns import coded
from coordinator_core.rules.differences import IDENTICAL, only_in
from coordinator_core.rules.evaluate import Reconciliation
from coordinator_core.rules.facts import Facts
from coordinator_core.rules.figures import DAYS, EXAMPLES, Changes, Figures, changes_in, figures_of
from coordinator_core.rules.lag import Lag
from coordinator_core.rules.model import Severity
from coordinator_core.rules.publish import summary_of

MAX_FORECAST_OFFSETS = 200_000
"""Beyond so many committed offsets the calendar is left to ``regroup expire``."""

LOAD_BYTES_PER_SECOND = 75_000_000
"""Rate at which a 4.3.1 broker on two cores loads an offsets partition (docs/performance.md)."""

Document = dict[str, Any]


def run_report(
    facts: Facts,
    found: Reconciliation,
    *,
    load_bytes_per_second: float | None = None,
    expectations: Document | None = None,
    figures: Figures | None = None,
    summary: Mapping[str, Any] | None = None,
) -> tuple[Document, Lag | None]:
    """The document, and the lag it was made of. ``figures`` and ``summary`` (``rules.publish.summary_of``) are those of
    the facts and of what was found, where they are known.

    ``load_bytes_per_second`` is the rate at which the brokers load offsets partitions; when it is not known,
    ``LOAD_BYTES_PER_SECOND``.  ``expectations`` is what the quality gate said of the run, in numbers.
    """
    figures = figures or figures_of(facts)
    lag = figures.lag
    transactions = _open_transactions(facts)
    return {
        **(summary or summary_of(facts, found)),
        "scope": _scope(facts),
        "changes": _changes(facts, figures.changes),
        "rules": _rules(found.findings),
        "lag": None if lag is None else _lag(lag),
        "expiry": _expiry(facts, found),
        "groups": _groups(facts),
        "load": {
            "bytes_per_second": load_bytes_per_second or LOAD_BYTES_PER_SECOND,
            "is_assumed": load_bytes_per_second is None,
        },
        "partitions": _partitions(facts, load_bytes_per_second or LOAD_BYTES_PER_SECOND),
        "commit_rate": commit_rate(facts),
        "activity": _activity(facts, figures),
        "open_transactions": transactions[:EXAMPLES],
        "open_transactions_left_out": max(len(transactions) - EXAMPLES, 0),
        "expectations": expectations,
        "tool": {"name": "regroup", "version": __version__},
    }, lag


def _scope(facts: Facts) -> Document:
    manifest = facts.run.manifest
    return {
        **{name: manifest[name] for name in ("cluster", "window", "run_id")},
        "now_ms": facts.now_ms,
        **{name: manifest[name] for name in ("profile", "profile_inferred", "complete")},
        "damage": len(manifest["damage"]),
        "partial": partial_text(manifest["damage"]),
        "offsets_partitions": len(manifest["cut"]),
        "offsets_topic_num_partitions": manifest["offsets_topic_num_partitions"],
        "records": int(facts.table("segments").numbers("records").sum()),
        "bytes": sum(entry["bytes"] for entry in manifest["inputs"]),
        "segments": len(manifest["inputs"]),
        "groups": len(facts.groups),
        "members": len(facts.members),
        "committed_offsets": facts.run.rows("offsets"),
        "pending_offsets": len(facts.table("pending_offsets")),
        "state_hash": manifest["state_hash"],
    }


def _changes(facts: Facts, changes: Changes | None) -> Document | None:
    """Changes since the previous run; ``None`` without one."""
    if facts.previous is None or changes is None:
        return None
    counts = changes_in(facts, changes)
    changed = sum(number for change, number in counts["groups"].items() if change != IDENTICAL)
    return {
        "previous_run_id": facts.previous.run.manifest["run_id"],
        "identical": facts.previous.run.state_hash == facts.run.state_hash,
        "counts": counts,
        "only_before": only_in(facts.previous.run, facts.run),
        "only_after": only_in(facts.run, facts.previous.run),
        "groups": changes.groups,
        "groups_left_out": changed - len(changes.groups),
    }


def _rules(findings: pa.Table) -> list[Document]:
    """The rules that fired, the worst first, each with its first findings: muted ones after those that count."""
    fired = []
    for code in findings["rule"].unique().to_pylist():
        rows = findings.filter(pc.equal(findings["rule"], code))
        is_muted = pc.is_valid(rows["muted"])
        rows = pa.concat_tables([rows.filter(pc.invert(is_muted)), rows.filter(is_muted)])
        fired.append(
            {
                **rule_object(RULES[code]),
                "severity": rows["severity"][0].as_py(),
                "findings": rows.num_rows,
                "muted": rows.num_rows - rows["muted"].null_count,
                "rows": pc.sum(rows["rows"]).as_py(),
                "examples": list(finding_objects(rows.slice(0, EXAMPLES))),
                "left_out": max(rows.num_rows - EXAMPLES, 0),
            }
        )
    return sorted(fired, key=lambda rule: (-Severity.of(rule["severity"]), rule["code"]))


def _lag(lag: Lag) -> Document:
    statuses = Counter(lag.groups["status"].to_pylist())
    return {
        "groups": lag.groups.num_rows,
        "partitions": lag.count,
        "total": lag.total,
        "statuses": dict(sorted(statuses.items())),
        "largest": lag.groups.slice(0, EXAMPLES).to_pylist(),
        "left_out": max(lag.groups.num_rows - EXAMPLES, 0),
    }


def _expiry(facts: Facts, found: Reconciliation) -> Document:
    """Offsets and groups that expire, by day, if nothing else happens."""
    retention = int(found.settings.limits(facts.profile)["offsets_retention_ms"])
    document: Document = {
        "offsets_retention_ms": retention,
        "days": None,
        "soonest": [],
        "later": 0,
        "failing_sweeps": [],
    }
    if facts.run.rows("offsets") > MAX_FORECAST_OFFSETS:
        return document
    due: list[tuple[int, str, str]] = []
    for state in facts.run.states(whole_metadata=False):
        plan = plan_expiry(state, facts.profile, now_ms=facts.now_ms, offsets_retention_ms=retention)
        if plan.failure is not None:
            failing = {"offsets_partition": plan.offsets_partition, "detail": plan.failure}
            document["failing_sweeps"].append(failing)
        due += [
            (max(one.expires_at_ms, facts.now_ms), one.kind.value, one.group_id)
            for one in (*plan.tombstones, *plan.forecast)
            if one.kind in (TombstoneKind.OFFSET, TombstoneKind.GROUP)
        ]
    # Days of the calendar, as times in the table have them: the first is what is left of today.
    today = facts.now_ms // DAY_MS
    days = Counter(at // DAY_MS - today for at, kind, _ in due if kind == TombstoneKind.OFFSET)
    document["days"] = [{"day": _day(facts.now_ms + day * DAY_MS), "offsets": days[day]} for day in range(DAYS)]
    document["later"] = sum(number for day, number in days.items() if day >= DAYS)
    groups = sorted((at, group) for at, kind, group in due if kind == TombstoneKind.GROUP)
    document["soonest"] = [{"group_id": group, "expires_at_ms": at} for at, group in groups[:EXAMPLES]]
    document["groups"] = len(groups)
    return document


def _day(time_ms: int) -> str:
    return utc_text(time_ms, "%Y-%m-%d") or str(time_ms)


def _groups(facts: Facts) -> Document:
    """The groups with the most bytes in the log, and how much of them is dead."""
    stats, committed, pending = facts.table("group_stats"), facts.committed_by_group, facts.table("pending_offsets")
    (stats_group, live_group, pending_group), names = coded(
        stats.array("group_id"), committed["group_id"].combine_chunks(), pending.array("group_id")
    )
    count = len(names)

    def total(column: str, where: Any = slice(None)) -> Any:
        return np.bincount(stats_group[where], stats.numbers(column)[where].astype(np.float64), minlength=count).astype(
            np.int64
        )

    size, records, tombstones = total("size_bytes"), total("records"), total("tombstones")
    of_offsets = stats.numbers("key_type") <= 1
    commits, commit_bytes = total("records", of_offsets), total("size_bytes", of_offsets)
    live = np.bincount(live_group, committed["rows"].to_numpy(), minlength=count).astype(np.int64)
    # Records of one kind are about as long as each other, so their number gives the share that is dead.
    kept = np.minimum(live + np.bincount(pending_group, minlength=count), commits)
    dead = commit_bytes - commit_bytes * kept // np.maximum(commits, 1)
    heaviest = np.lexsort((np.arange(count), -size))[:EXAMPLES]
    texts = names.take(pa.array(heaviest)).to_pylist()
    columns = {"bytes": size, "records": records, "tombstones": tombstones, "committed_offsets": live}
    columns["dead_bytes"] = dead
    return {
        "bytes": int(size.sum()),
        "dead_bytes": int(dead.sum()),
        "heaviest": [
            {"group_id": text, **{name: int(values[at]) for name, values in columns.items()}}
            for text, at in zip(texts, heaviest.tolist(), strict=True)
        ],
        "left_out": max(count - EXAMPLES, 0),
    }


def _partitions(facts: Facts, load_bytes_per_second: float) -> list[Document]:
    """Bytes and records that a coordinator reads to load each offsets partition, and how long that takes."""
    segments = facts.table("segments")
    partition = segments.numbers("offsets_partition")
    found = []
    for number in np.unique(partition).tolist():
        rows = partition == number
        size = int(segments.numbers("size_bytes")[rows].sum())
        found.append(
            {
                "offsets_partition": number,
                "bytes": size,
                "records": int(segments.numbers("records")[rows].sum()),
                "load_seconds": round(size / load_bytes_per_second, 3),
            }
        )
    return found


def _activity(facts: Facts, figures: Figures) -> list[Document]:
    """Last commits of groups: committed offsets by day of their commit, the newest days."""
    return [
        {
            "day": _day(facts.now_ms - day * DAY_MS),
            "and_earlier": day == DAYS - 1,
            "committed_offsets": int(figures.ages[day]),
        }
        for day in reversed(range(DAYS))
    ]


def _open_transactions(facts: Facts) -> list[Document]:
    transactions = facts.table("transactions")
    rows: Sequence[Document] = transactions.rows(
        transactions.equals("outcome", TransactionOutcome.OPEN),
        *("producer_id", "producer_epoch", "last_record_offset", "keys", "groups", "timestamp_ms", "age_ms"),
    ).to_pylist()
    return sorted(rows, key=lambda row: (-(row["age_ms"] or 0), row["offsets_partition"], row["record_offset"]))
