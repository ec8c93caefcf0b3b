"""Conformance program of the OCI distribution API, run by `make oci` with its path."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from xml.etree import ElementTree

from tests.support.serve import serve

ON = (
    "OCI_API_MANIFESTS_TAG_PARAM", "OCI_API_MANIFESTS_DIGEST_HEADER", "OCI_API_BLOBS_UPLOAD_CANCEL",
    "OCI_API_BLOBS_DIGEST_HEADER", "OCI_DATA_SPARSE",
)  # fmt: skip
"""Tests that the program leaves out unless they are asked for."""


def main(program: str) -> int:
    """Run the program against a service over a folder; 0 when nothing fails."""
    with TemporaryDirectory() as folder:
        with serve(storage=f"file://{folder}/storage") as live:
            asked = {"OCI_REGISTRY": f"{live.host}:{live.port}", "OCI_TLS": "disabled", "OCI_RESULTS_DIR": folder}
            asked |= dict.fromkeys(ON, "true")
            status = subprocess.run([os.path.abspath(program)], env=os.environ | asked, cwd=folder).returncode
        print(ElementTree.parse(Path(folder, "junit.xml")).getroot().attrib)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
