from __future__ import annotations

from tests.cluster.conftest import kafka

__all__ = ["kafka"]
