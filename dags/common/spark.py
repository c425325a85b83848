"""``spark-submit`` of our apps: which master, which Python, and what an exit code means for a retry."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.sdk import BaseOperator, Connection, Context
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowNotFoundException

from dags.common.attempts import attempt_id
from dags.common.clusters import load_clusters

SUBMIT = "spark-submit"
APPS_ENV = "REGROUP_SPARK_APPS"
BUNDLED_APPS = Path(__file__).resolve().parent.parent.parent / "spark_apps"

# docs/cli.md: another attempt with the same arguments and the same bytes ends the same way.
FINAL_EXIT_CODES = {
    2: "the app does not accept its arguments",
    3: "the input is damaged",
    4: "the proof failed",
}

ENVIRONMENT = "environment"
"""Directory, in that of an executor, that Spark unpacks the Python environment into."""

OUTCOMES_DIRECTORY = "_outcomes"
"""Directory of a cluster's state where an app leaves how it ended, until its task has read it."""


def _environment_conf(archive: str | None, *, driver_is_here: bool) -> dict[str, str]:
    """Properties by which executors run the Python of that archive, and a driver on the worker that of the worker."""
    if archive is None:
        return {}
    conf = {"spark.pyspark.python": f"./{ENVIRONMENT}/bin/python"}
    # Else the driver would take the same path.
    return {**conf, "spark.pyspark.driver.python": sys.executable} if driver_is_here else conf


def _environment() -> dict[str, str]:
    """Environment of ``spark-submit``."""
    env = dict(os.environ)
    env.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    # The driver runs the core that the tasks run, also from a checkout that is not installed.
    core = importlib.util.find_spec("coordinator_core")
    if core is not None and core.origin is not None:
        places = [str(Path(core.origin).parent.parent), *filter(None, [env.get("PYTHONPATH")])]
        env["PYTHONPATH"] = os.pathsep.join(places)
    return env


def _taken_outcome(path: str) -> dict[str, Any] | None:
    """What the app left of how it ended, which is taken away; ``None`` where it came to no end."""
    from coordinator_core import files, storage

    if not storage.exists(path):
        return None
    outcome: dict[str, Any] = files.read_json(path)
    storage.delete(path)
    return outcome


class SparkAppHook(SparkSubmitHook):
    """The provider's hook, with ``local[*]`` where no connection says otherwise: the provider would take YARN."""

    @classmethod
    def get_connection(cls, conn_id: str) -> Connection:
        try:
            return super().get_connection(conn_id)
        except AirflowNotFoundException:
            return Connection(conn_id=conn_id, conn_type="spark", host="local[*]")


class SparkAppOperator(BaseOperator):
    """Runs ``spark_apps/<app>.py`` with the Spark settings of the cluster named by the run's params.

    Adds ``--run-id``, new for every attempt, so that no attempt can touch what an earlier one published; not
    for an app whose results have one place (``has_run_id`` is false).
    Fails without a retry when the app says that another attempt cannot end differently: in a file, since in deploy mode
    ``cluster``, which the connection may name, nobody here sees its exit code.
    Returns ``{"run_id", "seconds"}``.

    Where ``spark-submit`` is not on the PATH of the worker, that of the interpreter that runs the task is taken.

    :param app: name of the app (templated)
    :param application_args: its arguments, without the run id (templated)
    :param has_run_id: whether the app takes a run id
    """

    template_fields: Sequence[str] = ("app", "application_args")

    def __init__(
        self, *, app: str, application_args: Sequence[str] = (), has_run_id: bool = True, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.app = app
        self.application_args = application_args
        self.has_run_id = has_run_id
        self._hook: SparkAppHook | None = None

    def execute(self, context: Context) -> dict[str, Any]:
        import time

        cluster = load_clusters().clusters[context["params"]["cluster"]]
        spark = cluster.spark
        run_id = attempt_id(context["run_id"], context["ti"].try_number)
        unpacked = [f"{spark.environment}#{ENVIRONMENT}"] if spark.environment else []
        # Tasks of one expansion have one run id.
        index = context["ti"].map_index
        outcome_name = f"{self.app}-{run_id}{'' if index is None or index < 0 else f'-{index}'}.json"
        outcome_path = cluster.state_path(OUTCOMES_DIRECTORY, outcome_name)
        mode = SparkAppHook.get_connection(spark.connection).extra_dejson.get("deploy-mode")
        self._hook = SparkAppHook(
            conf={**_environment_conf(spark.environment, driver_is_here=mode != "cluster"), **spark.conf},
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
                *("--outcome", outcome_path),
            ],
            spark_binary=None if shutil.which(SUBMIT) else str(Path(sys.executable).with_name(SUBMIT)),
        )
        application = Path(os.environ.get(APPS_ENV) or BUNDLED_APPS) / f"{self.app}.py"
        began = time.monotonic()
        try:
            self._hook.submit(str(application), env=_environment())
        except AirflowException as error:
            outcome = _taken_outcome(outcome_path)
            reason = FINAL_EXIT_CODES.get(outcome["exit_code"]) if outcome else None
            if outcome and reason:
                raise AirflowFailException(f"{self.app}: {reason}, so no retry: {outcome['error']}") from error
            raise
        outcome = _taken_outcome(outcome_path)
        if outcome is None or outcome["exit_code"] != 0:
            raise AirflowException(f"{self.app}: spark-submit ended well, the app did not: {outcome_path}, {outcome}")
        return {"run_id": run_id, "seconds": round(time.monotonic() - began, 3)}

    def on_kill(self) -> None:
        if self._hook is not None:
            self._hook.on_kill()
