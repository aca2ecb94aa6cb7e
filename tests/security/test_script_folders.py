"""A script replaces its private folder, or one inside it, with a link: nothing outside is changed or removed."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.processes import Server, wait_until
from duetime.executors.script import folders
from duetime.executors.script.folders import PrivateFolder
from executors.script.watching import on_linux

MODE = 0o751  # an unusual mode


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that any user may enter, unlike pytest's own folders."""
    path = Path(tempfile.mkdtemp(prefix="duetime-test-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


@pytest.fixture
def victim(place: Path) -> Path:
    """A folder that scripts can't write to if they run as another user."""
    folder = place / "victim"
    (folder / "inner").mkdir(parents=True)
    (folder / "file").write_text("of somebody else")
    (folder / "inner" / "file").write_text("of somebody else")
    folder.chmod(MODE)
    return folder


def check_untouched(victim: Path) -> None:
    assert stat.S_IMODE(victim.stat().st_mode) == MODE
    assert sorted(str(path.relative_to(victim)) for path in victim.rglob("*")) == ["file", "inner", "inner/file"]


@pytest.fixture
def temporary(place: Path) -> Path:
    """Like /tmp: each user may create files there, and remove only their own."""
    folder = place / "tmp"
    folder.mkdir()
    folder.chmod(0o1777)
    return folder


ATTACKS = {
    "a link in place of its folder": 'cd /; mv "$HOME" "$HOME.away"; ln -s "{victim}" "$HOME"',
    "a link in place of its empty folder": 'cd /; rm -r "$HOME"; ln -s "{victim}" "$HOME"',
    "a link in its folder": 'ln -s "{victim}" "$HOME/link"; mkdir "$HOME/in"; ln -s "{victim}" "$HOME/in/link"',
    "a folder that is closed, and links in it": 'mkdir -p in/deep; ln -s "{victim}" in/deep/link; chmod 0 in/deep in',
}


@on_linux
def test_links_that_scripts_put_in_place_of_their_folders_are_not_followed(
    temporary: Path, victim: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("TMPDIR", str(temporary))  # the node inherits it
        server = Server(victim.parent / "node", ALLOW_SCRIPTS="true").start()
    for name, attack in ATTACKS.items():
        is_there = f'case "$HOME" in "{temporary}"/*) ;; *) exit 9 ;; esac'
        payload = {"script": f"{is_there}\n{attack.format(victim=victim)}\necho done"}
        body = {"name": name, "schedule": "immediate", "type": "script", "payload": payload}
        job_id = server.client.post("/jobs", body).json()["job_id"]

        def ended(job_id: str = job_id) -> list[str]:
            rows = server.client.get(f"/jobs/{job_id}/executions").json()["executions"]
            return [row["state"] for row in rows if row["state"] not in ("QUEUED", "RUNNING")]

        assert wait_until(ended, 30, f"the script has ended: {name}") == ["COMPLETED"], name
        check_untouched(victim)
        wait_until(lambda: not list(temporary.glob("duetime-script-*[0-9a-f]")), 10, f"its folder is gone: {name}")
        check_untouched(victim)
    assert server.returncode() is None
    server.close()


def test_a_folder_that_becomes_a_link_while_it_is_removed_is_not_followed(
    place: Path, victim: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The script may replace a folder with a link at any moment after it was listed."""
    remove_files = folders._remove_files
    swapped: list[str] = []

    def swap_then_answer(folder: int) -> list[str]:
        names = remove_files(folder)
        for name in names:
            os.rename(name, f"{victim}-was-{len(swapped)}", src_dir_fd=folder)
            os.symlink(victim, name, dir_fd=folder)
            swapped.append(name)
        return names

    monkeypatch.setattr(folders, "_remove_files", swap_then_answer)
    private = PrivateFolder(str(place))
    for name in ("a", "b", "c/d/e"):
        Path(private.path, name).mkdir(parents=True)
    private.remove()
    assert len(swapped) >= 3
    assert not Path(private.path).exists()
    check_untouched(victim)


def test_a_deep_folder_without_permissions_is_removed(place: Path) -> None:
    private = PrivateFolder(str(place))
    here = os.open(private.path, os.O_RDONLY)
    for _ in range(1200):  # deeper than a path can be long
        os.mkdir("deeper-and-deeper", dir_fd=here)
        there = os.open("deeper-and-deeper", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = there
    os.close(here)
    Path(private.path, "closed", "too").mkdir(parents=True)
    Path(private.path, "closed", "too").chmod(0)
    Path(private.path, "closed").chmod(0)
    private.remove()
    assert list(place.iterdir()) == []
