"""Names and times of a run: its window, its ``now``, its attempts. Pure."""

from __future__ import annotations

import hashlib
import re
from datetime import UTC, datetime

from coordinator_core.errors import UsageError

WINDOW = re.compile(r"[A-Za-z0-9][A-Za-z0-9._=-]{0,127}")


def window_key(asked: str | None, interval_start: datetime | None, run_after: datetime) -> str:
    """The window of a run: the one asked for, else the start of its data interval, else its time.

    Airflow gives a manual run no data interval. Its ``run_after`` stays the same when tasks are retried or
    cleared, so every attempt of a run falls into one window. Raises ``UsageError`` when ``asked`` is not
    usable as the name of a directory.
    """
    if asked:
        from coordinator_core.runs.place import check_window

        if not WINDOW.fullmatch(asked):
            raise UsageError(
                f"window {asked!r}: use at most 128 of A-Z a-z 0-9 . _ = -, beginning with one of A-Z a-z 0-9"
            )
        check_window(asked)
        return asked
    return (interval_start or run_after).astimezone(UTC).strftime("%Y-%m-%dT%H-%M-%SZ")


def now_ms(asked: int | None, interval_end: datetime | None, run_after: datetime) -> int:
    """The ``now`` of a run in epoch milliseconds: as asked, else the end of its interval, else its time."""
    if asked is not None:
        return asked
    return round((interval_end or run_after).timestamp() * 1000)


def attempt_id(dag_run_id: str, try_number: int, at: datetime | None = None) -> str:
    """A run id that no other attempt has: time of day, DAG run, try. Sorts by time."""
    return f"{at or datetime.now(UTC):%Y%m%dT%H%M%S%f}Z-{run_digest(dag_run_id)}-{try_number}"


def run_digest(dag_run_id: str) -> str:
    """A DAG run's id as part of a file name."""
    return hashlib.sha256(dag_run_id.encode()).hexdigest()[:8]
