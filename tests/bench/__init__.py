"""Measurements: seeded logs of realistic shape, our figures and Kafka's own on the same bytes, in one run."""
