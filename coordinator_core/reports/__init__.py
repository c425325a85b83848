"""State and records as text and JSON, in the words of Kafka's own tools."""
