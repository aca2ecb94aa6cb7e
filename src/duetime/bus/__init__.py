"""Buses: how a hint travels to the other nodes. `LocalBus` where a node is alone, `PostgresBus` (NOTIFY) for several.

NATS fits the same port: one subject, one message a hint.
"""
