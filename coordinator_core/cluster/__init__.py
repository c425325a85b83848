"""The live cluster: raw fetch, topology, answers of coordinators, drills. No other package opens a socket.

Sockets, TLS, SASL and the encoding of requests are kafka-python's; here is what to ask, of which broker, and what
the answers mean. May import every package except ``reports`` and ``cli``. Start reading at ``capture``, then
``fetch`` (batches from their leaders) and ``client`` (one cluster and its brokers).
"""
