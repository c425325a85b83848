"""Meaning of a history: verdicts with evidence, what to do, and the known bugs behind them.

May import ``history``, ``rules``, ``lifecycle`` and packages below them. Start reading at ``investigate``, then
``bugs``, the catalogue of known bugs as data.
"""
