"""Failover drills: a prediction of what losing brokers does to every group, the journal of a drill, a comparison.

Opens no socket: ``cluster`` carries a drill out. May import ``runs``, ``fold``, ``coordinator``, ``topology`` and
packages below them. Start reading at ``model`` (a prediction as values), then ``predict`` and ``journal``.
"""
