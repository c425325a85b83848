"""Restore: which committed offsets a cluster shall have, what has to be written for that, and how it is undone.

Opens no socket: ``cluster`` asks and writes. May import ``drill`` and packages below it. Start reading at ``model``
(a plan as values), then ``decide`` (how one offset key is decided).
"""
