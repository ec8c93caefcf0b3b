"""The HTTP contract and the storage suite on buckets of Versity's gateway, MinIO and Azurite."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.clients.running import program
from tests.support.backends import VARIABLE
from tests.support.buckets import BUCKET, running
from tests.support.environments import ROOT

_SUITES: Final = (("tests/storage/test_conformance.py",), ("-m", "contract", "tests/server"))


def run(name: str, folder: Path) -> str:
    """Run both suites on a server; `folder` is not used, since servers make separate folders."""
    with running(str(program(name))) as server:
        variable = f"PROTOSLICE_TEST_{server.scheme.upper()}"
        environment = os.environ | {
            variable: f"{server.scheme}://{BUCKET}/tests",
            f"{variable}_OPTIONS": json.dumps(server.options),
            VARIABLE: server.scheme,
        }
        for suite in _SUITES:
            command = [sys.executable, "-m", "pytest", "-q", "-n", "2", *suite]
            subprocess.run(command, cwd=ROOT, env=environment, check=True)
    return program(name).name
