"""Settings of interpreter and C library that make our processes faster, one kind a module.

Imports ``errors`` alone. Start with ``plain``: the environment variable by which each of them is left out.
"""
