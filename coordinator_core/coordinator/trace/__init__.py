"""Recorded request sequences: read, played through the model, compared.

A trace has the requests of clients with a broker's replies and records, and in ``given`` the chance and the outside
events that no request decides. May import ``coordinator``, both coordinators too, and whatever that may. Start reading
at ``read`` (the file), then ``play`` (the model answers) and ``compare`` (its answers against the broker's).
"""

from coordinator_core.coordinator.trace.compare import Difference, differences
from coordinator_core.coordinator.trace.given import Given
from coordinator_core.coordinator.trace.observe import observed
from coordinator_core.coordinator.trace.play import Played, play
from coordinator_core.coordinator.trace.read import Trace, add_given, read_trace

__all__ = ["Difference", "Given", "Played", "Trace", "add_given", "differences", "observed", "play", "read_trace"]
