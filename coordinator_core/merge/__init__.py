"""Folds to the state of an offsets partition, and the shards of giant ones.

A merge joins the folds of segments in their order, so that its state is the sequential replay's. May import ``fold``
and packages below it. Start reading at ``schema`` (the result of a merge), then ``partition``; ``shards`` divides the
offset keys of a partition that one process cannot hold.
"""
