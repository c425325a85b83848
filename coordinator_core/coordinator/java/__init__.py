"""The Java coordinator of 4.x, with the rules of 4.3 (``org.apache.kafka.coordinator.group``)."""
