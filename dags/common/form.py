"""Parts that forms of DAGs share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow.sdk import Param
from airflow.sdk.exceptions import AirflowFailException

from dags.common.attempts import WINDOW
from dags.common.cluster_model import RELEASE
from dags.common.clusters import COORDINATORS

LARGEST = 253_402_300_799_999
"""Largest number of a form, as a time the end of the year 9999. One beyond 64 bits would end the worker before its task
has a log, and the DAG processor with the callback of the run."""


def optional(kind: str, title: str, description: str, **more: Any) -> Param:
    """A field that may be left empty. Text has no NUL, which neither a path nor an argument of a command takes."""
    if kind == "string":
        more.setdefault("pattern", r"^[^\x00]*$")
    else:
        more.setdefault("maximum", LARGEST)
    return Param(None, type=["null", kind], title=title, description=description, **more)


def flag(title: str, description: str) -> Param:
    """A field for yes or no, which is no unless it is chosen."""
    return Param(False, type="boolean", title=title, description=description)


def choice(title: str, description: str, names: list[str]) -> Param:
    """A field for one of ``names``, the first unless another is chosen."""
    return Param(names[0], type="string", enum=names, title=title, description=description)


def check_fields(context: Mapping[str, Any]) -> None:
    """Fails when the request has a field that the form lacks: Airflow would leave it out without a word."""
    fields = context["dag"].params
    if unknown := sorted(set(context["dag_run"].conf or {}) - set(fields)):
        raise AirflowFailException(f"the form has no {', '.join(map(ascii, unknown))}, but {', '.join(fields)}")


def cluster_param(names: list[str]) -> Param:
    """Parameter that names the cluster."""
    return choice("Cluster", "An entry of the cluster file.", names)


def snapshot_params(names: list[str]) -> dict[str, Param]:
    """The form: everything but the cluster is optional, and overrides the cluster file for one run."""
    return {
        "cluster": cluster_param(names),
        "source": optional(
            "string",
            "Source",
            "Paths or URIs of log directories, one a line, instead of those of the cluster file.",
            format="multiline",
        ),
        "window": optional(
            "string",
            "Window",
            "Directory of the run. Default: start of the data interval, or time of the run.",
            pattern=f"^{WINDOW.pattern}$",
        ),
        "now_ms": optional(
            "integer", "Now", "Epoch milliseconds. Default: end of the data interval, or time of the run.", minimum=0
        ),
        "profile": optional(
            "string", "Profile", "Coordinator rules: a profile's name, or auto to infer it from the records."
        ),
        "kafka_version": optional(
            "string",
            "Kafka release",
            "Coordinator rules of this release, for example 3.9.2. Not together with a profile.",
            pattern=f"^{RELEASE}$",
        ),
        "coordinator": optional(
            "string", "Coordinator", "Where the release has both: classic or new.", enum=[None, *COORDINATORS]
        ),
        "partial": flag("Partial", "Go on past damage, and say in the run that it is partial."),
    }
