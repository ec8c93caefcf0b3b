"""huggingface_hub: refused pull requests, pushed cards, and printed addresses that open."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import httpx
from tests.clients.running import Service, good, refused, serving
from tests.hub import BESIDE, QUIET, VERSIONS
from tests.support.environments import python_of

CARDS: Final = VERSIONS[-1:]
"""Versions that validate a card at their endpoint; earlier ones always ask huggingface.co."""
_CARD: Final = """
import sys
from huggingface_hub import ModelCard, create_repo, hf_hub_download
create_repo(sys.argv[1])
card = ModelCard("---\\nlicense: mit\\n---\\n# A model\\n")
card.push_to_hub(sys.argv[1])
assert open(hf_hub_download(sys.argv[1], "README.md")).read() == str(card)
"""


def run(folder: Path) -> str:
    """Go through each version."""
    for version in VERSIONS:
        python = python_of(f"huggingface_hub=={version}", *BESIDE)
        home = folder / version
        (home / "model").mkdir(parents=True)
        (home / "model/large.bin").write_bytes(bytes(range(256)) * (11 << 12))
        (home / "model/small.txt").write_text("new")
        with serving(home) as service:
            _pull_requests(python, home, service)
        with serving(home, closed=True) as service:
            asked = QUIET | {"HF_ENDPOINT": service.url, "HF_TOKEN": service.token, "HF_HOME": str(home / "cache")}
            if version in CARDS:
                good(python, "-c", _CARD, "team/card", folder=home, env=asked)
    return f"huggingface_hub {', '.join(VERSIONS)}"


def _pull_requests(python: Path, home: Path, service: Service) -> None:
    asked = QUIET | {"HF_ENDPOINT": service.url, "HF_HOME": str(home / "cache")}
    hf = python.with_name("hf")
    (home / "first").write_text("first")
    told = good(hf, "upload", "team/model", "first", folder=home, env=asked)
    url = re.search(r"https?://[^\s'\"]+", told)
    assert url is not None, told
    page = httpx.get(url[0])
    assert page.status_code == 302, url[0]
    assert page.headers["location"].startswith("/m/team%2Fmodel"), url[0]
    before = httpx.get(f"{service.url}/api/models/team/model").json()
    for what in ("model", "model/large.bin", "model/small.txt"):
        upload: list[str | Path] = [hf, "upload", "team/model", what, "--create-pr"]
        refused("Pull requests are not supported", *upload, folder=home, env=asked)
    assert httpx.get(f"{service.url}/api/models/team/model").json()["sha"] == before["sha"]
    refs = httpx.get(f"{service.url}/api/models/team/model/refs").json()
    assert (len(refs["branches"]), refs["pullRequests"]) == (1, [])
