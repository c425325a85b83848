"""A notifier as people have them: what it says is a template, where it goes an argument."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from airflow.sdk import BaseNotifier, Context


class Teller(BaseNotifier):
    """Writes a line to a file."""

    template_fields: Sequence[str] = ("subject",)

    def __init__(self, path: str, subject: str) -> None:
        super().__init__()
        self.path = path
        self.subject = subject

    def notify(self, context: Context) -> None:
        how = "success" if context["dag_run"].state == "success" else "failure"
        with Path(self.path).open("a") as file:
            print(f"{how} {self.subject}: {context['params']['cluster']}", file=file)
