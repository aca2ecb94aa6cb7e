"""The store for several nodes: PostgreSQL (14 or later) through asyncpg, directly or behind PgBouncer.

store.py        the port's methods: reads, and where writes go
writer.py       group commit over a few connections
writer_connection.py  a transaction at a time, and after a lost COMMIT it finds out what was written
apply.py        who carries out which command; on_*.py each command as SQL
partitions.py   history by the day: made ahead, dropped whole
filters.py      the lists that people ask for
connections.py  how connections are opened and bounded; faults.py what their errors mean
schema.py       migrations
sql/            named blocks; migrations/ the numbered schema
"""

from duetime.store import StoreUnusable
from duetime.store.postgres.store import PostgresStore

__all__ = ["PostgresStore", "StoreUnusable"]
