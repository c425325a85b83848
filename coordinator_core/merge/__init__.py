"""Folds to the state of an offsets partition, and the shards of giant ones.

May import ``fold`` and what that may. Start reading at ``schema`` (what a merge gives), then ``partition``.
"""
