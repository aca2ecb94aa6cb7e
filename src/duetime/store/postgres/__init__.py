"""The store for several nodes: PostgreSQL (14 or later) through asyncpg, directly or behind PgBouncer.

store.py        the port's methods: reads, and where writes go
writer.py       group commit over a few connections
writer_connection.py  one transaction at a time; after a lost COMMIT it finds out what was written
apply.py        maps each command to its handler; on_*.py the handlers, as SQL
partitions.py   history by day: partitions are created ahead, and dropped as a whole
filters.py      the SQL of lists for users
connections.py  how connections are opened and bounded; faults.py what their errors mean
schema.py       migrations
sql/            named blocks (../sql has those of both stores); migrations/ the numbered schema
"""

from duetime.store import StoreUnusable
from duetime.store.postgres.store import PostgresStore

__all__ = ["PostgresStore", "StoreUnusable"]
