"""A restore plan in each of its forms that has lines."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from coordinator_core.reports.restore import plan_text
from coordinator_core.restore.model import Plan, kafka_csv, write_plan


def plan_forms(plan: Plan) -> dict[str, Callable[[], Iterable[str]]]:
    """Functions that make the lines of each form, by its name."""

    def html() -> list[str]:
        from coordinator_core.reports.restore_page import restore_page

        return [restore_page(plan, write_plan(None, plan)).rstrip("\n")]

    return {
        "text": lambda: plan_text(plan, write_plan(None, plan)),
        "csv": lambda: kafka_csv(plan),
        "html": html,
    }
