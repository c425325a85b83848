"""One Spark session for all tests of this directory: starting one takes longer than most replays."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from coordinator_core.process.plain import PLAIN
from spark_apps.session import Session


@pytest.fixture(scope="session")
def session() -> Iterator[Session]:
    with pytest.MonkeyPatch.context() as patch:
        # Its end would wait for the archive of classes to be written.
        patch.setenv(PLAIN, "class-archive")
        session = Session("regroup-tests", "local[2]")
        assert session.context.defaultParallelism == 2
    with session:
        yield session


@pytest.fixture
def shared(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """An app uses the session of all tests, and leaves it running."""

    class Shared:
        context = session.context

        def __init__(self, *_: object) -> None: ...
        def __enter__(self) -> Shared:
            return self

        def __exit__(self, *_: object) -> None: ...
        def close(self) -> None: ...

    monkeypatch.setattr("spark_apps.session.Session", Shared)
