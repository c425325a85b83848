"""Settings of interpreter and C library that make our processes faster, one kind a module.

They change how a process runs, never a result; their modules say what each of them saves. May import ``errors`` alone.
Start reading at ``plain``: the environment variable that leaves each of them out.
"""
