"""``python -m coordinator_core`` is the ``regroup`` command."""

from coordinator_core.cli import main

if __name__ == "__main__":
    main()
