"""Kafka's definitions of the messages that kafka-python lacks; it makes classes of them.

May import nothing. Start reading ``share_groups``, then ``describe``.
"""
