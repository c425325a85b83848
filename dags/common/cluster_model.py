"""Keys of the cluster file, their types and defaults; ``dags/clusters.schema.json`` is made of them.

``docs/operations.md`` documents the keys for operators. Paths come out absolute: the context of a validation has
``root``, where relative ones start.
"""

from __future__ import annotations

import json
import os
import re
from datetime import UTC, date, datetime
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from airflow.sdk import BaseNotifier
from airflow.sdk.exceptions import AirflowTimetableInvalid
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_validator,
)

DEFAULT_CONNECTION = "regroup_spark"

_URI = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_GATEWAY = r"https?://[^/@\s]+(/[^@\s]*)?"
_CATALOG = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
_TEN_YEARS = 3_652
"""Days of the longest time that something may take: Airflow has none without end."""
RELEASE = r"[0-9]+(\.[0-9]+){1,3}"


def located(path: str, root: Path) -> str:
    """``path`` itself when it is a URI or absolute, else below the root; ``ValueError`` for one with a NUL."""
    if "\0" in path:
        raise ValueError(f"{path!a} is no path: it has a NUL")
    return path if _URI.match(path) else os.path.normpath(root / path)


def shown(value: Any) -> str:
    """A value of the file as messages name it."""
    return "nothing" if value is None else f"{type(value).__name__} {value!r}"


def _located(path: str, info: ValidationInfo) -> str:
    return path if info.context is None else located(path, info.context["root"])


def _run_directory(path: str) -> str:
    if "{window}" in path:
        raise ValueError("the window has its own directory; {window} belongs in source only")
    return path


def _without_window(path: str) -> str:
    if "{window}" in path:
        raise ValueError("{window} stands for nothing here; it belongs in source and topics")
    return path


def _with_window(path: str) -> str:
    if found := re.search(r"\{(?!window\})[^{}]*\}", path):
        raise ValueError(f"{found[0]} stands for nothing; write {{window}} for the window of the run")
    return path


def _directory(path: str) -> str:
    if _URI.match(path):
        raise ValueError(f"expected a local directory, found {path!r}; URIs are written whole where paths are")
    return path


def _listed(value: Any) -> Any:
    values = value if isinstance(value, list | tuple) else [value]
    if not all(isinstance(one, str) and one.strip() for one in values):
        raise ValueError(f"expected text or a list of text, found {shown(value)}")
    return tuple(values)


def _release(value: Any) -> Any:
    # YAML reads 3.9 as a number, and 3.10 as the same number as 3.1.
    if not (isinstance(value, str) and re.fullmatch(RELEASE, value)):
        raise ValueError(f'expected a release in quotes ("3.9.2"), found {shown(value)}')
    return value


def _gateway(value: str) -> str:
    if not re.fullmatch(_GATEWAY, value):
        raise ValueError("expected http://HOST:PORT, without a password")
    return value


def _schedule(value: str) -> str:
    from airflow.timetables.trigger import CronTriggerTimetable

    try:
        CronTriggerTimetable(value, timezone="UTC").validate()
    except AirflowTimetableInvalid as error:
        raise ValueError(f"expected a cron expression or @daily and the like: {error}") from None
    return value


def _start_date(value: Any) -> Any:
    if isinstance(value, datetime):
        return value if value.tzinfo else value.replace(tzinfo=UTC)
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day, tzinfo=UTC)
    raise ValueError(f"expected a date such as 2026-01-31, found {shown(value)}")


def _conf_value(value: Any) -> Any:
    if isinstance(value, dict | list) or value is None:
        raise ValueError(f"expected one value, found {shown(value)}")
    return str(value).lower() if isinstance(value, bool) else str(value)


_TEXTS = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}

