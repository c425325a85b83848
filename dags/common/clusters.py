"""The cluster file: which snapshots the DAGs read, by which rules, and where the runs go.

A file in, values out. ``docs/operations.md`` documents the keys for operators.
"""

from __future__ import annotations

import os
import re
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import yaml
from airflow.sdk import CronTriggerTimetable
from airflow.sdk.exceptions import AirflowTimetableInvalid

CLUSTERS_ENV = "REGROUP_CLUSTERS"
CLUSTERS_VARIABLE = "regroup_clusters"
BUNDLED_FILE = Path(__file__).resolve().parent.parent / "clusters.yaml"

COORDINATORS = ("classic", "new")
SEVERITIES = ("critical", "warning", "info")
DEFAULT_CONNECTION = "regroup_spark"

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_URI = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_GATEWAY = re.compile(r"https?://[^/@\s]+(/[^@\s]*)?")
_RELEASE = re.compile(r"\d+(\.\d+){1,3}")


def timetable(schedule: str | None) -> CronTriggerTimetable | None:
    """The times of a schedule in UTC, each its own data interval.

    Of a bare expression Airflow would make intervals as a setting of the deployment says, and with them windows.
    """
    return None if schedule is None else CronTriggerTimetable(schedule, timezone="UTC")


class ClusterFileError(ValueError):
    """The cluster file cannot be used; the message names the file, the key and what is expected there."""


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """Options of ``spark-submit`` for a cluster. The master comes from the Airflow connection."""

    connection: str = DEFAULT_CONNECTION
    conf: Mapping[str, str] = field(default_factory=dict)
    environment: str | None = None
    """Archive of the Python environment of executors (``make environment``). ``None``: they have one."""
    archives: tuple[str, ...] = ()
    py_files: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    driver_memory: str | None = None
    executor_memory: str | None = None
    executor_cores: int | None = None
    num_executors: int | None = None


@dataclass(frozen=True, slots=True)
class CompactionSettings:
    """Options of ``offsets_compact`` for a cluster's log. ``output`` is a local directory, absolute.

    ``approval_hours`` is how long it waits for a person when something expires; then nothing is published.
    """

    schedule: str = "@weekly"
    output: str | None = None
    expire: bool = True
    offsets_retention_ms: int | None = None
    delete_retention_ms: int = 86_400_000
    approval_hours: int = 144


@dataclass(frozen=True, slots=True)
class DrillSettings:
    """Commands by which ``failover_drill`` breaks a cluster and mends it, for ``/bin/sh`` of the worker.

    In them ``{brokers}`` stands for the ids of the scenario's brokers, with commas, ``{rack}`` for its rack.
    ``connection`` is the Airflow connection of the cluster. ``server_logs`` has files by broker id. The drill
    observes for ``observe_seconds`` at least, and waits ``limit_seconds`` at most for what has to come.
    """

    connection: str
    fault_command: str
    recover_command: str
    server_logs: Mapping[int, str] = field(default_factory=dict)
    rto_seconds: int = 60
    observe_seconds: int = 60
    limit_seconds: int = 600
    approval_hours: int = 24


@dataclass(frozen=True, slots=True)
class RestoreSettings:
    """Options of ``offsets_restore`` for a cluster that it writes to: ``connection`` is its Airflow connection."""

    connection: str
    approval_hours: int = 24


@dataclass(frozen=True, slots=True)
class MetricsSettings:
    """Where ``offsets_reconcile`` puts the metrics of a cluster's newest run: a directory, a Pushgateway, or both."""

    textfile: str | None = None
    pushgateway: str | None = None


