"""Kafka's definitions of the messages that kafka-python lacks; it makes classes of them (:mod:`.share_groups`).

May import nothing. Start reading ``share_groups``.
"""
