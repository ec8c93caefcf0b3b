"""Calls of `huggingface_hub` with tokens in `HF_TOKEN` at a closed service."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import huggingface_hub as hub

WORK = {
    "write": "hub.HfApi().create_repo(name); put(name, b'1'); put(name, os.urandom(11 << 20)); print(size(name))",
    "read": "print(size(name), hub.HfApi().whoami()['type'])",
    "push": "put(name, b'2')",
    "push much": "put(name, os.urandom(11 << 20))",
}
"""The Python lines; each runs in a separate process, since the client reads its token once."""
START = """
import os, sys, huggingface_hub as hub
from pathlib import Path
name = sys.argv[1]
def put(name, data):
    hub.HfApi().upload_file(path_or_fileobj=data, path_in_repo="f", repo_id=name)
def size(name):
    return Path(hub.hf_hub_download(name, "f")).stat().st_size
"""


def told(work: str, token: str | None, name: str) -> tuple[int, str]:
    """Return the status and all output of a process that does `work` with a token."""
    asked = {key: value for key, value in os.environ.items() if key != "HF_TOKEN"} | (
        {"HF_TOKEN": token} if token else {}
    )
    with TemporaryDirectory() as home:
        done = subprocess.run(
            [sys.executable, "-c", START + WORK[work], name],
            env=asked | {"HF_HOME": home}, capture_output=True, text=True,
        )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def main(tokens: str) -> int:
    """Compare each token's rights, and the client's message for a refusal; return the number of wrong cases."""
    given = json.loads(Path(tokens).read_text())
    name = f"ann/t-{hub.__version__}"
    cases = [
        ("write", "write", 0, "11534336"),
        ("read", "read", 0, "11534336"),
        ("read", "push", 1, "lacks the scope write"),
        ("read", "push much", 1, "lacks the scope write"),
        ("wrong", "read", 1, "Invalid token"),
        ("wrong", "push", 1, "Invalid token"),
        (None, "read", 1, "Token required"),
    ]
    failed = 0
    for who, work, status, said in cases:
        got, text = told(work, given.get(who) if who else None, name)
        if got != status or said not in text:
            failed += 1
            print(f"huggingface_hub {hub.__version__}: {who} {work}: {got}\n{text}")
    print(f"huggingface_hub {hub.__version__}: {len(cases) - failed} of {len(cases)} uses of tokens hold")
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
