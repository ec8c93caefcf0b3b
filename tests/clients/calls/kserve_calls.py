"""Downloads of KServe's storage initializer; their content is compared."""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from kserve_storage import Storage


def files_in(folder: str) -> dict[str, bytes]:
    """Return the contents of a folder by path, without the extra files that clients and archives leave there."""
    root = Path(folder)
    found = {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}
    return {path: data for path, data in found.items() if not path.startswith(".cache/") and path != "archive.tar"}


def main(wanted: str, *uris: str) -> int:
    """Download each URI; return the number of URIs that do not give the files of the folder `wanted`."""
    failed = 0
    for uri in uris:
        with TemporaryDirectory() as folder:
            Storage.download(uri, folder)
            same = files_in(folder) == files_in(wanted)
        sys.stdout.write(f"kserve-storage, {uri}: {'fine' if same else 'FAILS'}\n")
        failed += not same
    return failed


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
