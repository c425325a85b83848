"""The cluster file: which snapshots the DAGs read, by which rules, and where the runs go.

A file in, values out; :mod:`dags.common.cluster_model` has its keys.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal, get_args

import yaml
from airflow.sdk import Asset, BaseNotifier, Context, CronTriggerTimetable
from airflow.sdk.exceptions import AirflowFailException
from pydantic import ValidationError

from dags.common import cluster_model
from dags.common.cluster_model import Document, Entry, shown

log = logging.getLogger(__name__)

CLUSTERS_ENV = "REGROUP_CLUSTERS"
CLUSTERS_VARIABLE = "regroup_clusters"
BUNDLED_FILE = Path(__file__).resolve().parent.parent / "clusters.yaml"

COORDINATORS: tuple[str, ...] = get_args(cluster_model.Coordinator)


def timetable(schedule: str | None) -> CronTriggerTimetable | None:
    """The times of a schedule in UTC, each its own data interval.

    Of a bare expression Airflow would make intervals as a setting of the deployment says, and with them windows.
    """
    return None if schedule is None else CronTriggerTimetable(schedule, timezone="UTC")


class ClusterFileError(ValueError):
    """The cluster file cannot be used; the message names the file, the key and the expected value."""


class Cluster(Entry):
    """One entry of the cluster file, defaults applied, paths absolute."""

    name: str

    def state_path(self, *names: str) -> str:
        """Place below that of the cluster's state, which every worker finds."""
        from coordinator_core import storage

        place = storage.join(self.state or self.output, self.name, *names)
        return str(storage.local_path(place)) if storage.is_local(place) else place

    def asset(self, what: Literal["offsets", "audited", "compacted"]) -> Asset:
        """The asset whose event says that a new run was published, that the gate has let one through, or that a
        compacted log was published."""
        return Asset(name=f"{self.name}-{what}", uri=f"regroup://{self.name}/{what}")


@dataclass(frozen=True, slots=True)
class ClusterFile:
    """A checked cluster file: ``clusters`` by name, in file order; ``root`` where relative paths start.

    ``problems`` has, by name, the errors of entries that cannot be used; they are not among ``clusters``. ``retries``
    and ``retry_delay_seconds`` (doubled after each attempt) are those of every task.
    """

    path: Path
    root: Path
    clusters: dict[str, Cluster]
    pool: str
    retries: int
    retry_delay_seconds: int
    problems: Mapping[str, str]

    def dag_arguments(
        self, name: str | None = None, *, tag: str = "offsets", approval_hours: int = 0, limited: bool = True
    ) -> dict[str, Any]:
        """Entry of the cluster file for the DAG of a cluster, or (no ``name``) for one on request of all clusters.

        On request the longest timeouts of all clusters hold. A run may wait ``approval_hours`` for a person besides.
        A DAG that is not ``limited`` has no timeouts: Airflow skips the remaining tasks of a run that has timed out,
        its teardown, too.
        """
        named = list(self.clusters.values()) if name is None else [self.clusters[name]]
        task_minutes = _longest(one.timeouts.task_minutes for one in named) if limited else None
        run_minutes = _longest(one.timeouts.run_minutes for one in named) if limited else None
        return {
            "default_args": {
                "owner": "regroup",
                "pool": self.pool if name is None else self.clusters[name].pool,
                "retries": self.retries,
                "retry_delay": timedelta(seconds=self.retry_delay_seconds),
                "retry_exponential_backoff": 2.0,
                "max_retry_delay": timedelta(minutes=30),
                "execution_timeout": None if task_minutes is None else timedelta(minutes=task_minutes),
            },
            "dagrun_timeout": None if run_minutes is None else timedelta(minutes=run_minutes, hours=approval_hours),
            "catchup": False,
            "tags": ["regroup", tag, *([] if name is None else [name])],
            "on_failure_callback": ClusterNotifier("failure", name),
            "on_success_callback": ClusterNotifier("success", name),
        }

    def located(self, path: str) -> str:
        """``path`` of a form itself when it is a URI or absolute, else below the root."""
        try:
            return cluster_model.located(path, self.root)
        except ValueError as error:
            raise AirflowFailException(str(error)) from None


def _longest(minutes: Iterable[int | None]) -> int | None:
    """The longest time; ``None``, for no limit, where one has none."""
    found = list(minutes)
    limits = [one for one in found if one is not None]
    return max(limits) if len(limits) == len(found) else None


