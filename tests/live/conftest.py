from __future__ import annotations

import pytest

from tests.live.broker import Kafka
from tests.live.scenario import Scenario, play


@pytest.fixture(scope="session")
def kafka() -> Kafka:
    """The Kafka of ``pom.xml``; fetched when this machine does not have it yet."""
    return Kafka.fetch()


@pytest.fixture(scope="session")
def scenario(kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Scenario:
    """A broker used, killed, restarted and asked, once for the session."""
    return play(kafka, tmp_path_factory.mktemp("live") / "scenario")
