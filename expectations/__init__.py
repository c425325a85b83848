"""Quality gates: a Great Expectations suite for each table of a run, and the gate that evaluates them.

``checks`` declares the expectations, as data derived from ``coordinator_core.runs.schemas``; ``gate`` has Great
Expectations (GX) evaluate it, and does not pass when an expectation was not evaluated. May import the core and GX,
never Airflow or ``dags``; importing GX takes seconds, so only ``gate.evaluate`` does. Start reading at ``checks``.
"""
