"""``regroup audit``, ``regroup drill`` and ``regroup restore``: groups of commands."""

from __future__ import annotations

import click

from coordinator_core.cli.lazy import LazyGroup, Place

_AUDIT = {
    "export": Place("audit_export", "Write evidence: who committed which offset when, by which bytes of the log."),
    "verify": Place("audit_verify", "Check evidence: signature, files, chain, and each row against the log."),
}
_DRILL = {
    "predict": Place(
        "drill_predict", "Predict the effects of losing brokers, or of a rolling restart, on every group."
    ),
    "compare": Place("drill_compare", "Compare a prediction with an observed drill."),
    "observe": Place("drill_observe", "Do it on a real cluster, with probes and recovery."),
    "recover": Place("drill_observe", "Run the recover command of a drill that was cut off."),
}
_RESTORE = {
    "plan": Place("restore_plan", "Plan the offsets to write, and the consequences; write nothing."),
    "apply": Place("restore_apply", "Carry out a plan, or go on with it."),
    "verify": Place("restore_apply", "Prove from the log that exactly the plan was written."),
    "rollback": Place("restore_apply", "Plan the way back of an apply."),
}


@click.group("audit", cls=LazyGroup, places=_AUDIT)
def audit_command() -> None:
    """Evidence for auditors: what was committed by whom, in files that anyone can check."""


@click.group("drill", cls=LazyGroup, places=_DRILL)
def drill_command() -> None:
    """Failover drills: say what losing a broker does to every group, do it, compare."""


@click.group("restore", cls=LazyGroup, places=_RESTORE)
def restore_command() -> None:
    """Committed offsets put back: planned, applied, proved, undone."""
