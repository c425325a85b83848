"""What makes our processes faster than their code: settings of interpreter and C library, one kind a module.

Imports ``errors`` alone. Start with ``plain``: the environment variable by which each of them is left out.
"""
