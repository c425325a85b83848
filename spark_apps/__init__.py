"""Spark applications, one a job: distribution and files. What Kafka means is in ``coordinator_core``."""