Text = Annotated[str, Field(pattern=r"\S")]
Place = Annotated[Text, AfterValidator(_located)]
Texts = Annotated[tuple[str, ...], BeforeValidator(_listed), WithJsonSchema(_TEXTS)]
Places = Annotated[tuple[Place, ...], BeforeValidator(_listed), WithJsonSchema(_TEXTS)]
Windowed = Annotated[Place, AfterValidator(_with_window)]
Sources = Annotated[tuple[Windowed, ...], BeforeValidator(_listed), WithJsonSchema(_TEXTS)]
Schedule = Annotated[Text, AfterValidator(_schedule)]
Count = Annotated[int, Field(ge=1, le=(1 << 62) - 1)]
Whole = Annotated[int, Field(ge=0, le=(1 << 62) - 1)]
"""As the Spark apps take them."""
Partitions = Annotated[int, Field(ge=1, le=(1 << 31) - 1)]
"""As Kafka has them."""
Seconds = Annotated[int, Field(ge=1, le=_TEN_YEARS * 86_400)]
Minutes = Annotated[int, Field(ge=1, le=_TEN_YEARS * 1_440)]
Hours = Annotated[int, Field(ge=1, le=_TEN_YEARS * 24)]
Coordinator = Literal["classic", "new"]
Severity = Literal["critical", "warning", "info"]
Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,63}$")]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, use_attribute_docstrings=True)

    @model_validator(mode="before")
    @classmethod
    def _without_nothing(cls, data: Any) -> Any:
        """A key without a value is as good as none."""
        if not isinstance(data, dict):
            return data
        return {key: value for key, value in data.items() if value is not None or key not in cls.model_fields}


class SparkSettings(_Section):
    """Options of ``spark-submit`` for a cluster. The master comes from the Airflow connection."""

    connection: Text = DEFAULT_CONNECTION
    conf: dict[
        str,
        Annotated[str, BeforeValidator(_conf_value), WithJsonSchema({"type": ["string", "number", "boolean"]})],
    ] = {}
    """Spark properties."""
    environment: Place | None = None
    """Archive of the Python environment of executors (``make environment``). Without it they have one."""
    archives: Places = ()
    py_files: Places = ()
    packages: Texts = ()
    driver_memory: Text | None = None
    executor_memory: Text | None = None
    executor_cores: Count | None = None
    num_executors: Count | None = None

    @field_validator("conf", mode="before")
    @classmethod
    def _properties(cls, conf: Any) -> Any:
        if not isinstance(conf, dict):
            raise ValueError(f"expected Spark properties and their values, found {shown(conf)}")
        return conf


class CompactionSettings(_Section):
    """Options of ``offsets_compact`` for a cluster's log."""

    schedule: Schedule = "@weekly"
    output: Annotated[Place, AfterValidator(_without_window)] | None = None
    """Place of compacted logs. Without it, that of the state."""
    expire: bool = True
    offsets_retention_ms: Count | None = None
    delete_retention_ms: Whole = 86_400_000
    approval_hours: Hours = 144
    """Hours that it waits for a person when something expires; then nothing is published."""


class DrillSettings(_Section):
    """Commands by which ``failover_drill`` breaks a cluster and mends it, for ``/bin/sh`` of the worker.

    In them ``{brokers}`` stands for the ids of the scenario's brokers, with commas, ``{rack}`` for its rack.
    """

    connection: Text
    """Id of the Airflow connection of the cluster."""
    fault_command: Text
    recover_command: Text
    server_logs: dict[int, Place] = {}
    """Logs of brokers on the worker, by broker id."""
    rto_seconds: Seconds = 60
    observe_seconds: Seconds = 60
    """Seconds that the drill observes at least."""
    limit_seconds: Seconds = 600
    """Seconds that the drill waits at most for the cluster."""
    approval_hours: Hours = 24

    @field_validator("server_logs", mode="before")
    @classmethod
    def _files(cls, logs: Any) -> Any:
        if not isinstance(logs, dict) or not all(type(key) is int and isinstance(logs[key], str) for key in logs):
            raise ValueError(f"expected files by broker id, found {shown(logs)}")
        return logs


