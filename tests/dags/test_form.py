"""What the forms of the DAGs refuse, and fields that they do not have."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest
from airflow.sdk.exceptions import AirflowFailException, ParamValidationError

from coordinator_core.cli.restore_apply import apply_command
from coordinator_core.cli.restore_plan import plan_command
from dags import failover_drill, offsets_compact, offsets_maintain, offsets_reconcile, offsets_restore
from dags.common.form import check_fields, snapshot_params

FORMS = {
    module.__name__: module.params(["eu"])
    for module in (failover_drill, offsets_compact, offsets_maintain, offsets_reconcile, offsets_restore)
}
MANUAL = (Path(__file__).parents[2] / "docs" / "operations.md").read_text(encoding="utf-8")
# Fields of the restore form that have another name than the option.
RENAMED = {"before_records": "before_record", "group_names": "map_group", "topic_names": "map_topic"}
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


TEXTS = [
    pytest.param(form[name], id=f"{dag}-{name}")
    for dag, form in FORMS.items()
    for name in form
    if "string" in (form[name].schema["type"], *form[name].schema["type"])
]


@pytest.mark.parametrize("param", TEXTS)
def test_a_text_with_a_nul_is_refused(param: Any) -> None:
    for text in ("\0", "lose-rack=a\0b", "shift-by=1\0", "3.9.2\0"):
        with pytest.raises(ParamValidationError):
            param.resolve(value=text)


def asked(**conf: Any) -> dict[str, Any]:
    return {"dag": SimpleNamespace(params=snapshot_params(["eu"])), "dag_run": SimpleNamespace(conf=conf)}


def test_a_field_that_the_form_lacks_is_named() -> None:
    check_fields(asked(cluster="eu", partial=True))
    check_fields(asked() | {"dag_run": SimpleNamespace(conf=None)})
    with pytest.raises(AirflowFailException, match=r"^the form has no 'partiel', 'x\\n', but cluster, source, "):
        check_fields(asked(cluster="eu", partiel=True, **{"x\n": 1}))


@pytest.mark.parametrize("dag", [*FORMS, "dags.offsets_load"])
def test_the_manual_names_every_field(dag: str) -> None:
    section = MANUAL.partition(f"## DAG `{dag.removeprefix('dags.')}`")[2].partition("\n## ")[0]
    form = FORMS.get(dag, snapshot_params(["eu"]))
    own = set(form) - (set(snapshot_params(["eu"])) if dag == "dags.offsets_compact" else set())
    assert own - set(re.findall(r"`(\w+)`", section)) == set()


def test_fields_of_a_restore_are_options_with_their_choices() -> None:
    options = {name.strip("-").replace("-", "_"): one for one in plan_command.params for name in one.opts}
    form = FORMS["dags.offsets_restore"]
    for name in form.keys() - {"cluster", "source", "move", "wait_empty_seconds"}:
        option = options[RENAMED.get(name, name if name in options else name.removesuffix("s"))]
        if isinstance(option.type, click.Choice):
            assert form[name].schema["enum"] == list(option.type.choices)
            assert form[name].value == option.default
        else:
            assert form[name].value in (None, False)
    moves = re.findall(r"(?:to|shift|by)-[a-z]+", form["move"].description or "")
    assert {move.replace("-", "_") for move in moves} <= options.keys()


def test_a_command_takes_the_longest_wait_of_a_form() -> None:
    wait = next(one for one in apply_command.params if "--wait-empty" in one.opts)
    field = FORMS["dags.offsets_restore"]["wait_empty_seconds"]
    longest = field.schema["maximum"]
    assert wait.type.convert(field.resolve(value=longest), wait, None) == longest
    with pytest.raises(click.BadParameter):
        wait.type.convert(longest + 1, wait, None)
