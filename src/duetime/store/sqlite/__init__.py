"""The embedded store: SQLite through apsw, WAL, synchronous=FULL.

store.py       the port's methods: reads, and where writes go
writer.py      the one writing thread and its group commit
apply.py       each command as SQL
filters.py     the lists that people ask for
connection.py  opening, checking, migrating, the folder's lock
handover.py    who holds the folder, and the mark of a promotion; export.py reads all out for one
sql/           named blocks; migrations/ the numbered schema
"""

from duetime.store import StoreUnusable
from duetime.store.sqlite.store import SqliteStore

__all__ = ["SqliteStore", "StoreUnusable"]
