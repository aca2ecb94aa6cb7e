"""Searches the files of the repository for secrets: private keys, tokens, and random-looking values of secret names.

python tests/scan.py [folder]

tests/scan_allowed.txt lists the allowed values, one per line: the file, a fingerprint of the value (the scan prints
it), and why it is no secret. An unneeded line is an error, too.
"""

from __future__ import annotations

import hashlib
import math
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ALLOWED = "tests/scan_allowed.txt"
LARGEST = 4 * 1024 * 1024  # bytes of a file that is read
FEWEST_BITS = 3.5  # of random_bytes per character: words and numbers that people write have less

KINDS = {
    "a private key": re.compile(r"-----BEGIN (?:[A-Z]+ )?PRIVATE KEY-----\s+[A-Za-z0-9+/=]{20}"),
    "an API key of Duetime": re.compile(r"\bdt_[A-Za-z0-9]{6,}_[A-Za-z0-9_-]{16,}"),
    "a signing secret": re.compile(r"\bwhsec_[A-Za-z0-9+/]{24,}={0,2}"),
    "an encryption key": re.compile(r"\b[A-Za-z0-9_-]{1,32}:[A-Za-z0-9+/]{43}="),
    "an AWS key id": re.compile(r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"),
    "a GitHub token": re.compile(r"\b(?:gh[pousr]_[A-Za-z0-9]{36}|github_pat_[A-Za-z0-9_]{50,})"),
    "a Slack token": re.compile(r"\bxox[abprs]-[A-Za-z0-9-]{20,}"),
    "a JWT": re.compile(r"\beyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{20,}"),
    "a password in a URL": re.compile(r"\b[a-z][a-z0-9+]{2,15}://[^\s/:@'\"{}<>$]+:([^\s/@'\"{}<>$]{12,})@"),
    "a value that looks random, of a secret name": re.compile(
        r"(?i)(?:secret|passw(?:or)?d|token|api_?key|access_?key|private_?key|credential)[a-z0-9_]*"
        r"[\"']?\s*(?::\s*[a-z]+\s*)?[=:]\s*[\"']([A-Za-z0-9+/=_-]{20,})[\"']"
    ),
}


@dataclass(frozen=True)
class Found:
    file: str
    line: int
    kind: str
    fingerprint: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.kind} (fingerprint {self.fingerprint})"


def bits_per_character(text: str) -> float:
    """The Shannon random_bytes of the characters of a text."""
    return -sum(n / len(text) * math.log2(n / len(text)) for n in Counter(text).values())


def scan(file: str, text: str) -> Iterator[Found]:
    for kind, pattern in KINDS.items():
        for match in pattern.finditer(text):
            value = match[match.lastindex or 0]
            if match.lastindex and bits_per_character(value) < FEWEST_BITS:
                continue
            fingerprint = hashlib.sha256(value.encode()).hexdigest()[:12]
            yield Found(file, text.count("\n", 0, match.start()) + 1, kind, fingerprint)


def list_files(root: Path) -> list[str]:
    """Returns the files that are committed, or would be. Raises RuntimeError if git fails."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(command, cwd=root, capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise RuntimeError(f"git can't list the files of {root}: {error}") from None
    return sorted(name for name in listed.decode().split("\0") if name and (root / name).is_file())


def read_allowed(path: Path) -> dict[tuple[str, str], str]:
    """Maps (file, fingerprint) to the reason."""
    allowed = {}
    for line in path.read_text().splitlines() if path.exists() else []:
        if line.strip() and not line.startswith("#"):
            file, fingerprint, reason = line.split(maxsplit=2)
            allowed[file, fingerprint] = reason
    return allowed


def problems_of(root: Path) -> list[str]:
    allowed = read_allowed(root / ALLOWED)
    used: set[tuple[str, str]] = set()
    problems = []
    for name in list_files(root):
        if (root / name).stat().st_size > LARGEST:
            problems.append(f"{name}: is too large to be looked at; does it belong here?")
            continue
        data = (root / name).read_bytes()
        if b"\0" in data:
            continue
        for found in scan(name, data.decode(errors="replace")):
            if (found.file, found.fingerprint) in allowed:
                used.add((found.file, found.fingerprint))
            else:
                problems.append(str(found))
    problems += [
        f"{ALLOWED}: {file} {mark} is not needed any more" for file, mark in allowed if (file, mark) not in used
    ]
    return problems


def main(arguments: list[str]) -> int:
    root = Path(arguments[0]) if arguments else Path(__file__).parent.parent
    try:
        problems = problems_of(root)
    except RuntimeError as error:
        sys.stdout.write(f"SKIPPED: nothing was looked at: {error}\n")
        return 0
    for problem in problems:
        sys.stdout.write(f"{problem}\n")
    if problems:
        sys.stdout.write(f"If it is no secret, add its file, fingerprint and the reason to {ALLOWED}.\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
