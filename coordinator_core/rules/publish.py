"""Findings as a table beside the run that they are about.

``<output>/<cluster>/<window>/_findings/<run id>/<id>/findings.parquet``, then ``reconciliation.json``, which names the
inputs.  The run itself is never written into.  The id is a hash of everything that decides the findings (the run's
state, the inputs, the settings, the version) and of the findings, since a log may have changed.  The same question has
one place, and asking it again changes nothing.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import pyarrow.parquet as pq

from coordinator_core import __version__, files, storage
from coordinator_core.errors import UsageError
from coordinator_core.rules.catalogue import RULES
from coordinator_core.rules.evaluate import Reconciliation
from coordinator_core.rules.facts import Facts
from coordinator_core.rules.findings import FINDINGS
from coordinator_core.rules.needs import Need
from coordinator_core.rules.settings import settings_from
from coordinator_core.rules.transaction_log import TransactionLog
from coordinator_core.runs.place import FINDINGS_DIRECTORY, RECONCILIATION, beside
from coordinator_core.runs.read import Run

FINDINGS_FILE = "findings.parquet"


def scope_of(run: Run) -> dict[str, Any]:
    """A run as documents name it: its path, place, time and state hash."""
    names = ("cluster", "window", "run_id", "now_ms", "profile", "complete", "state_hash")
    return {"path": run.path, **{name: run.manifest[name] for name in names}}


def inputs_of(facts: Facts) -> dict[str, Any]:
    """Scope of a reconciliation, as ``reconciliation.json`` and reports state it."""
    topics = facts.topics
    return {
        "run": scope_of(facts.run),
        "previous": None if facts.previous is None else scope_of(facts.previous.run),
        "log": {"path": ", ".join(facts.extra[Need.LOG])} if Need.LOG in facts.extra else None,
        "transaction_log": _transactions(facts.extra.get(Need.TRANSACTION_LOG)),
        "topics": None
        if topics is None
        else {"path": topics.path, "captured_at_ms": topics.captured_at_ms, "sha256": topics.sha256},
    }


def _transactions(log: TransactionLog | None) -> dict[str, Any] | None:
    return None if log is None else {"path": log.path, "going": sorted(log.going)}


def summary_of(facts: Facts, found: Reconciliation) -> dict[str, Any]:
    """The verdict and how it came about, without the findings themselves."""
    worst = found.worst
    return {
        "verdict": "clean" if worst is None else worst.label,
        "counts": found.counts,
        "muted": found.muted,
        **inputs_of(facts),
        "evaluated": list(found.evaluated),
        "not_evaluated": dict(found.not_evaluated),
        "not_applicable": dict(found.not_applicable),
        "settings": found.settings.as_dict(),
        "mutes_over": [mute.as_dict() for mute in found.settings.mutes if mute.is_over(facts.now_ms)],
        "regroup_version": __version__,
    }


def publish_findings(facts: Facts, found: Reconciliation) -> str:
    """Write the findings beside the run, unless they are there; returns their directory."""
    summary = summary_of(facts, found)
    buffer = io.BytesIO()
    pq.write_table(found.findings.combine_chunks(), buffer, compression="zstd")
    directory = beside(facts.run.path, FINDINGS_DIRECTORY, _id(summary, buffer.getvalue()))
    target = storage.join(directory, RECONCILIATION)
    if not storage.exists(target):
        storage.write_atomic(storage.join(directory, FINDINGS_FILE), buffer.getvalue())
        files.write_json(target, summary)
    return directory


def captured_ms(run: Run) -> int | None:
    """Time of capture (epoch ms) of the newest topics in a published reconciliation of ``run``; ``None`` without one.

    Reconciliations that this version cannot read are passed over.
    """
    findings = beside(run.path, FINDINGS_DIRECTORY)
    if storage.stat(findings) is None:
        return None
    found = []
    for directory in storage.list_directory(findings):
        path = storage.join(directory.path, RECONCILIATION)
        with suppress(ValueError, KeyError, TypeError):
            if storage.exists(path) and (topics := files.read_json(path)["topics"]) is not None:
                found.append(topics["captured_at_ms"])
    return max((one for one in found if isinstance(one, int)), default=None)


def read_reconciliation(directory: str) -> tuple[dict[str, Any], Reconciliation]:
    """Summary that :func:`publish_findings` wrote into ``directory``, and its subject.

    Raises :class:`UsageError` when it is nothing of the kind.
    """
    path = storage.join(directory, RECONCILIATION)
    try:
        summary = files.read_json(path)
        system, inner = storage.filesystem(storage.join(directory, FINDINGS_FILE))
        with system.open_input_file(inner) as source:
            findings = pq.ParquetFile(source).read().select(FINDINGS.arrow.names).cast(FINDINGS.arrow)
        found = Reconciliation(
            findings,
            tuple(summary["evaluated"]),
            summary["not_evaluated"],
            summary["not_applicable"],
            settings_from(summary["settings"], RULES),
        )
    except (OSError, KeyError, TypeError, ValueError) as error:
        storage.raise_refused(path, error)
        raise UsageError(f"{path} cannot be read: {type(error).__name__}: {error}") from None
    return summary, found


def require_same_runs(facts: Facts, summary: Mapping[str, Any]) -> None:
    """:class:`UsageError` unless the reconciliation with this summary is one of this run and run before."""
    given = inputs_of(facts)
    for name in ("run", "previous"):
        if _decisive(given[name]) != _decisive(summary[name]):
            was, now = ("none" if entry is None else entry["path"] for entry in (summary[name], given[name]))
            raise UsageError(f"the findings are of other runs: {name} was {was} and is {now}; evaluate the rules again")


def _decisive(entry: Any) -> Any:
    """What an entry of a summary says of an input; its path decides nothing."""
    return {key: value for key, value in entry.items() if key != "path"} if isinstance(entry, dict) else entry


def _id(summary: Mapping[str, Any], findings: bytes) -> str:
    """Digest of everything that decides the findings, and of the findings."""
    decisive = {name: _decisive(entry) for name, entry in summary.items()}
    decisive["catalogue"] = {code: rule.message for code, rule in RULES.items()}
    decisive["findings"] = hashlib.sha256(findings).hexdigest()
    return hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()[:16]
