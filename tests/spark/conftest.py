"""One Spark session for all tests of this directory: starting one takes longer than most replays."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from spark_apps.session import build_session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = build_session("regroup-tests", "local[2]")
    yield session
    session.stop()
