"""Quality gates: a Great Expectations suite per table of a run, and the gate that evaluates them.

``checks`` declares what must hold, as data derived from ``coordinator_core.runs.schemas``; ``gate.evaluate``
has Great Expectations (GX) evaluate it and refuses to pass when any of it was not evaluated.  GX costs
seconds to import and is imported by ``evaluate`` only.
"""
