"""SQL jobs: one statement on a registered connection, to PostgreSQL or SQLite."""
