"""Records corpus cases from real brokers (``tests/corpus/README.md``, part 3)."""
