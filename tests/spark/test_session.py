from __future__ import annotations

import socket
import sys
from queue import Queue
from types import SimpleNamespace
from typing import cast

import pyspark
import pytest
from pyspark import SparkContext
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from coordinator_core.runs.schemas import TABLES, TableSchema
from spark_apps.engine import in_tasks
from spark_apps.exits import last_line
from spark_apps.session import Session


def test_spark_says_nothing_more_once_the_app_has_ended() -> None:
    """The JVM ends with the process, often in the midst of Spark's own end, which would log that as errors."""
    told: Queue[str] = Queue()
    ended = Session.__new__(Session)
    ended._context = cast(
        SparkContext, SimpleNamespace(setLogLevel=told.put, stop=lambda: told.put("stop"), applicationId="a")
    )
    ended.__exit__()
    assert [told.get(timeout=60) for _ in range(2)] == ["OFF", "stop"]


def test_times_are_utc(session: Session) -> None:
    assert session.context.getConf().get("spark.sql.session.timeZone") == "UTC"


def test_a_local_master_listens_on_loopback_only(session: Session) -> None:
    settings = session.context.getConf()
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


def test_workers_of_a_local_master_are_light(session: Session) -> None:
    """They have PySpark from where this interpreter has it, and no pandas."""

    def look(_: int) -> tuple[str, str, bool]:
        import pyspark

        return sys.executable, pyspark.__file__, "pandas" in sys.modules

    assert in_tasks(session.context, look, [1, 2]) == [(sys.executable, pyspark.__file__, False)] * 2


def test_workers_have_one_allocator(session: Session) -> None:
    """What C++ takes from Arrow's own pool (reads of files) comes from that of the process, too."""

    def taken(_: int) -> tuple[int, int]:
        import tempfile

        import pyarrow as pa
        from pyarrow.fs import LocalFileSystem

        with tempfile.NamedTemporaryFile() as file:
            file.write(bytes(1 << 20))
            file.flush()
            with LocalFileSystem().open_input_file(file.name) as source:
                held = source.read_buffer(1 << 20)
                return held.size, pa.system_memory_pool().bytes_allocated()

    for size, allocated in in_tasks(session.context, taken, [1, 2]):
        assert size <= allocated


def test_tasks_answer_in_order(session: Session) -> None:
    assert in_tasks(session.context, str, range(5)) == ["0", "1", "2", "3", "4"]
    assert in_tasks(session.context, str, []) == []


def test_what_a_task_raised_is_told_in_one_line(session: Session) -> None:
    def fail(item: int) -> None:
        raise ValueError(f"number {item}")

    with pytest.raises(Exception, match="number 3") as caught:
        in_tasks(session.context, fail, [3])
    assert last_line(caught.value) == "ValueError: number 3"


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_spark_schemas_derive_from_the_arrow_schemas(table: TableSchema) -> None:
    schema = from_arrow_schema(table.arrow)
    assert isinstance(schema, StructType)
    assert [(field.name, field.nullable) for field in schema] == [(field.name, field.nullable) for field in table.arrow]
