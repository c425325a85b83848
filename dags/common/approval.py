"""Asking a person before records expire."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowSkipException

from dags.common.clusters import load_clusters
from dags.common.compact import settings_of


class ExpiryApproval(ApprovalOperator):
    """Asks whether a plan may be carried out; skips itself when nothing would expire.

    Rejected, or not answered within ``approval_hours`` of the cluster, what follows is skipped.

    :param expires: how many tombstones the plan has (templated)
    """

    template_fields: Sequence[str] = (*ApprovalOperator.template_fields, "expires")

    def __init__(self, *, expires: Any, **kwargs: Any) -> None:
        super().__init__(defaults=self.REJECT, **kwargs)
        self.expires = expires

    def execute(self, context: Context) -> Any:
        if not self.expires:
            raise AirflowSkipException("nothing expires, so nobody is asked")
        settings = settings_of(load_clusters().clusters[context["params"]["cluster"]])
        self.response_timeout = timedelta(hours=settings.approval_hours)
        return super().execute(context)
