"""Tests: the corpus of real brokers' logs, live brokers, Spark, Airflow, and properties over generated logs.

A directory of tests for each package, under its name; ``live`` and ``cluster`` start brokers, ``scale`` is long,
``bench`` measures and asserts no time. May import everything. Start reading at ``cases`` (the corpus) and
``replay/histories.py`` (logs made in memory); CONTRIBUTING.md says what a change needs.
"""
