"""Recorded request sequences: read, played through the model, compared."""

from coordinator_core.coordinator.trace.compare import Difference, differences
from coordinator_core.coordinator.trace.play import Played, play
from coordinator_core.coordinator.trace.read import Trace, read_trace

__all__ = ["Difference", "Played", "Trace", "differences", "play", "read_trace"]
