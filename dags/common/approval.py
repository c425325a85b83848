"""Asking a person before something is done that cannot be taken back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

SHOWN = "shown"
"""Key of the XCom that has the digest of the proposal on the page."""


class Approval(ApprovalOperator):
    """Asks whether the proposal of an earlier task may be carried out.

    Rejected, or not answered in time, the tasks behind it are skipped. It skips itself, and the tasks behind it (unless
    they have another trigger rule), where nobody needs to be asked. Returns the answer, and the ``digest`` of the
    proposal that the person saw, for :func:`check_approved`.

    :param found: value that the earlier task returned (templated): ``subject`` and ``body`` of the question,
        ``digest`` of the proposal, ``approval_hours``, and ``not_asked``: why nobody is asked, empty where somebody is
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
        # Once somebody has answered, ``found`` may be another proposal: the task before can be cleared meanwhile.
        context["ti"].xcom_push(key=SHOWN, value=self.found["digest"])
        return super().execute(context)

    def execute_complete(self, context: Context, event: dict[str, Any]) -> Any:
        answer = super().execute_complete(context, event)
        return {**answer, "digest": context["ti"].xcom_pull(task_ids=self.task_id, key=SHOWN)}


def check_approved(found: Mapping[str, Any], approved: Mapping[str, Any] | None) -> None:
    """Fails unless a person has approved this very proposal, or nobody has to be asked about it.

    ``approved`` is the result of the :class:`Approval`.
    """
    if found["not_asked"]:
        return
    if approved is None or approved["chosen_options"] != [Approval.APPROVE] or approved["digest"] != found["digest"]:
        raise AirflowFailException(
            f"the proposal {found['digest']} is not the one that was approved: clear the task that asks, too"
        )
