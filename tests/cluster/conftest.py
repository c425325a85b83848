from __future__ import annotations

import pytest

from tests.live.broker import Kafka


@pytest.fixture(scope="session")
def kafka() -> Kafka:
    return Kafka.fetch()
