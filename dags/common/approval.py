"""Asking a person before something is done that cannot be taken back."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowSkipException


class Approval(ApprovalOperator):
    """Asks whether the proposal of an earlier task may be carried out.

    Rejected, or not answered in time, the tasks behind it are skipped. It skips itself, and the tasks behind it (unless
    they have another trigger rule), where nobody needs to be asked.

    :param found: value that the earlier task returned (templated): ``subject`` and ``body`` of the question,
        ``approval_hours``, and ``not_asked``: why nobody is asked, empty where somebody is
    """

    template_fields: Sequence[str] = (*ApprovalOperator.template_fields, "found")

    def __init__(self, *, found: Any, **kwargs: Any) -> None:
        # A person has hours of their own, not the timeout of tasks.
        kwargs["execution_timeout"] = None
        super().__init__(subject="", defaults=self.REJECT, **kwargs)
        self.found = found

    def execute(self, context: Context) -> Any:
        if self.found["not_asked"]:
            raise AirflowSkipException(self.found["not_asked"])
        self.subject, self.body = self.found["subject"], self.found["body"]
        self.response_timeout = timedelta(hours=self.found["approval_hours"])
        return super().execute(context)
