"""The request-time group coordinator as a deterministic model: what a broker answers and appends.

Two coordinators: ``scala`` (that of 2.x and 3.x, as 3.9 has it) and ``java`` (4.x, as 4.3 has it). Time and random
identifiers are arguments; records go to a log that can refuse them; state changes by ``groups`` alone. May import
``groups``, ``replay``, ``lifecycle``, ``topology`` and packages below them. Start reading at ``broker`` (a request
comes in), then ``manager`` and ``java.coordinator``. ``trace`` plays and compares recordings.
"""
