"""The embedded store: SQLite through apsw, WAL, synchronous=FULL.

store.py       the port's methods: reads, and where writes go
writer.py      the one writing thread and its group commit
apply.py       each command as SQL
filters.py     the SQL of lists for users
connection.py  opening, checking, migrating, the folder's lock
handover.py    the folder's lock, and the mark of a promotion; export.py reads all rows for a promotion
sql/           named blocks (../sql has those of both stores); migrations/ the numbered schema
"""

from duetime.store import StoreUnusable
from duetime.store.sqlite.store import SqliteStore

__all__ = ["SqliteStore", "StoreUnusable"]
