"""Record keys and values: typed data to and from bytes, embedded member blobs, Kafka's JSON.

Every record type is declared as data. May import ``errors``, ``kernels`` and ``releases``. Start reading at ``schemas``
(record types and their fields), then ``codec`` (bytes to data and back) and ``jsontext`` (the text of Kafka's tools).
"""
