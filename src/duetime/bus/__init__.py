"""Buses: send hints to the other nodes. `LocalBus` for a single node, `PostgresBus` (NOTIFY) for several.

NATS fits the same port: one subject, one message per hint.
"""