class RestoreSettings(_Section):
    """Options of ``offsets_restore`` for a cluster that it writes to."""

    connection: Text
    """Id of the Airflow connection of the cluster."""
    approval_hours: Hours = 24


class MetricsSettings(_Section):
    """Places for the metrics of a cluster's newest run: a directory, a Pushgateway, or both."""

    textfile: Annotated[Place, AfterValidator(_without_window)] | None = None
    pushgateway: Annotated[Text, AfterValidator(_gateway)] | None = None

    @model_validator(mode="after")
    def _somewhere(self) -> Self:
        if self.textfile is self.pushgateway is None:
            raise ValueError("name textfile, pushgateway or both")
        return self


class LinkSettings(_Section):
    """Addresses that browsers know, for links in Airflow's pages."""

    output: Annotated[Text, AfterValidator(_gateway)] | None = None
    """Address of the files below ``output``."""
    state: Annotated[Text, AfterValidator(_gateway)] | None = None
    """Address of the files below ``state``."""
    spark_history: Annotated[Text, AfterValidator(_gateway)] | None = None
    """Address of Spark's history server."""


class TimeoutSettings(_Section):
    """Limits of tasks, which are retried, and of runs, which are not. Waiting for a person has its own hours."""

    task_minutes: Minutes | None = None
    run_minutes: Minutes | None = None


