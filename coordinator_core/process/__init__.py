"""Settings of interpreter and C library that make our processes faster, one kind a module.

One module has nothing to do with settings: ``workers`` calls a function in several processes. They change how a process runs, never a result; their modules say what each of them saves. May import ``errors`` alone.
Start reading at ``plain``: the environment variable that leaves each of them out.
"""
