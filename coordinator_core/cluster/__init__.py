"""The live cluster: the only package that opens a socket. Raw fetch, topology, what coordinators answer.

Sockets, TLS, SASL and the encoding of requests are kafka-python's; here is what to ask, of whom, and what
the answers mean.
"""
