"""Runs: the tables of a replay, published once and read back; and the engine for one machine.

May import ``merge``, ``fold``, ``groups`` and packages below them. Start reading at ``schemas`` (tables and columns,
declared once), then ``local`` (the engine), ``publish`` (tables first, manifest last) and ``state_hash``.
"""
