"""Inputs that a rule may need besides the run, and the options of ``regroup reconcile`` that give them."""

from __future__ import annotations

from enum import StrEnum


class Need(StrEnum):
    """Inputs that a rule may need besides the run itself."""

    TOPICS = "topics"
    EPOCHS = "leader epochs"
    REPLICAS = "replicas"
    CONFIG = "configuration"
    PREVIOUS_RUN = "previous run"
    TRANSACTION_LOG = "transaction log"
    LOG = "log"


NEED_OPTIONS = {
    Need.TOPICS: "--topics",
    Need.EPOCHS: "--topics",
    Need.REPLICAS: "--topics",
    Need.CONFIG: "--topics",
    Need.PREVIOUS_RUN: "--against",
    Need.TRANSACTION_LOG: "--transaction-log",
    Need.LOG: "--log",
}
