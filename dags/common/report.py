"""The task that writes the report of a run, and its link in Airflow's pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow.sdk import BaseOperator, BaseOperatorLink, Context

from dags.common import reconcile
from dags.common.clusters import load_clusters
from dags.common.links import address


class ReportLink(BaseOperatorLink):
    """The report, where the cluster file says where browsers find reports."""

    name = "Report"

    def get_link(self, operator: BaseOperator, *, ti_key: Any) -> str:
        assert isinstance(operator, ReportOperator)
        return operator.link


class ReportOperator(BaseOperator):
    """Writes the report of a run, and returns the findings.

    :param request: what ``find`` says of the run (templated)
    :param expected: what ``expectations`` says of it (templated)
    """

    template_fields: Sequence[str] = ("request", "expected")
    operator_extra_links = (ReportLink(),)

    def __init__(self, *, request: Any, expected: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.request = request
        self.expected = expected
        self.link = ""

    def execute(self, context: Context) -> Mapping[str, Any]:
        name = context["params"]["cluster"]
        checked = reconcile.report(name, self.request, self.expected)
        self.link = address(load_clusters().clusters[name], checked["report"])
        return checked
