"""Shared by the DAGs: the cluster file, forms, ``spark-submit``, and what tasks do.

A DAG file says when and in which order; data passes through files, XComs hold paths and numbers. May import the
core when a task runs, never when a DAG file is parsed, and neither Spark nor pandas at all. Start reading at
``clusters`` (the cluster file), then ``load`` beside ``dags/offsets_load.py``.
"""
