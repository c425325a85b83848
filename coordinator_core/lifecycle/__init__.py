"""The life of what is in an offsets log: what expires, what compaction may drop, what its records take."""
