"""Ends and changes of an offsets log: expiry, compaction, sizes, releases, migrations.

May import ``runs``, ``merge``, ``fold``, ``kernels`` and packages below them. Start reading at ``plan`` (an expiry
plan) with ``due`` (when an offset expires), at ``whatif`` (what a change does), or at ``compact``: scan, plan, write
and proof of one offsets partition.
"""
