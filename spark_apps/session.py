"""Spark for an app: settings, the JVM, and savings at its start.

Apps use Spark's core alone. Its SQL engine takes as long to start as everything else together, and what goes
through Spark here are tasks and their short answers.
"""

from __future__ import annotations

import logging
import os
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Thread
from typing import TYPE_CHECKING, Any, ClassVar, Self

from coordinator_core.process.plain import is_plain
from spark_apps.classdata import ClassData

if TYPE_CHECKING:
    from pyspark import SparkContext

LOOPBACK = "127.0.0.1"
_STANDARD_ERROR = 2
LOCAL = "local[*]"

_COMMON = {
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.showConsoleProgress": "false",
}
_LOCAL = {
    "spark.driver.bindAddress": LOOPBACK,
    "spark.driver.host": LOOPBACK,
    "spark.ui.enabled": "false",
}
_JVM_OPTIONS = ("-XX:+IgnoreUnrecognizedVMOptions", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""For a JVM that lives for seconds: its second compiler takes longer than it would gain."""


class Session:
    """Spark on its way up: made at once, so that the JVM starts while the app does something else.

    ``master`` is for runs without ``spark-submit``, which names one itself and brings its own JVM. On a local
    master Spark listens on 127.0.0.1 only, and workers are the interpreter that runs the driver; on any other
    the cluster's own settings hold.
    """

    application_id: ClassVar[str | None] = None
    """Spark's id of the app of this process, once it has begun."""

    def __init__(self, name: str, master: str | None = None) -> None:
        self._submitted = "PYSPARK_GATEWAY_PORT" in os.environ
        if master is None and not self._submitted:
            master = LOCAL
        self._name, self._master = name, master
        self._class_data: ClassData | None = None
        if master is not None and master.startswith("local"):
            os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)
            os.environ.setdefault("SPARK_LAUNCHER_OPTS", " ".join(_JVM_OPTIONS))
            if not self._submitted:
                self._class_data = ClassData()
        # Of an interrupt, which the app says in a line, py4j prints a traceback where nobody listens to it.
        logging.getLogger("py4j").addHandler(logging.NullHandler())
        with_jvm = ThreadPoolExecutor(1)
        self._gateway: Future[Any] = with_jvm.submit(self._start_jvm)
        with_jvm.shutdown(wait=False)
        self._context: SparkContext | None = None

    def _start_jvm(self) -> Any:
        from pyspark import SparkConf
        from pyspark.java_gateway import launch_gateway

        conf = SparkConf(loadDefaults=False).setAll(list(_COMMON.items()))
        if self._class_data is not None:
            options = [*_JVM_OPTIONS, *self._class_data.jvm_options()]
            conf.set("spark.driver.extraJavaOptions", " ".join(options))
        # Standard output is the app's; its readers need not wait for the JVM to end.
        return launch_gateway(conf, {"stdout": _STANDARD_ERROR})  # type: ignore[no-untyped-call]

    @property
    def context(self) -> SparkContext:
        """The Spark context; the first use waits for it."""
        if self._context is None:
            self._context = self._start()
        return self._context

    def _start(self) -> SparkContext:
        from pyspark import SparkConf, SparkContext

        gateway = self._gateway.result()
        # spark-submit has set the master in its JVM already.
        master = self._master or gateway.jvm.System.getProperty("spark.master") or LOCAL
        settings = dict(_COMMON)
        if not is_plain("allocator"):
            settings["spark.executorEnv.ARROW_DEFAULT_MEMORY_POOL"] = "system"
        if master.startswith("local"):
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
            settings |= _LOCAL
            if not is_plain("workers"):
                settings["spark.python.daemon.module"] = "spark_apps.workers"
        conf = SparkConf(loadDefaults=False).setMaster(master).setAppName(self._name).setAll(list(settings.items()))
        context = SparkContext(conf=conf, gateway=gateway)
        Session.application_id = context.applicationId
        context.setLogLevel("ERROR")
        return context

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End the app for Spark. Does not wait: the JVM ends with this process at the latest."""
        if self._context is not None:
            # Python's side of it waits a second for nothing.
            Thread(target=_stop, args=(self._context,), daemon=True).start()

    def close(self) -> None:
        """Keep the class archive, by which the next session starts faster; call when nothing is left to do."""
        if self._class_data is not None and self._gateway.done() and not self._gateway.exception():
            self._class_data.keep(self._gateway.result().proc)


def _stop(context: SparkContext) -> None:
    # The JVM may end in the midst of it, and would call that an error, behind the last line of an app that did well.
    context.setLogLevel("OFF")
    context.stop()
