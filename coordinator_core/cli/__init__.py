"""The ``regroup`` command line: Kafka's option names, results on stdout, everything else on stderr."""

from coordinator_core.cli.app import main

__all__ = ["main"]