@dataclass(frozen=True, slots=True)
class Cluster:
    """One entry of the cluster file, defaults applied, paths absolute.

    ``source`` may hold ``{window}``, which a run replaces by its window key. ``schedule`` is a cron
    expression or preset in UTC, ``None`` when the cluster is loaded on request only.
    """

    name: str
    source: tuple[str, ...]
    output: str
    description: str = ""
    offsets_topic_num_partitions: int | None = None
    profile: str | None = None
    kafka_version: str | None = None
    coordinator: str | None = None
    partial: bool = False
    topics: str | None = None
    """Snapshot of the cluster's topics; may hold ``{window}``, too."""
    rules: str | None = None
    """Local YAML file with severities, thresholds and mutes of rules."""
    fail_on: str = "critical"
    """Lowest severity of findings that closes the gate."""
    gate_latest: bool = True
    """``latest.json`` names a run only once the gate has let it through."""
    metrics: MetricsSettings | None = None
    """``None``: they lie beside the report alone."""
    lineage: bool = False
    """OpenLineage events lie beside the report."""
    drill: DrillSettings | None = None
    """``None``: no drill is done on it."""
    restore: RestoreSettings | None = None
    """``None``: no DAG writes committed offsets to it."""
    schedule: str | None = None
    start_date: datetime = datetime(2026, 1, 1, tzinfo=UTC)
    spark: SparkSettings = SparkSettings()
    compaction: CompactionSettings | None = None
    """``None``: compacted on request only, as :class:`CompactionSettings` are by default."""

    @property
    def asset_uri(self) -> str:
        """The asset whose event says that a new run of this cluster was published."""
        return f"regroup://{self.name}/offsets"

    @property
    def audited_asset_uri(self) -> str:
        """The asset whose event says that the gate has let a run of this cluster through."""
        return f"regroup://{self.name}/audited"

    @property
    def compacted_asset_uri(self) -> str:
        """The asset whose event says that a compacted log of this cluster was published."""
        return f"regroup://{self.name}/compacted"


@dataclass(frozen=True, slots=True)
class ClusterFile:
    """A checked cluster file: ``clusters`` by name, in file order; ``root`` where relative paths start.

    ``problems`` has, by name, what is wrong with entries that cannot be used; they are not among ``clusters``.
    ``retries`` and ``retry_delay_seconds`` (doubled after each attempt) are those of every task.
    """

    path: Path
    root: Path
    clusters: dict[str, Cluster]
    retries: int = 2
    retry_delay_seconds: int = 60
    problems: Mapping[str, str] = field(default_factory=dict)

    @property
    def task_defaults(self) -> dict[str, Any]:
        """``default_args`` of every DAG."""
        return {
            "owner": "regroup",
            "retries": self.retries,
            "retry_delay": timedelta(seconds=self.retry_delay_seconds),
            "retry_exponential_backoff": 2.0,
            "max_retry_delay": timedelta(minutes=30),
        }

    def located(self, path: str) -> str:
        """``path`` itself when it is a URI or absolute, else below the root."""
        return _located(path, self.root)


def clusters_path() -> Path:
    """Path of the cluster file: environment, then Airflow Variable, then the bundled one."""
    named = os.environ.get(CLUSTERS_ENV)
    if not named:
        from airflow.sdk import Variable

        named = Variable.get(CLUSTERS_VARIABLE, default=None)
    return Path(named) if named else BUNDLED_FILE


def load_clusters(path: str | Path | None = None) -> ClusterFile:
    """The cluster file at ``path`` (default: :func:`clusters_path`).

    Raises :class:`ClusterFileError` when no cluster of it can be used.
    """
    file = clusters_path() if path is None else Path(path)
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ClusterFileError(f"cluster file {file} cannot be read: {error}") from None
    try:
        document = yaml.load(text, Loader=_UniqueKeys)
    except yaml.YAMLError as error:
        raise ClusterFileError(f"cluster file {file} is not valid YAML: {error}") from None

    top = _Section(file, "", document)
    root = Path(os.path.normpath(file.resolve().parent / (top.text("root") or ".")))
    defaults = top.value("defaults") or {}
    entries = top.section("clusters")
    tries = {key: top.number(key, 0) for key in ("retries", "retry_delay_seconds")}
    top.nothing_else()
    # Read on their own too, so that a slip in the defaults is reported there and not once per cluster.
    _settings(_Section(file, "defaults", defaults), root, {})
    clusters: dict[str, Cluster] = {}
    problems: dict[str, str] = {}
    for name in entries.names:
        try:
            clusters[name] = _cluster(_Section(file, f"clusters.{name}", entries.value(name)), name, root, defaults)
        except ClusterFileError as error:
            problems[name] = str(error)
    if not clusters:
        nothing = entries.error("", "name at least one cluster")
        raise ClusterFileError("\n".join(problems.values())) if problems else nothing
    given = {key: value for key, value in tries.items() if value is not None}
    return ClusterFile(path=file, root=root, clusters=clusters, problems=problems, **given)


