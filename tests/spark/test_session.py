from __future__ import annotations

import socket

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from coordinator_core.runs.schemas import TABLES, TableSchema
from spark_apps.session import spark_schema


def test_times_are_utc(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"


def test_a_local_master_listens_on_loopback_only(spark: SparkSession) -> None:
    settings = spark.sparkContext.getConf()
    assert settings.get("spark.driver.bindAddress") == "127.0.0.1"
    port = int(settings.get("spark.driver.port") or 0)
    with socket.create_connection(("127.0.0.1", port), timeout=10):
        pass
    other = {address[4][0] for address in socket.getaddrinfo(socket.gethostname(), None)} - {
        "127.0.0.1",
        "::1",
    }
    for address in other:
        with pytest.raises(OSError, match=r"refused|timed out|unreachable"):
            socket.create_connection((address, port), timeout=10)


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_spark_schemas_derive_from_the_arrow_schemas(table: TableSchema) -> None:
    schema = spark_schema(table.arrow)
    assert isinstance(schema, StructType)
    assert [(field.name, field.nullable) for field in schema] == [
        (field.name, field.nullable) for field in table.arrow
    ]
