"""``spark-submit`` of our apps: which master, which Python, and what an exit code means for a retry."""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import BaseOperator, BaseOperatorLink, Connection, Context
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowNotFoundException

from dags.common.attempts import attempt_id
from dags.common.cluster_model import DEFAULT_CONNECTION
from dags.common.clusters import load_clusters
from dags.common.command import FINAL_EXIT_CODES, ROOT
from dags.common.links import spark_address

APPS_ENV = "REGROUP_SPARK_APPS"
BUNDLED_APPS = ROOT / "spark_apps"

ENVIRONMENT = "environment"
"""Directory, in that of an executor, that Spark unpacks the Python environment into."""

OUTCOMES_DIRECTORY = "_outcomes"
"""Directory of a cluster's state where an app leaves how it ended, until its task has read it."""


RUN_ID = "regroup_run_id"
"""Key of the task's state, beside the provider's: the run id of the app that it has submitted."""

ARGUMENTS = "regroup_arguments"
"""Key of the task's state: digest of that app's name and arguments, without what is new for every attempt."""


def _environment_conf(archive: str | None, *, driver_is_here: bool) -> dict[str, str]:
    """Properties by which executors run the Python of that archive, and a driver on the worker that of the worker."""
    if archive is None:
        return {}
    conf = {"spark.pyspark.python": f"./{ENVIRONMENT}/bin/python"}
    # Else the driver would take the same path.
    return {**conf, "spark.pyspark.driver.python": sys.executable} if driver_is_here else conf


@contextmanager
def _environment(connection: str) -> Iterator[None]:
    """Environment in which ``spark-submit`` is looked for and runs.

    Without the connection there is one with master ``local[*]``: the provider would take YARN.
    """
    driver = {"PYSPARK_DRIVER_PYTHON": os.environ.get("PYSPARK_DRIVER_PYTHON", sys.executable)}
    # The driver runs the core that the tasks run, also from a checkout that is not installed.
    core = importlib.util.find_spec("coordinator_core")
    if core is not None and core.origin is not None:
        driver["PYTHONPATH"] = _joined(str(Path(core.origin).parent.parent), os.environ.get("PYTHONPATH"))
    driver["PATH"] = _joined(os.environ.get("PATH"), str(Path(sys.executable).parent))
    if _extra(connection) is None:
        driver[f"AIRFLOW_CONN_{connection.upper()}"] = json.dumps({"conn_type": "spark", "host": "local[*]"})
    before = {name: os.environ.get(name) for name in driver}
    os.environ.update(driver)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _joined(*places: str | None) -> str:
    return os.pathsep.join(filter(None, places))


def _extra(connection: str) -> dict[str, Any] | None:
    """The extra of an Airflow connection; ``None`` where there is no such connection."""
    try:
        found: dict[str, Any] = Connection.get(connection).extra_dejson
    except AirflowNotFoundException:
        return None
    return found


def _tracking(extra: Mapping[str, Any], conf: Mapping[str, str]) -> dict[str, bool]:
    """The provider's ways to follow a driver in deploy mode ``cluster``, where the connection suffices for them.

    An app that is followed through the API of its cluster goes on without its worker: the next attempt finds it.
    """
    if extra.get("deploy-mode") != "cluster":
        return {}
    through_yarn = bool(extra.get("yarn_resourcemanager_webapp_address"))
    through_kubernetes = bool(extra.get("namespace") or conf.get("spark.kubernetes.namespace"))
    return {
        "yarn_track_via_rm_api": through_yarn,
        "track_driver_via_k8s_api": through_kubernetes,
        "durable": through_yarn or through_kubernetes,
    }


def _taken_outcome(path: str) -> dict[str, Any] | None:
    """Outcome that the app left, which is removed; ``None`` where the app came to no end."""
    from coordinator_core import files, storage

    if not storage.exists(path):
        return None
    outcome: dict[str, Any] = files.read_json(path)
    storage.delete(path)
    return outcome


class SparkLink(BaseOperatorLink):
    """The app in Spark's history server, where the cluster file names one."""

    name = "Spark UI"

    def get_link(self, operator: BaseOperator, *, ti_key: Any) -> str:
        assert isinstance(operator, SparkAppOperator)
        return operator.link


