"""What a log store tells about itself."""

from __future__ import annotations

from contract.logs.conftest import MakeLogs
from samples import new_id


async def test_stored_bytes_are_counted(make_logs: MakeLogs) -> None:
    logs = make_logs()
    await logs.start()
    try:
        assert logs.usage().stored_bytes == 0
        log = logs.open(new_id(), 1, "acme")
        log.write("stdout", "a line of text\n")
        assert logs.usage().waiting_bytes > 0
        await log.close()
        usage = logs.usage()
        assert usage.stored_bytes >= len("a line of text\n")
        assert (usage.waiting_bytes, usage.lost_lines) == (0, 0)
    finally:
        await logs.stop()
