"""The ``regroup`` command line: Kafka's option names, results on stdout, everything else on stderr.

One module a command, which reads options, calls the core and prints; ``docs/cli.md`` is its contract. May import
every other package of the core. Start reading at ``app`` (errors become exit codes), then ``source`` (where the
state of a command comes from) and ``describe``, a short command.
"""

from coordinator_core.cli.app import main

__all__ = ["main"]