class _UniqueKeys(yaml.SafeLoader):
    """YAML takes the last of two equal keys without a word; a cluster must not vanish that way."""


def _unique_mapping(loader: _UniqueKeys, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
    seen: set[Hashable] = set()
    for key_node, _ in node.value:
        if key_node.tag == "tag:yaml.org,2002:merge":
            continue
        key = loader.construct_object(key_node, deep=True)
        problem = None
        if not isinstance(key, Hashable):
            problem = "a key must be text"
        elif key in seen:
            problem = f"key {key!r} appears twice"
        if problem:
            raise yaml.constructor.ConstructorError(None, None, problem, key_node.start_mark)
        seen.add(key)
    return loader.construct_mapping(node, deep=True)


_UniqueKeys.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _unique_mapping)


class _Section:
    """A mapping of the file that is read key by key and complains with the key's full name."""

    def __init__(self, file: Path, path: str, data: Any) -> None:
        self._file = file
        self._path = path
        if not isinstance(data, dict):
            raise self.error("", f"expected keys and values, found {_shown(data)}")
        for key in data:
            if not isinstance(key, str):
                raise self.error("", f"key {key!r} is not text; quote it")
        self._data: dict[str, Any] = data
        self._read: set[str] = set()

    def error(self, key: str, problem: str) -> ClusterFileError:
        where = ".".join(part for part in (self._path, key) if part)
        return ClusterFileError(f"cluster file {self._file}: {where + ': ' if where else ''}{problem}")

    @property
    def names(self) -> list[str]:
        return list(self._data)

    def value(self, key: str) -> Any:
        self._read.add(key)
        return self._data.get(key)

    def section(self, key: str) -> _Section:
        if key not in self._data:
            raise self.error(key, "missing")
        return _Section(self._file, ".".join(part for part in (self._path, key) if part), self.value(key))

    def text(self, key: str) -> str | None:
        value = self.value(key)
        if value is None:
            return None
        if not isinstance(value, str) or not value.strip():
            raise self.error(key, f"expected text, found {_shown(value)}; quote it if YAML reads it otherwise")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        value = self.value(key)
        if value is None:
            return ()
        values = value if isinstance(value, list) else [value]
        if not all(isinstance(item, str) and item.strip() for item in values):
            raise self.error(key, f"expected text or a list of text, found {_shown(value)}")
        return tuple(values)

    def number(self, key: str, least: int) -> int | None:
        value = self.value(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise self.error(key, f"expected a whole number, at least {least}, found {_shown(value)}")
        return value

    def flag(self, key: str) -> bool | None:
        value = self.value(key)
        if value is not None and not isinstance(value, bool):
            raise self.error(key, f"expected true or false, found {_shown(value)}")
        return value

    def nothing_else(self) -> None:
        unknown = sorted(set(self._data) - self._read)
        if unknown:
            raise self.error(unknown[0], f"unknown key; known are {', '.join(sorted(self._read))}")


def _cluster(section: _Section, name: str, root: Path, defaults: dict[str, Any]) -> Cluster:
    if not _NAME.fullmatch(name):
        raise section.error("", "a cluster name is at most 64 of a-z 0-9 _ -, not starting with _ or -")
    found = _settings(section, root, defaults)
    for key in ("source", "output"):
        if not found.get(key):
            raise section.error(key, "missing")
    if "{window}" in found["output"]:
        raise section.error("output", "the window has its own directory; {window} belongs in source only")
    return Cluster(name=name, **found)


def _settings(section: _Section, root: Path, defaults: dict[str, Any]) -> dict[str, Any]:
    """The keys of one entry over ``defaults``, checked; absent ones are left to the dataclass."""
    inherited = {key: value for key, value in defaults.items() if key not in section.names}
    # Profile and release exclude each other, so naming one in the entry overrides the other's default.
    if {"profile", "kafka_version"} & set(section.names):
        inherited.pop("profile", None)
        inherited.pop("kafka_version", None)
    merged = _Section(section._file, section._path, {**inherited, **section._data})
    found = {
        "source": tuple(_located(path, root) for path in merged.texts("source")),
        "output": _located(output, root) if (output := merged.text("output")) else None,
        "description": merged.text("description"),
        "offsets_topic_num_partitions": merged.number("offsets_topic_num_partitions", 1),
        "profile": merged.text("profile"),
        "kafka_version": _release(merged),
        "coordinator": merged.text("coordinator"),
        "partial": merged.flag("partial"),
        "topics": _located(topics, root) if (topics := merged.text("topics")) else None,
        "rules": _located(rules, root) if (rules := merged.text("rules")) else None,
        "fail_on": merged.text("fail_on"),
        "gate_latest": merged.flag("gate_latest"),
        "lineage": merged.flag("lineage"),
        "metrics": _metrics(merged, root) if merged.value("metrics") is not None else None,
        "schedule": _schedule(merged),
        "start_date": _start_date(merged),
        "spark": _spark(merged, root) if merged.value("spark") is not None else None,
        "drill": _drill(merged, root) if merged.value("drill") is not None else None,
        "restore": _restore(merged) if merged.value("restore") is not None else None,
        "compaction": _compaction(merged, root) if merged.value("compaction") is not None else None,
    }
    merged.nothing_else()
    if found["coordinator"] not in (None, *COORDINATORS):
        raise section.error("coordinator", f"expected {' or '.join(COORDINATORS)}, found {found['coordinator']!r}")
    if found["fail_on"] not in (None, *SEVERITIES):
        raise section.error("fail_on", f"expected {' or '.join(SEVERITIES)}, found {found['fail_on']!r}")
    if found["profile"] and found["kafka_version"]:
        raise section.error("profile", "give either profile or kafka_version")
    if found["coordinator"] and not found["kafka_version"]:
        raise section.error("coordinator", "only means something together with kafka_version")
    return {key: value for key, value in found.items() if value is not None}


def _spark(section: _Section, root: Path) -> SparkSettings:
    spark = section.section("spark")
    conf = spark.value("conf") or {}
    if not isinstance(conf, dict) or not all(isinstance(key, str) for key in conf):
        raise spark.error("conf", f"expected Spark properties and their values, found {_shown(conf)}")
    for key, value in conf.items():
        if isinstance(value, (dict, list)) or value is None:
            raise spark.error(f"conf.{key}", f"expected one value, found {_shown(value)}")
    found: dict[str, Any] = {
        "connection": spark.text("connection"),
        "conf": {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in conf.items()},
        "environment": _located(archive, root) if (archive := spark.text("environment")) else None,
        "archives": tuple(_located(path, root) for path in spark.texts("archives")),
        "py_files": tuple(_located(path, root) for path in spark.texts("py_files")),
        "packages": spark.texts("packages"),
        "driver_memory": spark.text("driver_memory"),
        "executor_memory": spark.text("executor_memory"),
        "executor_cores": spark.number("executor_cores", 1),
        "num_executors": spark.number("num_executors", 1),
    }
    spark.nothing_else()
    return SparkSettings(**{key: value for key, value in found.items() if value is not None})


def _compaction(section: _Section, root: Path) -> CompactionSettings:
    compaction = section.section("compaction")
    found: dict[str, Any] = {
        "schedule": _schedule(compaction),
        "output": _located(output, root) if (output := compaction.text("output")) else None,
        "expire": compaction.flag("expire"),
        "offsets_retention_ms": compaction.number("offsets_retention_ms", 1),
        "delete_retention_ms": compaction.number("delete_retention_ms", 1),
        "approval_hours": compaction.number("approval_hours", 1),
    }
    compaction.nothing_else()
    if found["output"] and _URI.match(found["output"]):
        raise compaction.error("output", "a log is written to a local directory, for a broker to load")
    return CompactionSettings(**{key: value for key, value in found.items() if value is not None})


def _drill(section: _Section, root: Path) -> DrillSettings:
    drill = section.section("drill")
    texts = {key: drill.text(key) for key in ("connection", "fault_command", "recover_command")}
    for key, value in texts.items():
        if value is None:
            raise drill.error(key, "missing")
    logs = drill.value("server_logs") or {}
    if not isinstance(logs, dict) or not all(type(key) is int and isinstance(logs[key], str) for key in logs):
        raise drill.error("server_logs", f"expected files by broker id, found {_shown(logs)}")
    numbers = {
        key: drill.number(key, 1) for key in ("rto_seconds", "observe_seconds", "limit_seconds", "approval_hours")
    }
    drill.nothing_else()
    found: dict[str, Any] = {
        **texts,
        **numbers,
        "server_logs": {broker: _located(path, root) for broker, path in logs.items()},
    }
    return DrillSettings(**{key: value for key, value in found.items() if value is not None})


def _metrics(section: _Section, root: Path) -> MetricsSettings:
    metrics = section.section("metrics")
    textfile, pushgateway = metrics.text("textfile"), metrics.text("pushgateway")
    metrics.nothing_else()
    if textfile is pushgateway is None:
        raise metrics.error("", "name textfile, pushgateway or both")
    if pushgateway is not None and not _GATEWAY.fullmatch(pushgateway):
        raise metrics.error("pushgateway", "expected http://HOST:PORT, without a password")
    return MetricsSettings(None if textfile is None else _located(textfile, root), pushgateway)


def _restore(section: _Section) -> RestoreSettings:
    restore = section.section("restore")
    connection, hours = restore.text("connection"), restore.number("approval_hours", 1)
    if connection is None:
        raise restore.error("connection", "missing")
    restore.nothing_else()
    return RestoreSettings(connection) if hours is None else RestoreSettings(connection, hours)


def _located(path: str, root: Path) -> str:
    return path if _URI.match(path) else os.path.normpath(root / path)


def _release(section: _Section) -> str | None:
    value = section.value("kafka_version")
    # YAML reads 3.9 as a number, and 3.10 as the same number as 3.1.
    if value is not None and not (isinstance(value, str) and _RELEASE.fullmatch(value)):
        raise section.error("kafka_version", f'expected a release in quotes ("3.9.2"), found {_shown(value)}')
    return value


def _schedule(section: _Section) -> str | None:
    schedule = section.text("schedule")
    if schedule is None:
        return None
    from airflow.timetables.trigger import CronTriggerTimetable as SchedulerTimetable

    try:
        SchedulerTimetable(schedule, timezone="UTC").validate()
    except AirflowTimetableInvalid as error:
        raise section.error("schedule", f"expected a cron expression or @daily and the like: {error}") from None
    return schedule


def _start_date(section: _Section) -> datetime | None:
    value = section.value("start_date")
    if value is None:
        return None
    if isinstance(value, datetime):
        return value if value.tzinfo else value.replace(tzinfo=UTC)
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day, tzinfo=UTC)
    raise section.error("start_date", f"expected a date such as 2026-01-31, found {_shown(value)}")


def _shown(value: Any) -> str:
    return "nothing" if value is None else f"{type(value).__name__} {value!r}"
