"""Reconciliation: rules over the tables of a run, their findings, differences between runs, lag.

A rule is a value and one function from ``Facts`` to the rows that break it. May import ``history``, ``lifecycle``,
``runs`` and packages below them. Start reading at ``model`` (what a rule is), then ``structure`` (rules about the log
itself) and ``evaluate``. CONTRIBUTING.md walks through adding a rule.
"""
