"""The Spark session of an app."""

from __future__ import annotations

import os
import sys

import pyarrow as pa
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

MAX_ROWS_PER_BATCH = 64
"""Rows per Arrow batch that crosses to a Python worker; ours hold up to ``tasks.CHUNK_BYTES`` each."""


LOOPBACK = "127.0.0.1"


def build_session(name: str, master: str | None = None) -> SparkSession:
    """The session, in UTC. ``master`` is for runs without ``spark-submit``, which names one itself.

    On a local master Spark listens on 127.0.0.1 only, and workers are the interpreter that runs the driver;
    on any other the cluster's own settings hold.
    """
    if master is None and "PYSPARK_GATEWAY_PORT" not in os.environ:
        master = "local[*]"
    if master is not None and master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)
    if master is None:
        SparkContext._ensure_initialized()  # spark-submit has set the master in its JVM already.
        master = SparkConf().get("spark.master", None) or "local[*]"
    builder = SparkSession.builder.appName(name).master(master)
    settings = {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.maxRecordsPerBatch": str(MAX_ROWS_PER_BATCH),
        "spark.ui.showConsoleProgress": "false",
    }
    if master.startswith("local"):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        settings |= {
            "spark.driver.bindAddress": LOOPBACK,
            "spark.driver.host": LOOPBACK,
            "spark.ui.enabled": "false",
        }
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def spark_schema(schema: pa.Schema) -> StructType:
    """The Spark schema of an Arrow schema, nullability included."""
    return from_arrow_schema(schema)
