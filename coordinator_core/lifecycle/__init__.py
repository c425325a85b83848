"""What ends in an offsets log: expiry of offsets and groups, compaction, sizes of what is left.

May import ``runs``, ``merge``, ``fold``, ``kernels`` and packages below them. Start reading at ``plan`` (an expiry
plan) with ``due`` (when an offset expires), or at ``compact``: scan, plan, write and proof of one offsets partition.
"""