class _Submission(SparkSubmitOperator):
    """The provider's operator, which notes under which run id, and with which arguments, it has submitted."""

    def __init__(self, *, run_id: str, arguments_digest: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.run_id = run_id
        self.arguments_digest = arguments_digest

    def submit_job(self, context: Context) -> str | None:
        if (store := context.get("task_state_store")) is not None:
            store.set(RUN_ID, self.run_id)
            store.set(ARGUMENTS, self.arguments_digest)
        return super().submit_job(context)


class SparkAppOperator(BaseOperator):
    """Runs ``spark_apps/<app>.py`` with the Spark settings of the cluster named by the run's params.

    Adds ``--run-id``, new for every attempt, so that no attempt can touch the run of an earlier one; not for an app
    whose results have one place (``has_run_id`` is false). Fails without a retry when the app says that another attempt
    cannot end differently: in a file, since in deploy mode ``cluster``, which the connection may name, nobody here sees
    its exit code. An app whose driver runs in YARN or Kubernetes goes on when the worker is lost; the next attempt
    follows it again, unless it was submitted with other arguments: a task that is cleared with those before it submits
    anew. Returns ``{"run_id", "seconds"}``.

    Where ``spark-submit`` is not on the PATH of the worker, that of the interpreter that runs the task is taken.

    :param app: name of the app (templated)
    :param application_args: its arguments, without the run id (templated)
    :param has_run_id: whether the app takes a run id
    """

    template_fields: Sequence[str] = ("app", "application_args")
    operator_extra_links = (SparkLink(),)

    def __init__(
        self, *, app: str, application_args: Sequence[str] = (), has_run_id: bool = True, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.app = app
        self.application_args = application_args
        self.has_run_id = has_run_id
        self.link = ""
        self._submission: _Submission | None = None

    def execute(self, context: Context) -> dict[str, Any]:
        import time

        cluster = load_clusters().clusters[context["params"]["cluster"]]
        spark = cluster.spark
        run_id = attempt_id(context["run_id"], context["ti"].try_number)
        # Tasks of one expansion have one run id.
        index = context["ti"].map_index
        suffix = "" if index is None or index < 0 else f"-{index}"

        def outcome_path(run_id: str) -> str:
            name = f"{self.app}-{run_id}{suffix}.json"
            return cluster.state_path(OUTCOMES_DIRECTORY, name)

        unpacked = [f"{spark.environment}#{ENVIRONMENT}"] if spark.environment else []
        found = _extra(spark.connection)
        if found is None and spark.connection != DEFAULT_CONNECTION:
            raise AirflowFailException(
                f"Airflow has no connection {spark.connection}, which the cluster file names as spark.connection of "
                f"cluster {cluster.name}"
            )
        extra = found or {}
        is_here = extra.get("deploy-mode") != "cluster"
        digest = hashlib.sha256(json.dumps([self.app, *self.application_args]).encode()).hexdigest()
        self._submission = _Submission(
            task_id=self.task_id,
            run_id=run_id,
            arguments_digest=digest,
            application=str(Path(os.environ.get(APPS_ENV) or BUNDLED_APPS) / f"{self.app}.py"),
            conf={**_environment_conf(spark.environment, driver_is_here=is_here), **spark.conf},
            conn_id=spark.connection,
            py_files=",".join(spark.py_files) or None,
            archives=",".join([*unpacked, *spark.archives]) or None,
            packages=",".join(spark.packages) or None,
            driver_memory=spark.driver_memory,
            executor_memory=spark.executor_memory,
            executor_cores=spark.executor_cores,
            num_executors=spark.num_executors,
            name=f"regroup-{cluster.name}-{self.app}",
            application_args=[
                *self.application_args,
                *(["--run-id", run_id] if self.has_run_id else []),
                *("--outcome", outcome_path(run_id)),
            ],
            **_tracking(extra, spark.conf),
        )
        store = context.get("task_state_store")
        if store is not None and (earlier := store.get(RUN_ID)) and store.get(ARGUMENTS) != digest:
            self.log.warning("the app of run %s had other arguments: it is not followed, nor its run taken", earlier)
            store.clear()
        began = time.monotonic()
        failure = None
        with _environment(spark.connection):
            try:
                # Airflow warns of an operator that another one executes.
                inspect.unwrap(SparkSubmitOperator.execute)(self._submission, context)
            except (AirflowException, RuntimeError) as error:
                failure = error
        # An app that an earlier attempt has submitted has the run id of that attempt.
        submitted = run_id if store is None else str(store.get(RUN_ID) or run_id)
        outcome = _taken_outcome(outcome_path(submitted))
        if outcome is not None:
            self.link = spark_address(cluster, outcome.get("application_id"))
        # Else its cluster did not answer, and the next attempt asks it again.
        if store is not None and (outcome is not None or failure is None):
            store.clear()
        if failure is not None:
            if outcome is None:
                raise failure
            # What the app says, alone: that error repeats the command and the last lines of Spark.
            if reason := FINAL_EXIT_CODES.get(outcome["exit_code"]):
                raise AirflowFailException(f"{self.app}: {reason}, so no retry: {outcome['error']}") from None
            raise AirflowException(f"{self.app}: exit code {outcome['exit_code']}: {outcome['error']}") from None
        if outcome is None or outcome["exit_code"] != 0:
            where = outcome_path(submitted)
            raise AirflowException(f"{self.app}: spark-submit ended well, the app did not: {where}, {outcome}")
        return {"run_id": submitted, "seconds": round(time.monotonic() - began, 3)}

    def on_kill(self) -> None:
        if self._submission is not None:
            self._submission.on_kill()
