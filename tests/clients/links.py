"""rclone and wget, which follow the links of an index of files."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import Final

import httpx
from tests.clients.running import good, programs, serving

FILES: Final = {"model.onnx": b"model", "sub/deep/x y.bin": bytes(5000), "sub/ü&<b>.txt": b"text", "empty": b""}


def run(folder: Path) -> str:
    """List and copy a store."""
    programs("rclone", "wget")
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for path, data in FILES.items():
            member = tarfile.TarInfo(path)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    with serving(folder) as service:
        kind = {"content-type": "application/x-tar"}
        made = httpx.put(f"{service.url}/v1/stores", params={"tag": "x:1"}, content=out.getvalue(), headers=kind)
        made.raise_for_status()
        url = f"{service.url}/v1/stores/x:1/files/"
        remote = ["--http-url", url, ":http:"]
        listed = good("rclone", "lsf", "-R", "--files-only", *remote, folder=folder)
        assert set(FILES) <= set(listed.splitlines()), listed
        good("rclone", "copy", *remote, folder / "by-rclone", folder=folder)
        options = [
            "--quiet",
            "--recursive",
            "--no-parent",
            "--no-host-directories",
            "--cut-dirs=4",
            "--restrict-file-names=nocontrol",
        ]
        good("wget", *options, "--directory-prefix", folder / "by-wget", url, folder=folder, env={"LANG": "C.UTF-8"})
    for copy in ("by-rclone", "by-wget"):
        for path, data in FILES.items():
            assert (folder / copy / path).read_bytes() == data, (copy, path)
    versions = [good(program, option, folder=folder).splitlines()[0] for program, option in
                (("rclone", "version"), ("wget", "--version"))]  # fmt: skip
    return ", ".join(versions)
