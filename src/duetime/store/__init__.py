"""Stores: each folder is one backend of `ports.store`. They share a contract suite and row decoding, but no SQL."""


class StoreUnusable(Exception):
    """The database can't be used as it is. The message says why and what to do."""
