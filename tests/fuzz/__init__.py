"""Fuzzing of the compiled kernels: segments whose headers and checksums are valid, and whose contents are hostile.

    python -m tests.fuzz --inputs 1000000 --seed 7 --kind fold

``hostile`` makes numbers and names, ``payloads`` keys and values, ``packing`` compressed frames, ``segments``
batches and whole segments. ``targets`` feed an input to the kernels and say what must hold; ``campaign`` runs
many of them in processes that may die. ``corpus`` keeps the inputs that found something.
"""
