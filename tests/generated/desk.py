"""A shell with the tools and files of docs/how-to/generate-a-client.md."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

from cluster.processes import Server
from docs.pages import ROOT, blocks
from docs.test_work_pages import Desk

PAGE = ROOT / "docs" / "how-to" / "generate-a-client.md"
DATABASE = "sqlite:///generated.db?mode=rwc"
KINDS = {
    "http_request": "generated webhook",
    "script": "generated script",
    "sql_query": "generated SQL",
    "python": "generated function",
}


class GeneratorDesk(Desk):
    def __init__(self, server: Server, tools: Path, language: str) -> None:
        self.server, self.url = server, f"http://127.0.0.1:{server.client.port}"
        super().__init__(server.folder, self.url)
        self._environment["PATH"] = f"{tools}{os.pathsep}{self._environment['PATH']}"
        # npx starts what is installed here, whatever a person's own settings of npm are, and fetches nothing.
        self._environment |= {"npm_config_userconfig": os.devnull, "npm_config_offline": "true"}
        self._environment["npm_config_update_notifier"] = "false"
        self.open(PAGE)
        self.generate, self.try_out = blocks(PAGE, f"bash run {language}")

    def bring(self, file: Path) -> None:
        shutil.copy(file, self._folder)

    def lay_out(self, node_modules: Path) -> None:
        (self._folder / "node_modules").symlink_to(node_modules)

    def files_in(self, folder: str) -> set[str]:
        return {file.stem for file in (self._folder / folder).glob("*.py")}

    def cancelled_kinds(self, printed: str) -> dict[str, str]:
        """Returns the names, by type, of the jobs that a program has cancelled. Checks them with the node."""
        rows = [json.loads(line) for line in printed.splitlines()]
        assert {(row["status"], row["refused"]) for row in rows} == {("CANCELLED", "NOT_FOUND")}
        jobs = [self.server.client.get(f"/jobs/{row['job_id']}").json() for row in rows]
        assert [(job["type"], job["name"], job["status"]) for job in jobs] == [
            (row["type"], row["name"], "CANCELLED") for row in rows
        ]
        return {job["type"]: job["name"] for job in jobs}
