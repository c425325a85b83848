"""The request-time group coordinator as a deterministic model: what a broker answers and appends.

Two flavours: :class:`ScalaCoordinator` (the coordinator of 2.x and 3.x, as 3.9 has it) and
:class:`JavaCoordinator` (4.x, as 4.3 has it). Both take requests as frozen classes, answer them so or
through a callback, append real record bytes to a log that can refuse, and get the time and every random
identifier from outside. :mod:`coordinator_core.coordinator.trace` plays recorded requests through them.
"""
