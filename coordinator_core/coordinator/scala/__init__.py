"""The Scala coordinator of 2.x and 3.x, with the rules of 3.9 (``kafka.coordinator.group``).

It has classic groups only, and a batch for each group. May import the modules of ``coordinator`` and whatever that
may, neither ``java`` nor ``trace``. Start reading at ``coordinator`` (requests), then ``group`` (a group in memory) and
``offsets`` (commits, transactions, loads and sweeps).
"""
