"""The app ``history`` with a task whose worker dies once: ``python -m tests.spark.history_driver ARGUMENTS``."""

from __future__ import annotations

import sys

from spark_apps import history, history_tasks
from tests.spark.history_kit import take_partitions_and_die_once

if __name__ == "__main__":
    history_tasks.take_partitions = take_partitions_and_die_once
    sys.exit(history.APP.run())
