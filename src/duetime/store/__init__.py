"""Stores: each folder is one backend of `ports.store`, with its own SQL. The modules beside them are shared by all."""


class StoreUnusable(Exception):
    """The database can't be used as it is. The message says why and what to do."""
