"""A restore plan in each of its forms."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable

from coordinator_core.reports.restore import plan_text
from coordinator_core.restore.model import Plan, kafka_csv, plan_document


def plan_forms(plan: Plan) -> dict[str, Callable[[], Iterable[str]]]:
    """Functions that make the lines of each form, by its name."""
    document = plan_document(plan)
    digest = str(document["digest"])

    def html() -> list[str]:
        from coordinator_core.reports.restore_page import restore_page

        return [restore_page(plan, digest).rstrip("\n")]

    return {
        "text": lambda: plan_text(plan, digest),
        "json": lambda: [json.dumps(document, ensure_ascii=False)],
        "csv": lambda: kafka_csv(plan).splitlines(),
        "html": html,
    }
