"""Recorded request sequences: read, played through the model, compared."""

from coordinator_core.coordinator.trace.compare import Difference, differences
from coordinator_core.coordinator.trace.given import Given
from coordinator_core.coordinator.trace.observe import observed
from coordinator_core.coordinator.trace.play import Played, play
from coordinator_core.coordinator.trace.read import Trace, add_given, read_trace

__all__ = ["Difference", "Given", "Played", "Trace", "add_given", "differences", "observed", "play", "read_trace"]
