"""The scan of the repository finds secrets, and the check of dependencies never passes silently.

The secrets are assembled when the tests run: as plain text the scan would find them.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import advisories
import scan

RANDOM = "q7Zx0PmV3kTfL9cR" + "b2WnYh5sJdGa8uEo"
PLANTED = {
    "a private key": f"-----BEGIN RSA PRIVATE {'KEY'}-----\n{RANDOM}\n",
    "an API key of Duetime": f"curl -H 'authorization: Bearer dt_{'a1b2c3d4e5f6g7h8'}_{RANDOM}'",
    "a signing secret": f"export DUETIME_SIGNING_SECRETS=whsec_{RANDOM}",
    "an encryption key": f"DUETIME_ENCRYPTION_KEYS=k1:{RANDOM}{RANDOM[:11]}=",
    "an AWS key id": f"id = AKIA{'ABCDEFGH' * 2}",
    "a GitHub token": f"ghp_{RANDOM}abcd",
    "a Slack token": f"xoxb-{RANDOM}",
    "a JWT": f"eyJ{RANDOM}.eyJ{RANDOM}.{RANDOM}",
    "a password in a URL": f"postgresql://app:{RANDOM}@db.example/duetime",
    "a value that looks random, of a secret name": f'{{"api_key": "{RANDOM}"}}',
}
PLAIN = [
    'SECRET = "correct horse battery staple"', 'TOKEN_URL = "https://example.com/oauth/token"', "token: str",
    'password = "aaaaaaaaaaaaaaaaaaaaaaaaaaaa"', "postgresql://user:password@host:5432/database", "dt_<id>_<secret>",
    'API_KEY = os.environ["DUETIME_API_KEY"]', "--hash=sha256:2163e1640ddb52b7a8c80d0a67a08587e5d245cc9c553a74a847056b",
]  # fmt: skip


@pytest.mark.parametrize(("kind", "text"), PLANTED.items())
def test_a_secret_of_each_kind_is_found(kind: str, text: str) -> None:
    assert kind in [found.kind for found in scan.scan("file", f"first line\n{text}\n")]


@pytest.mark.parametrize("text", PLAIN)
def test_text_that_is_no_secret_is_not_found(text: str) -> None:
    assert list(scan.scan("file", text)) == []


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    (tmp_path / "tests").mkdir()
    return tmp_path


def test_a_secret_in_the_repository_fails_the_scan_and_is_not_printed(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (repository / "settings.py").write_text(f'PASSWORD = "{RANDOM}"\n')
    assert scan.main([str(repository)]) == 1
    said = capsys.readouterr().out
    assert "settings.py:1: a value that looks random" in said
    assert RANDOM not in said


def test_an_allowed_value_passes_and_an_unneeded_allowance_does_not(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (repository / "settings.py").write_text(f'PASSWORD = "{RANDOM}"\n')
    (found,) = scan.scan("settings.py", (repository / "settings.py").read_text())
    (repository / scan.ALLOWED).write_text(f"# why\nsettings.py {found.fingerprint} made up\n")
    assert scan.main([str(repository)]) == 0
    (repository / "settings.py").write_text("")
    assert scan.main([str(repository)]) == 1
    assert "is not needed any more" in capsys.readouterr().out


def test_ignored_files_are_not_read_and_a_missing_git_is_an_error(
    repository: Path, tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    (repository / ".gitignore").write_text("*.keys\n")
    (repository / "encryption.keys").write_text(PLANTED["an encryption key"])
    assert scan.main([str(repository)]) == 0
    assert scan.main([str(tmp_path_factory.mktemp("bare"))]) == 0
    assert capsys.readouterr().out.startswith("SKIPPED: ")


# Known vulnerabilities of dependencies


def program(folder: Path, code: str) -> str:
    """A program in place of pip-audit: nothing leaves this machine."""
    path = folder / "pip-audit"
    path.write_text(f"#!{sys.executable}\nimport sys\n{code}\n")
    path.chmod(0o755)
    return str(path)


VULNERABLE = '{"dependencies": [{"name": "a", "version": "1", "vulns": [{"id": "CVE-1", "fix_versions": ["2"]}]}]}'
REFUSED = "requests.exceptions.ConnectionError: connection refused"


@pytest.mark.parametrize(
    ("code", "exit_code", "said"),
    [
        ("sys.exit(0)", 0, "no known vulnerability"),
        (f"print('{VULNERABLE}'); sys.exit(1)", 1, "a 1 has CVE-1; fixed in 2"),
        (f"sys.exit('{REFUSED}')", 0, f"SKIPPED: dependencies were NOT checked for known vulnerabilities: .*{REFUSED}"),
        ("sys.exit('duplicate requirements')", 1, "pip-audit failed with exit code 1: duplicate requirements"),
    ],
)
def test_an_audit_reports_findings_and_failed_scans(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], code: str, exit_code: int, said: str
) -> None:
    assert advisories.main([program(tmp_path, code), "requirements/dev.lock"]) == exit_code
    assert re.search(said, capsys.readouterr().out)


def test_an_audit_without_its_program_is_a_loud_skip(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert advisories.main([str(tmp_path / "pip-audit"), "requirements/dev.lock"]) == 0
    assert capsys.readouterr().out.startswith("SKIPPED: ")
