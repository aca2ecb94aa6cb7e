"""How a script is started, its output and its exit code, and the messages about its end."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from duetime.domain.execution import ErrorType
from duetime.domain.payloads import Script
from duetime.executors.script.executor import ScriptExecutor
from duetime.executors.script.request import ScriptLimits
from duetime.ports.executor import Attempt, NotSent, Outcome
from executors.script.watching import Kept, alive, as_root, on_linux, python, until

MakeAttempt = Callable[..., Attempt[Script]]
MakeExecutor = Callable[..., ScriptExecutor]


async def test_scripts_that_are_not_allowed_are_blocked_and_nothing_starts(attempt: MakeAttempt, log: Kept):
    executor = ScriptExecutor(ScriptLimits(), allowed=False)
    await executor.start()
    outcome = await executor.execute(attempt("echo hello"))
    assert outcome.error_type is ErrorType.BLOCKED_TARGET
    assert "ALLOW_SCRIPTS" in (outcome.error_message or "")
    assert executor.link.pid is None
    assert log.written == []
    await executor.stop()


async def test_exit_0_is_a_success_with_the_last_of_what_it_printed(executor: ScriptExecutor, attempt: MakeAttempt):
    assert await executor.execute(attempt("echo hello")) == Outcome(exit_code=0, response="hello\n")
    assert await executor.execute(attempt("", "/bin/sh", "-c", ":")) == Outcome(exit_code=0)


async def test_argv_reaches_the_program_unchanged_without_a_shell(executor: ScriptExecutor, attempt: MakeAttempt):
    outcome = await executor.execute(attempt("", "printf", "%s|", "a b", "$HOME", "*", "", "'\"", ";echo", "ü"))
    assert outcome.response == "a b|$HOME|*||'\"|;echo|ü|"


async def test_a_script_is_run_by_its_interpreter(executor: ScriptExecutor, attempt: MakeAttempt):
    outcome = await executor.execute(attempt("import sys\nprint(len(sys.argv), 6 * 7)", interpreter=python()))
    assert outcome.response == "1 42\n"


async def test_another_exit_code_is_stored_and_in_the_message(executor: ScriptExecutor, attempt: MakeAttempt):
    outcome = await executor.execute(attempt("echo so far; exit 3"))
    assert outcome == Outcome(ErrorType.EXIT_CODE, "The script exited with 3.", exit_code=3, response="so far\n")


async def test_the_message_names_the_signal_that_ended_the_script(executor: ScriptExecutor, attempt: MakeAttempt):
    outcome = await executor.execute(attempt("kill -SEGV $$"))
    assert outcome == Outcome(ErrorType.EXIT_CODE, "The script was ended by signal SIGSEGV.", exit_code=-11)


async def test_signals_have_their_default_actions_in_a_script(executor: ScriptExecutor, attempt: MakeAttempt):
    """Python ignores some signals, and the fork server others. With SIGPIPE ignored, `yes` would never end."""
    for name, number in {"PIPE": 13, "XFSZ": 25, "INT": 2, "TERM": 15, "HUP": 1}.items():
        outcome = await executor.execute(attempt(f"kill -{name} $$; echo survived"))
        assert (name, outcome.exit_code, outcome.response) == (name, -number, None)


@on_linux
async def test_the_environment_has_nothing_from_the_node(
    executor: ScriptExecutor, attempt: MakeAttempt, log: Kept, folder: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("NODE_SECRET", "hush")
    one = attempt("", "env", env={"COLOUR": "blue", "LANG": "C", "DUETIME_FENCING_TOKEN": "99"})
    await executor.execute(one)
    assert alive("NODE_SECRET=hush") == []  # the script can't read it from the fork server either
    environment = dict(line.split("=", 1) for line in log.text().splitlines())
    home = environment.pop("HOME")
    assert Path(home).parent == folder
    assert environment == {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "TMPDIR": home,
        "LANG": "C",
        "COLOUR": "blue",
        "DUETIME_JOB_ID": "01970c6e-0000-7000-8000-000000000001",
        "DUETIME_EXECUTION_ID": one.claim.execution_id,
        "DUETIME_ATTEMPT": "2",
        "DUETIME_FENCING_TOKEN": "5",
        "DUETIME_SCHEDULED_AT": "2026-01-01T00:00:00.007Z",
        "DUETIME_TRIGGER": "schedule",
    }


@on_linux
async def test_a_script_starts_with_limits_and_without_privileges(
    make_executor: MakeExecutor, attempt: MakeAttempt, log: Kept
):
    executor = make_executor(cpu_seconds=7, memory_bytes=300 << 20, file_bytes=2 << 20, open_files=33)
    await executor.execute(
        attempt("cat /proc/self/limits; grep NoNewPrivs /proc/self/status; umask; ls -l /proc/$$/fd")
    )
    lines = {line[:25].strip(): line[25:].split()[:2] for line in log.text().splitlines()}
    assert lines["Max cpu time"] == ["7", "8"]
    assert lines["Max data size"] == [str(300 << 20)] * 2
    assert lines["Max file size"] == [str(2 << 20)] * 2
    assert lines["Max open files"] == ["33", "33"]
    assert lines["Max core file size"] == ["0", "0"]
    assert "NoNewPrivs:\t1" in log.text()
    assert "0077\n" in log.text()
    open_files = dict(line.split()[-3::2] for line in log.text().splitlines() if " -> " in line)
    assert open_files["0"] == "/dev/null"
    assert {name for name, path in open_files.items() if not path.endswith("/script")} == {"0", "1", "2"}


async def test_a_script_runs_in_an_empty_private_folder_that_is_removed_afterwards(
    executor: ScriptExecutor, attempt: MakeAttempt, log: Kept, folder: Path
):
    nasty = "mkdir -p a/b 1 2/3; ln -s / a/root; touch a/b/c 1/x; chmod 500 a/b; chmod 0 a 1"
    outcome = await executor.execute(attempt(f"pwd; ls -A | grep -v script; {nasty}"))
    assert outcome.error_type is None
    (private,) = log.text().splitlines()
    assert private.startswith(f"{folder}/duetime-script-")
    assert os.listdir(folder) == []


async def test_a_folder_nested_deeper_than_a_path_can_be_is_removed(
    executor: ScriptExecutor, attempt: MakeAttempt, folder: Path
):
    await executor.execute(attempt('d=$(printf "%0200d" 0); for i in $(seq 25); do mkdir $d; cd -P $d || exit 1; done'))
    assert os.listdir(folder) == []


async def test_a_job_may_name_the_folder_it_runs_in(
    executor: ScriptExecutor, attempt: MakeAttempt, log: Kept, folder: Path
):
    place = folder / "place"
    place.mkdir(mode=0o755)
    assert (await executor.execute(attempt("pwd -P", cwd=str(place)))).response == f"{place.resolve()}\n"
    assert os.listdir(folder) == ["place"]


@pytest.mark.parametrize(
    ("cwd", "words"),
    [("relative/place", "not absolute"), ("/no/such/folder", "is not there"), ("/dev/null", "entered")],
)
async def test_the_message_names_a_folder_that_cant_be_used(
    executor: ScriptExecutor, attempt: MakeAttempt, log: Kept, cwd: str, words: str
):
    outcome = await executor.execute(attempt("echo ran", cwd=cwd))
    assert (outcome.error_type, outcome.exit_code, log.written) == (ErrorType.EXIT_CODE, 126, [])
    assert cwd in (outcome.error_message or "")
    assert words in (outcome.error_message or "")


@as_root
async def test_the_message_names_a_folder_that_the_scripts_user_cant_enter(
    executor: ScriptExecutor, attempt: MakeAttempt, folder: Path
):
    (folder / "closed").mkdir(mode=0o700)
    message = (await executor.execute(attempt("echo ran", cwd=str(folder / "closed")))).error_message or ""
    assert "can't be entered by the user that scripts run as (62" in message


async def test_the_message_names_a_missing_program(executor: ScriptExecutor, attempt: MakeAttempt, folder: Path):
    for argv in (("no-such-program",), ("/no/such/program", "x")):
        outcome = await executor.execute(attempt("", *argv))
        assert (outcome.error_type, outcome.exit_code) == (ErrorType.EXIT_CODE, 127)
        assert f"There is no program '{argv[0]}'" in (outcome.error_message or "")
    assert os.listdir(folder) == []


async def test_the_message_names_a_program_that_cant_be_run(
    executor: ScriptExecutor, attempt: MakeAttempt, folder: Path
):
    closed, lost, text = folder / "closed", folder / "lost", folder / "text"
    closed.write_text("#!/bin/sh\n")
    lost.write_text("#!/no/such/shell\n")
    text.write_text("hello")
    closed.chmod(stat.S_IRUSR)
    lost.chmod(0o755)
    text.chmod(0o755)
    for path, code, words in ((closed, 126, "may not be run"), (lost, 127, "interpreter"), (text, 126, "no program")):
        outcome = await executor.execute(attempt("", str(path)))
        assert (outcome.error_type, outcome.exit_code) == (ErrorType.EXIT_CODE, code)
        assert words in (outcome.error_message or "")


@pytest.mark.parametrize(("argument", "env"), [("a\0b", {}), ("a", {"A=B": "c"}), ("a", {"A": "b\0"})])
async def test_the_message_explains_an_invalid_argv_or_env(
    executor: ScriptExecutor, attempt: MakeAttempt, argument: str, env: dict[str, str]
):
    outcome = await executor.execute(attempt("", "true", argument, env=env))
    assert (outcome.error_type, outcome.exit_code) == (ErrorType.EXIT_CODE, 126)
    assert "can't be handed to a program" in (outcome.error_message or "")


async def test_the_message_names_a_missing_parent_of_private_folders(attempt: MakeAttempt, tmp_path: Path):
    executor = ScriptExecutor(ScriptLimits(folder=tmp_path / "gone"), allowed=True)
    outcome = await executor.execute(attempt("echo ran"))
    assert "No private folder can be made in" in (outcome.error_message or "")
    await executor.stop()


async def test_output_comes_to_the_log_as_it_is_printed(
    executor: ScriptExecutor, attempt: MakeAttempt, log: Kept, folder: Path
):
    """The script waits, in the middle of a character, for a signal that comes only after its first words were read."""
    sign = folder / "sign"
    script = f"printf 'a\\0b\\377\\303'; echo no >&2; until [ -e {sign} ]; do sleep 0.01; done; printf '\\274!'"
    running = asyncio.create_task(executor.execute(attempt(script)))
    await until(lambda: "b" in log.text() and log.text("stderr") == "no\n")
    assert log.text() == "a\0b\ufffd"
    sign.touch()
    outcome = await running
    assert log.text() == "a\0b\ufffdü!"
    assert (outcome.exit_code, outcome.response) == (0, "a\ufffdb\ufffdü!")


async def test_the_response_is_the_last_thousand_characters(executor: ScriptExecutor, attempt: MakeAttempt):
    outcome = await executor.execute(attempt("i=0; while [ $i -lt 3000 ]; do printf ä; i=$((i+1)); done; printf end"))
    assert outcome.response == "ä" * 997 + "end"


async def test_a_script_can_open_its_own_stderr(executor: ScriptExecutor, attempt: MakeAttempt, log: Kept):
    await executor.execute(attempt("echo oops > /dev/stderr"))
    assert log.text("stderr") == "oops\n"


async def test_a_script_does_not_start_if_the_lease_is_in_doubt(
    executor: ScriptExecutor, attempt: MakeAttempt, log: Kept, folder: Path
):
    place = folder / "place"
    place.mkdir()
    place.chmod(0o777)
    with pytest.raises(NotSent):
        await executor.execute(attempt("", "mkdir", str(place / "ran"), may_send=lambda: False))
    await until(lambda: os.listdir(folder) == ["place"])
    assert (os.listdir(place), log.written) == ([], [])


async def test_the_lease_is_checked_when_the_script_is_ready_to_start(
    executor: ScriptExecutor, attempt: MakeAttempt, folder: Path
):
    """Just before the start, and not while the fork server may still have to be started."""
    seen: list[int] = []

    def may_send() -> bool:
        seen.append(len(os.listdir(folder)))
        return True

    await executor.execute(attempt("echo ran", may_send=may_send))
    assert seen == [1]


@on_linux
async def test_nothing_stays_open_in_the_node(executor: ScriptExecutor, attempt: MakeAttempt):
    await executor.execute(attempt("", "true"))
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(25):
        await asyncio.gather(executor.execute(attempt("", "true")), executor.execute(attempt("", "no-such-program")))
    assert len(os.listdir("/proc/self/fd")) == before


async def test_many_run_at_once_and_none_gets_the_output_of_another(executor: ScriptExecutor, attempt: MakeAttempt):
    outcomes = await asyncio.gather(*(executor.execute(attempt(f"echo {n}; exit {n}")) for n in range(40)))
    assert [(outcome.exit_code, outcome.response) for outcome in outcomes] == [(n, f"{n}\n") for n in range(40)]


@as_root
async def test_scripts_of_root_run_as_different_users_without_a_name(executor: ScriptExecutor, attempt: MakeAttempt):
    both = [attempt("id -u; id -G; until [ -e go ]; do sleep 0.01; done", timeout_seconds=3) for _ in range(2)]
    first, second = await asyncio.gather(*map(executor.execute, both))
    (user, groups), (other_user, other_groups) = (str(each.response).split() for each in (first, second))
    assert user == groups
    assert other_user == other_groups
    assert len({user, other_user, "0"}) == 3


@as_root
async def test_two_nodes_on_one_machine_never_share_a_user(make_executor: MakeExecutor, attempt: MakeAttempt):
    """Otherwise the end of one node's script could kill a script of the other."""
    one, other = make_executor(), make_executor()
    outcomes = await asyncio.gather(
        *(executor.execute(attempt("id -u; sleep 0.2; echo done")) for executor in (one, other) for _ in range(3))
    )
    assert len({str(outcome.response).split()[0] for outcome in outcomes}) == 6
    assert all(str(outcome.response).endswith("done\n") for outcome in outcomes)
