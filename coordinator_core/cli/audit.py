"""``regroup audit``."""

from __future__ import annotations

import click

from coordinator_core.cli.lazy import LazyGroup, Place

_COMMANDS = {
    "export": Place("audit_export", "Write evidence: who committed which offset when, by which bytes of the log."),
    "verify": Place("audit_verify", "Check evidence: signature, files, chain, and each row against the log."),
}


@click.group("audit", cls=LazyGroup, places=_COMMANDS)
def audit_command() -> None:
    """Evidence for auditors: what was committed by whom, in files that anyone can check."""
