"""What the forms of the DAGs refuse, and fields that they do not have."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException, ParamValidationError

from dags import failover_drill, offsets_compact, offsets_maintain, offsets_reconcile, offsets_restore
from dags.common.form import check_fields, snapshot_params

FORMS = {
    module.__name__: module.params(["eu"])
    for module in (failover_drill, offsets_compact, offsets_maintain, offsets_reconcile, offsets_restore)
}
NUMBERS = [
    pytest.param(form[name], id=f"{dag}-{name}")
    for dag, form in FORMS.items()
    for name in form
    if form[name].schema["type"] == "integer" or {"integer", "number"} & {*form[name].schema["type"]}
]


def test_there_are_numbers() -> None:
    assert len(NUMBERS) == 6


@pytest.mark.parametrize("param", NUMBERS)
def test_a_number_of_more_than_64_bits_is_refused(param: Any) -> None:
    """Airflow cannot hand it to a worker: the task has no log, and the DAG processor ends with its callback."""
    param.resolve(value=1)
    for number in (2**64, -(2**64), 1e300):
        with pytest.raises(ParamValidationError):
            param.resolve(value=number)


def asked(**conf: Any) -> dict[str, Any]:
    return {"dag": SimpleNamespace(params=snapshot_params(["eu"])), "dag_run": SimpleNamespace(conf=conf)}


def test_a_field_that_the_form_lacks_is_named() -> None:
    check_fields(asked(cluster="eu", partial=True))
    check_fields(asked() | {"dag_run": SimpleNamespace(conf=None)})
    with pytest.raises(AirflowFailException, match=r"^the form has no 'partiel', 'x\\n', but cluster, source, "):
        check_fields(asked(cluster="eu", partiel=True, **{"x\n": 1}))
