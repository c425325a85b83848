"""Regroup's core library: the ``__consumer_offsets`` log, replayed outside any broker."""

__version__ = "0.1.0"
