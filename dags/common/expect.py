"""The task that evaluates the expectations on a run: on the worker, or for a large run in Spark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow.sdk import Context

from dags.common import reconcile
from dags.common.clusters import load_clusters
from dags.common.spark import SparkAppOperator


class ExpectationsOperator(SparkAppOperator):
    """Evaluates the Great Expectations suites on a run and its findings, writes Data Docs, and returns the counts.

    The app ``quality`` evaluates a run of ``expectations.spark_from_offsets`` committed offsets or more, a process of
    the worker any other run.

    :param request: what ``find`` says of the run (templated)
    """

    template_fields: Sequence[str] = ("request",)

    def __init__(self, *, request: Any, **kwargs: Any) -> None:
        super().__init__(app="quality", has_run_id=False, **kwargs)
        self.request = request

    def execute(self, context: Context) -> dict[str, Any]:
        least = load_clusters().clusters[context["params"]["cluster"]].expectations.spark_from_offsets
        if self.request["committed_offsets"] < least:
            return reconcile.expect(self.request)
        self.application_args = reconcile.quality_arguments(self.request)
        super().execute(context)
        return reconcile.expected_in_spark(self.request)
