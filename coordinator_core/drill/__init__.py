"""Failover drills: what losing brokers will do to every group, said before it is done."""
