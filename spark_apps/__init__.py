"""Spark applications, one a job: distribution of the core's functions, and files between their stages.

Knows nothing of Kafka: tasks call ``coordinator_core``. May import ``coordinator_core`` and PySpark, never
Airflow or ``dags``. Start reading at ``replay`` (an app), then ``engine`` (its stages) and ``tasks`` (what Python
workers do).
"""
