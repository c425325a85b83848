"""The sequential replay: the reference for every faster one, written to be read beside Kafka's loaders.

``explain`` and the inference of a profile are here too, since both look at records one by one. May import ``log``,
``records``, ``groups`` and ``releases``. Start reading at ``sequential``, then ``interpret`` (one record, as the
loader of a profile understands it).
"""