class NotifierSettings(_Section):
    """A notifier of Airflow, told when a run of a DAG has failed, or succeeded."""

    notifier: Annotated[str, Field(pattern=r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)+$")]
    """Import path of the class."""
    arguments: dict[str, Any] = {}
    when: Literal["failure", "success"] = "failure"

    @model_validator(mode="after")
    def _usable(self) -> Self:
        self.made()
        return self

    def made(self) -> BaseNotifier:
        """The notifier; ``ValueError`` says why there is none."""
        module, _, name = self.notifier.rpartition(".")
        try:
            made = getattr(import_module(module), name)(**self.arguments)
        except Exception as error:
            raise ValueError(f"{self.notifier} cannot be made: {error}") from None
        if not isinstance(made, BaseNotifier):
            raise ValueError(f"{self.notifier} is no notifier of Airflow (BaseNotifier)")
        return made


class ExpectationsSettings(_Section):
    """The quality gate of a cluster's runs."""

    spark_from_offsets: Count = 2_000_000
    """Committed offsets of a run from which on Spark evaluates the expectations, not a process of the worker."""


class IcebergSettings(_Section):
    """Catalogue in which runs of a cluster are registered; how it is opened stands in pyiceberg's configuration."""

    catalog: Annotated[str, Field(pattern=_CATALOG)]
    namespace: Annotated[str, Field(pattern=_CATALOG)] = "regroup"


class Defaults(_Section):
    """Keys of a cluster, for every cluster that does not say otherwise."""

    source: Sources = ()
    """Snapshot: paths or URIs, in which ``{window}`` stands for the window of the run."""
    output: Annotated[Place, AfterValidator(_run_directory)] | None = None
    """Place of published runs."""
    state: Annotated[Place, AfterValidator(_run_directory)] | None = None
    """Place of files that one task leaves for another: captures, drills, restores, plans. Without it, that of the
    runs."""
    description: str = ""
    offsets_topic_num_partitions: Partitions | None = None
    profile: Text | None = None
    kafka_version: (
        Annotated[str, BeforeValidator(_release), WithJsonSchema({"type": "string", "pattern": f"^{RELEASE}$"})] | None
    ) = None
    coordinator: Coordinator | None = None
    partial: bool = False
    """Go on past damage, and mark the run as partial."""
    topics: Windowed | None = None
    """Snapshot of the cluster's topics; may hold ``{window}``, too."""
    rules: Place | None = None
    """Local YAML file with severities, thresholds and mutes of rules."""
    fail_on: Severity = "critical"
    """Lowest severity of findings that closes the gate."""
    gate_latest: bool = True
    """``latest.json`` names a run only once the gate has let it through."""
    expectations: ExpectationsSettings = ExpectationsSettings()
    metrics: MetricsSettings | None = None
    """Without it they lie beside the report alone."""
    lineage: bool = False
    """OpenLineage events lie beside the report."""
    iceberg: IcebergSettings | None = None
    """Without it runs are registered in no catalogue."""
    links: LinkSettings = LinkSettings()
    timeouts: TimeoutSettings = TimeoutSettings()
    pool: Text = "default_pool"
    """Airflow pool of the tasks of this cluster's own DAGs; it must exist."""
    notify: list[NotifierSettings] = []
    """Told how runs of the DAGs have ended."""
    drill: DrillSettings | None = None
    """Without it no drill is done on the cluster."""
    restore: RestoreSettings | None = None
    """Without it no DAG writes committed offsets to the cluster."""
    schedule: Schedule | None = None
    """Cron expression or preset in UTC. Without it the cluster is loaded on request only."""
    start_date: Annotated[
        datetime, BeforeValidator(_start_date), WithJsonSchema({"type": "string", "format": "date"})
    ] = datetime(2026, 1, 1, tzinfo=UTC)
    spark: SparkSettings = SparkSettings()
    compaction: CompactionSettings | None = None
    """Without it the log is compacted on request only, as by default."""

    @model_validator(mode="after")
    def _one_way_to_name_rules(self) -> Self:
        if self.profile and self.kafka_version:
            raise ValueError("give either profile or kafka_version")
        if self.coordinator and not self.kafka_version:
            raise ValueError("coordinator only means something together with kafka_version")
        # A table, which loads nothing heavy.
        from coordinator_core.errors import UsageError
        from coordinator_core.releases import chosen_profile

        try:
            chosen_profile(self.profile or "auto", self.kafka_version, self.coordinator)
        except UsageError as error:
            raise ValueError(str(error)) from None
        return self


class Entry(Defaults):
    """One cluster of the file."""

    source: Annotated[Sources, Field(min_length=1)]
    output: Annotated[Place, AfterValidator(_run_directory)]


class Document(_Section):
    """The whole file."""

    root: Annotated[Text, AfterValidator(_directory)] = "."
    """Directory where relative paths start, seen from that of the file."""
    pool: Text = "default_pool"
    """Airflow pool of the tasks of the DAGs on request, which have any cluster; it must exist."""
    retries: Annotated[int, Field(ge=0)] = 2
    """Retries of every task, for trouble of the machinery."""
    retry_delay_seconds: Annotated[int, Field(ge=0, le=_TEN_YEARS * 86_400)] = 60
    """Seconds before the first retry; doubled after each."""
    defaults: Defaults = Defaults()
    clusters: dict[Name, Entry]

    @model_validator(mode="before")
    @classmethod
    def _inherit(cls, data: Any) -> Any:
        """Entries with the defaults that they do not override."""
        if not isinstance(data, dict) or not isinstance(data.get("defaults"), dict):
            return data
        clusters = data.get("clusters")
        if not isinstance(clusters, dict):
            return data
        return {**data, "clusters": {name: _inherited(one, data["defaults"]) for name, one in clusters.items()}}


def _inherited(entry: Any, defaults: dict[str, Any]) -> Any:
    if not isinstance(entry, dict):
        return entry
    # Profile and release exclude each other, and a coordinator is that of its release: an entry that names one of them
    # has none of the defaults.
    overridden = {"profile", "kafka_version", "coordinator"} if {"profile", "kafka_version"} & set(entry) else set()
    return {**{key: value for key, value in defaults.items() if key not in overridden}, **entry}


def schema() -> dict[str, Any]:
    """JSON schema of the file, for editors (``python -m dags.common.cluster_model``)."""
    made = Document.model_json_schema()
    # Defaults may hold the keys that an entry lacks.
    del made["$defs"]["Entry"]["required"]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **made}


if __name__ == "__main__":
    print(json.dumps(schema(), indent=1))
