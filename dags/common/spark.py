"""``spark-submit`` of our apps: which master, which Python, and what an exit code means for a retry."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import Connection, Context
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowNotFoundException

from dags.common.attempts import attempt_id
from dags.common.clusters import load_clusters

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

_SPARK_LOG = re.compile(r"\d\d/\d\d/\d\d \d\d:\d\d:\d\d [A-Z]+ ")


def _environment_conf(archive: str | None) -> dict[str, str]:
    """Properties by which executors run the Python of that archive, and the driver the one of the worker."""
    if archive is None:
        return {}
    return {
        "spark.pyspark.python": f"./{ENVIRONMENT}/bin/python",
        # Else the driver would take the same path.
        "spark.pyspark.driver.python": sys.executable,
    }


class SparkAppHook(SparkSubmitHook):
    """The provider's hook in client mode, with ``local[*]`` where no connection says otherwise.

    The provider takes a missing connection for YARN, and expects ``spark-submit`` and the right Python on
    the PATH of the worker; here both are those of the interpreter that runs the task.
    """

    @classmethod
    def get_connection(cls, conn_id: str) -> Connection:
        try:
            return super().get_connection(conn_id)
        except AirflowNotFoundException:
            return Connection(conn_id=conn_id, conn_type="spark", host="local[*]")

    @property
    def exit_code(self) -> int | None:
        """Exit code of ``spark-submit``, which in client mode is the app's own."""
        return None if self._submit_sp is None else self._submit_sp.returncode

    @property
    def last_lines(self) -> list[str]:
        """The end of what the app and Spark printed."""
        return list(self._last_submit_log_lines)

    def submit(self, application: str = "", **kwargs: Any) -> str | None:
        return super().submit(application, env=self._environment(), **kwargs)

    def _get_spark_binary_path(self) -> list[str]:
        binary = self._connection["spark_binary"]
        beside = Path(sys.executable).with_name(binary)
        return [shutil.which(binary) or str(beside)]

    def _environment(self) -> dict[str, str]:
        env = dict(os.environ)
        env.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
        # The driver runs the core that the tasks run, also from a checkout that is not installed.
        core = importlib.util.find_spec("coordinator_core")
        if core is not None and core.origin is not None:
            places = [str(Path(core.origin).parent.parent), *filter(None, [env.get("PYTHONPATH")])]
            env["PYTHONPATH"] = os.pathsep.join(places)
        return env


class SparkAppOperator(SparkSubmitOperator):
    """Runs ``spark_apps/<app>.py`` with the Spark settings of the cluster named by the run's params.

    Adds ``--run-id``, new for every attempt, so that no attempt can touch what an earlier one published; not
    for an app whose results have one place (``has_run_id`` is false).
    Fails without a retry when the app says that another attempt cannot end differently.
    Returns ``{"run_id", "seconds"}``.

    :param app: name of the app (templated)
    :param application_args: its arguments, without the run id (templated)
    :param has_run_id: whether the app takes a run id
    """

    template_fields: Sequence[str] = (*SparkSubmitOperator.template_fields, "app")

    def __init__(self, *, app: str, has_run_id: bool = True, **kwargs: Any) -> None:
        super().__init__(deploy_mode="client", name="regroup-{{ params.cluster }}-" + app, **kwargs)
        self.app = app
        self.has_run_id = has_run_id

    def execute(self, context: Context) -> dict[str, Any]:
        import time

        spark = load_clusters().clusters[context["params"]["cluster"]].spark
        self._conn_id = spark.connection
        self.conf = {**_environment_conf(spark.environment), **spark.conf, **(self.conf or {})}
        unpacked = [f"{spark.environment}#{ENVIRONMENT}"] if spark.environment else []
        self._archives = ",".join([*unpacked, *spark.archives]) or self._archives
        self.py_files = ",".join(spark.py_files) or self.py_files
        self.packages = ",".join(spark.packages) or self.packages
        self._driver_memory = spark.driver_memory
        self._executor_memory = spark.executor_memory
        self._executor_cores = spark.executor_cores
        self._num_executors = spark.num_executors

        run_id = attempt_id(context["run_id"], context["ti"].try_number)
        self.application = str(Path(os.environ.get(APPS_ENV) or BUNDLED_APPS) / f"{self.app}.py")
        if self.has_run_id:
            self.application_args = [*(self.application_args or []), "--run-id", run_id]

        began = time.monotonic()
        try:
            super().execute(context)
        except AirflowException as error:
            hook = self._get_hook()
            reason = FINAL_EXIT_CODES.get(hook.exit_code or 0)
            if reason is None:
                raise
            said = "\n".join(line for line in hook.last_lines if not _SPARK_LOG.match(line))
            raise AirflowFailException(f"{self.app}: {reason}, so no retry: {said}") from error
        return {"run_id": run_id, "seconds": round(time.monotonic() - began, 3)}

    def _get_hook(self) -> SparkAppHook:
        if not isinstance(self._hook, SparkAppHook):
            self._hook = SparkAppHook(
                conf=self.conf,
                conn_id=self._conn_id,
                files=self.files,
                py_files=self.py_files,
                archives=self._archives,
                jars=self.jars,
                packages=self.packages,
                driver_memory=self._driver_memory,
                executor_memory=self._executor_memory,
                executor_cores=self._executor_cores,
                num_executors=self._num_executors,
                name=self.name,
                application_args=self.application_args,
                verbose=self._verbose,
                deploy_mode=self._deploy_mode,
            )
        return self._hook
