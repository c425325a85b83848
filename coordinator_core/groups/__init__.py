"""Groups as a coordinator holds them: the state, and how each record changes it.

Both replays and the coordinator model change state here and nowhere else, as Kafka's ``replay`` methods do. May
import ``records``, ``releases`` and packages below them. Start reading at ``model`` (the state), then ``loaders`` (the
two coordinators, record types 2 to 23) and ``offsets`` (commits, transactions, end markers).
"""
