"""Bytes of segment files to batches and records: every message format, every codec, damage with its position.

``reader`` alone decides what damage is. Keys and values stay bytes: their meaning is in ``records``. May import
``storage`` and packages below it. Start reading at ``types`` (what the package returns), then ``reader``, ``batch``
(format 2) and ``legacy`` (formats 0 and 1).
"""
