"""Settings of interpreter and C library that make our processes faster, one kind a module; and several processes.

Settings change how a process runs, never a result; their modules say what each of them saves. ``workers`` calls a
function in several processes. May import ``errors`` alone.
Start reading at ``plain``: the environment variable that leaves each of the settings out.
"""
