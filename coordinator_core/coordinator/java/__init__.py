"""The Java coordinator of 4.x, with the rules of 4.3 and 4.4 (``org.apache.kafka.coordinator.group``).

Groups of all four types: classic, consumer (KIP-848), share (KIP-932), streams (KIP-1071). May import the modules of
``coordinator`` and whatever that may, neither ``scala`` nor ``trace``. Start reading at ``coordinator`` (requests),
then ``manager`` (groups and offsets of a partition) and ``consumer`` with ``consumer_group`` and ``consumer_records``:
share and streams groups have the same three. ``modern_groups`` and ``modern_group`` are their common part.
"""
