"""A primary and its standby: real servers with synchronous replication, and a failover between them."""

from __future__ import annotations

from cluster.database import Database, Postgres
from cluster.processes import wait_until

NAME = "duetime"
STANDBY = "walreceiver"  # the default application name of a standby


class Pair:
    """`primary` is the server that accepts writes: the other one after `promote`.

    The standby has everything that the primary has acknowledged: a commit waits for it. So tests can check that nothing
    is lost.
    """

    def __init__(self) -> None:
        self.primary = Postgres()
        self.primary.start()
        Database(self.primary, "postgres").run(f"CREATE DATABASE {NAME}")
        self.standby = Postgres(copy_of=self.primary)
        self.standby.start()
        self._servers = [self.primary, self.standby]
        self.tell_primary(f"ALTER SYSTEM SET synchronous_standby_names = '{STANDBY}'")
        wait_until(self._is_synchronous, 60, "the standby replicates synchronously")

    @property
    def url(self) -> str:
        """Both servers, in a fixed order: after a failover the first is the old one."""
        hosts = ",".join(f"127.0.0.1:{server.port}" for server in self._servers)
        return f"postgresql://postgres@{hosts}/{NAME}?sslmode=disable&target_session_attrs=read-write"

    def tell_primary(self, sql: str) -> None:
        """Changes a setting of the server, for open sessions too."""
        database = Database(self.primary, "postgres")
        database.run(sql)
        database.run("SELECT pg_reload_conf()")

    def _is_synchronous(self) -> bool:
        rows = Database(self.primary, "postgres").rows("SELECT sync_state FROM pg_stat_replication")
        return [row[0] for row in rows] == ["sync"]

    def make_primary_read_only(self) -> None:
        """Makes the server refuse writes, without closing connections, as before a planned switch."""
        self.tell_primary("ALTER SYSTEM SET default_transaction_read_only = on")
        database = Database(self.primary, NAME)
        wait_until(lambda: database.rows("SHOW default_transaction_read_only")[0][0] == "on", 20, "it is read-only")

    def promote(self) -> None:
        self.primary, self.standby = self.standby, self.primary
        self.primary.promote()

    def close(self) -> None:
        for server in self._servers:
            server.close()


class PairDatabase(Database):
    """The database of a pair, on whichever server is the primary."""

    def __init__(self, pair: Pair) -> None:
        super().__init__(pair.primary, NAME)
        self.pair = pair
        self.url = pair.url
