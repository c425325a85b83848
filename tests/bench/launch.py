"""``python launch.py REPORT COMMAND…``: runs a command and writes its wall time, CPU time and peak memory.

The bench itself cannot ask for the peak of a process it starts: Linux counts to it the memory of the starter,
of which it is a copy until it becomes the command. This process is small.
"""

import json
import os
import sys
import time

report, *command = sys.argv[1:]
began = time.perf_counter()
child = os.posix_spawnp(command[0], command, os.environ)
_, status, usage = os.wait4(child, 0)
seconds = time.perf_counter() - began
with open(report, "w") as file:
    json.dump({"seconds": seconds, "cpu": usage.ru_utime + usage.ru_stime, "peak_mib": usage.ru_maxrss / 1024}, file)
sys.exit(os.waitstatus_to_exitcode(status) % 256)
