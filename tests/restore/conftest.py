"""The broker that tests of restores share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.kit import SecuredBroker
from tests.live.broker import Kafka
from tests.restore.kit import SETTINGS, Place, started


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    broker = SecuredBroker(
        Kafka.fetch(), tmp_path_factory.mktemp("restore") / "broker", {"SASL": "SASL_PLAINTEXT"}, SETTINGS
    )
    try:
        broker.start()
        place = started(broker, broker.server("SASL"))
        yield place
        place.close()
    finally:
        broker.kill()
