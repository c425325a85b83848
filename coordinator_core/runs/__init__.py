"""Runs: the tables of a replay, published once and read back; and the engine for one machine."""
