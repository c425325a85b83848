"""Records that a consumer has read, made into a log directory: less than a snapshot, and marked as that.

Writes ``records.json`` beside the partitions, so that readers report damage of the kind ``records_only`` or
``transactions_unknown`` and no command takes the directory for a snapshot. May import ``log`` and packages below it.
Start reading at ``publish``, then ``rows`` (Parquet rows, checked) and ``unknown`` (what such records lack).
"""
