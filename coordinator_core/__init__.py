"""Regroup's core library: the ``__consumer_offsets`` log, replayed outside any broker.

Nothing here imports Spark, Airflow or Great Expectations. A package imports those before it in ``LAYERS`` of
``tests/test_architecture.py``; decoding, replay and rules are pure: bytes or values in, values out, the time an
argument. Start reading at ``replay.sequential``, what a coordinator's loader does, record by record; then
``groups.model``, the state that results. ``docs/architecture.md`` is the map.
"""

__version__ = "0.1.0"
