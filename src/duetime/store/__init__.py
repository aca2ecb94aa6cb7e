"""Stores: each folder is one backend of `ports.store`, with its own SQL. All share the modules and SQL in this one."""


class StoreUnusable(Exception):
    """The database can't be used as it is. The message says why and what to do."""
