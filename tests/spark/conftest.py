"""One Spark session for all tests of this directory: starting one takes longer than most replays."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from spark_apps.session import Session


@pytest.fixture(scope="session")
def session() -> Iterator[Session]:
    session = Session("regroup-tests", "local[2]")
    yield session
    session.stop()
    session.close()
