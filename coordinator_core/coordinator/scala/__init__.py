"""The Scala coordinator of 2.x and 3.x, with the rules of 3.9 (``kafka.coordinator.group``)."""
