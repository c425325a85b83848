"""Kafka's messages that kafka-python lacks, as JSON definitions of which it makes classes.

A class here is named like the definition that it loads. May import kafka-python and nothing of the core. Start reading
at ``share_groups``, then ``describe``.
"""