class ClusterNotifier(BaseNotifier):
    """Tells the notifiers of a cluster.

    :param when: ``failure`` or ``success``
    :param name: the cluster; by default that of the run's form
    """

    def __init__(self, when: str, name: str | None = None) -> None:
        super().__init__()
        self.when = when
        self.name = name

    def render_template_fields(self, context: Context, jinja_env: Any = None) -> None:
        """There are none, and what ``airflow dags test`` calls a DAG here cannot render any."""

    def notify(self, context: Context) -> None:
        name = self.name or context["params"]["cluster"]
        failed = []
        for settings in load_clusters().clusters[name].notify:
            if settings.when == self.when:
                # One that cannot tell keeps no other one from it.
                try:
                    settings.made()(context)
                except Exception as error:
                    log.exception("%s has failed", settings.notifier)
                    failed.append(error)
        if failed:
            raise failed[0]


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
    # Of a tag that does not fit its value PyYAML raises a bare ValueError.
    except (yaml.YAMLError, ValueError) as error:
        raise ClusterFileError(f"cluster file {file} is not valid YAML: {error}") from None

    if not isinstance(document, dict):
        raise ClusterFileError(f"cluster file {file}: expected keys and values, found {shown(document)}")
    root = Path(os.path.normpath(file.resolve().parent / str(document.get("root") or ".")))
    problems: dict[str, str] = {}
    try:
        read = _validated(document, root)
    except ValidationError as error:
        elsewhere, problems = _told(file, error)
        if elsewhere:
            raise ClusterFileError("\n".join(elsewhere)) from None
        sound = {name: one for name, one in document["clusters"].items() if str(name) not in problems}
        if not sound:
            raise ClusterFileError("\n".join(problems.values())) from None
        read = _validated({**document, "clusters": sound}, root)
    if not read.clusters:
        raise ClusterFileError(f"cluster file {file}: clusters: name at least one cluster")
    return ClusterFile(
        path=file,
        root=root,
        clusters={name: Cluster.model_construct(name=name, **dict(entry)) for name, entry in read.clusters.items()},
        pool=read.pool,
        retries=read.retries,
        retry_delay_seconds=read.retry_delay_seconds,
        problems=problems,
    )


def _validated(document: dict[str, Any], root: Path) -> Document:
    return Document.model_validate(document, context={"root": root})


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


def _time(loader: _UniqueKeys, node: yaml.ScalarNode) -> Any:
    """A date; the text where there is no such day, so that the key that has it is named, and other entries stay."""
    try:
        return loader.construct_yaml_timestamp(node)
    except ValueError:
        return node.value


_UniqueKeys.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _unique_mapping)
_UniqueKeys.add_constructor("tag:yaml.org,2002:timestamp", _time)


def _told(file: Path, error: ValidationError) -> tuple[list[str], dict[str, str]]:
    """Errors outside of ``clusters``, and errors by name of the cluster."""
    elsewhere: list[str] = []
    found: dict[str, list[str]] = {}
    for one in error.errors(include_url=False):
        is_entry = one["loc"][:1] == ("clusters",) and len(one["loc"]) > 1
        told = found.setdefault(str(one["loc"][1]), []) if is_entry else elsewhere
        where, problem = _problem(one["loc"], one["input"], one["type"], msg=one["msg"], **one.get("ctx", {}))
        told.append(f"cluster file {file}: {where + ': ' if where else ''}{problem}")
    return elsewhere, {name: "\n".join(told) for name, told in found.items()}


_EXPECTED = {
    "missing": "missing",
    "too_short": "missing",
    "extra_forbidden": "unknown key",
    "model_type": "expected keys and values, found {found}",
    "dict_type": "expected keys and values, found {found}",
    "string_type": "expected text, found {found}; quote it if YAML reads it otherwise",
    "string_pattern_mismatch": "expected text, found {found}; quote it if YAML reads it otherwise",
    "int_type": "expected a whole number, found {found}",
    "greater_than_equal": "expected a whole number, at least {ge}, found {found}",
    "less_than_equal": "expected a whole number, at most {le}, found {found}",
    "bool_type": "expected true or false, found {found}",
    "literal_error": "expected {expected}, found {found}",
    "value_error": "{error}",
}
"""By pydantic's type of an error; its own words elsewhere."""


def _problem(loc: Sequence[int | str], found: Any, kind: str, **context: Any) -> tuple[str, str]:
    """Place of an error of pydantic, and the value that was expected there."""
    place = [str(part) for part in loc]
    if kind == "invalid_key" or place[-1:] == ["[key]"]:
        # Of a mapping, pydantic names key and "[key]"; of a section the key alone.
        name = place[: -1 if place[-1] == "[key]" else None]
        if isinstance(found, str):
            return ".".join(name), "a cluster name is at most 64 of a-z 0-9 _ -, not starting with _ or -"
        return ".".join(name[:-1]), f"key {name[-1]} is not text; quote it"
    return ".".join(place), _EXPECTED.get(kind, "{msg}").format(found=shown(found), **context)
