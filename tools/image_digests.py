"""Write the digests of images into `docker/`, after each name and version; `make pins` runs this.

    python -m tools.image_digests

skopeo gets each digest from the image's registry. If a registry cannot be reached, the name stays unchanged, and the
program prints a line about it.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Final

DOCKER: Final = Path(__file__).resolve().parent.parent / "docker"
IMAGE: Final = re.compile(
    r"^(?P<before>\s*image: |\s*FROM |ARG (?:BASE|RUST)=)(?P<name>[a-z0-9./-]+:[\w.-]+)(?:@sha256:[0-9a-f]{64})?$", re.M
)
OWN: Final = "protoslice:"


def pinned(text: str, digest_of: Callable[[str], str | None]) -> str:
    """Return a compose file's or Dockerfile's text with digests after the image names, except after our own image."""

    def replace(found: re.Match[str]) -> str:
        name = found["name"]
        digest = None if name.startswith(OWN) else digest_of(name)
        return f"{found['before']}{name}@{digest}" if digest else found[0]

    return IMAGE.sub(replace, text)


def digest_of(name: str) -> str | None:
    """Return an image's digest; None if its registry does not answer.

    For an image of several architectures, it is the digest of their list.
    """
    asked = subprocess.run(["skopeo", "inspect", "--raw", f"docker://{name}"], capture_output=True)
    if asked.returncode:
        reason = asked.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        print(f"{name}: no digest is written, as its registry does not answer: {reason}")
        return None
    return f"sha256:{sha256(asked.stdout).hexdigest()}"


def main() -> None:
    """Write the digests into all files of `docker/` that name images."""
    known = dict[str, str | None]()
    for path in (DOCKER / "Dockerfile", *sorted(DOCKER.glob("compose*.yaml"))):
        text = path.read_text()
        for found in IMAGE.finditer(text):
            name = found["name"]
            if name not in known and not name.startswith(OWN):
                known[name] = digest_of(name)
        path.write_text(pinned(text, known.get))


if __name__ == "__main__":
    main()
