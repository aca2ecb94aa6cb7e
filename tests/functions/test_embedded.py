"""An embedded app that can't start raises the reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from duetime import Duetime
from duetime.store import StoreUnusable


def test_a_second_program_on_a_folder_is_refused(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'data'}"
    with Duetime(url):
        second = Duetime(url)
        for _ in range(2):  # a second try gets the same error
            with pytest.raises(StoreUnusable, match="is in use by another Duetime"):
                second.start()
        second.stop()
    with second as app:  # the folder is free now
        assert app.enqueue("somebody's function").status == "PENDING"
