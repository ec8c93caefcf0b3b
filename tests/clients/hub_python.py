"""huggingface_hub: refused pull requests, pushed cards, and printed addresses that open."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import httpx
from tests.clients.hub import QUIET, VERSIONS, WITH
from tests.clients.running import Service, good, refused, serving
from tests.support.environments import python_of

CARDS: Final = VERSIONS[-1:]
"""The versions that validate a card at their endpoint; earlier versions always use huggingface.co."""
_CARD: Final = """
import sys
from huggingface_hub import ModelCard, create_repo, hf_hub_download
create_repo(sys.argv[1])
card = ModelCard("---\\nlicense: mit\\n---\\n# A model\\n")
card.push_to_hub(sys.argv[1])
assert open(hf_hub_download(sys.argv[1], "README.md")).read() == str(card)
"""


_MANAGE: Final = """
import huggingface_hub
from huggingface_hub import CommitOperationAdd, HfApi
api = HfApi()
for name in ("ann/one", "ann/two", "bob/one"):
    api.create_repo(name)
    for text in ("old", "new"):
        api.create_commit(name, [CommitOperationAdd("config.json", text.encode()), CommitOperationAdd("w.bin", b"w")],
                          commit_message=text)
assert [each.id for each in api.list_models(author="ann")] == ["ann/one", "ann/two"]
assert [each.id for each in api.list_models(search="one")] == ["ann/one", "bob/one"]
by_time = "created_at" if hasattr(api, "list_kernels") else "createdAt"
assert [each.id for each in api.list_models(sort=by_time, limit=1)] == ["bob/one"]
(entry,) = api.list_models(author="bob", full=True)
assert {each.rfilename for each in entry.siblings} == {"config.json", "w.bin"}
last = {each.path: each.last_commit.title for each in api.list_repo_tree("ann/one", expand=True)}
assert last == {"config.json": "new", "w.bin": "old"}, last
lfs = {each.path: each.lfs is not None for each in api.list_repo_tree("ann/one")}
assert lfs == {"config.json": False, "w.bin": True}, lfs
fronts = {
    "ann/one": "pipeline_tag: fill-mask\\nlanguage: en\\ndatasets: squad",
    "ann/two": "language: [en, fr]\\nlicense: mit",
}
for name, front in fronts.items():
    card = CommitOperationAdd("README.md", f"---\\n{front}\\n---\\n".encode())
    api.create_commit(name, [card], commit_message="card")
def listed(**asked):
    return [each.id for each in api.list_models(**asked)]
assert listed(filter="en") == ["ann/one", "ann/two"]
assert listed(filter=["en", "license:mit"], limit=1) == ["ann/two"]
assert listed(pipeline_tag="fill-mask") == listed(trained_dataset="squad") == ["ann/one"]
(entry,) = api.list_models(search="ann/one", cardData=True)
assert (entry.pipeline_tag, entry.card_data["datasets"]) == ("fill-mask", "squad"), entry
if huggingface_hub.__version__ < "2":
    assert listed(model_name="one", search="ann") == ["ann/one"]
for asked in (dict(apps="vllm"), dict(inference="warm"), dict(inference_provider=["a", "b"])):
    try:
        assert listed(**asked) is None
    except Exception as error:
        assert "is not supported" in str(error), error
head = api.model_info("ann/one").sha
assert api.model_info("ann/one", revision=head[:7]).sha == head
api.auth_check("ann/one")
api.super_squash_history("ann/one")
assert len(api.list_repo_commits("ann/one")) == 1
api.move_repo("ann/two", "bob/two")
assert {each.id for each in api.list_models(author="bob")} == {"bob/one", "bob/two"}
api.update_repo_settings("bob/two", private=False)
"""


_AT_ONCE: Final = """
import os
from concurrent.futures import ThreadPoolExecutor
from huggingface_hub import CommitOperationAdd, HfApi
api = HfApi()
with ThreadPoolExecutor(16) as pool:
    for count, size in ((16, 9), (30, 400_000), (12, 11 << 20)):
        name = f"ann/at-once-{size}"
        api.create_repo(name)
        for number in range(count):
            api.create_branch(name, branch=f"b{number}")
        commit = lambda number: api.create_commit(
            name, [CommitOperationAdd("w.bin", os.urandom(size))], commit_message="w", revision=f"b{number}")
        list(pool.map(commit, range(count)))
        assert all(api.file_exists(name, "w.bin", revision=f"b{number}") for number in range(count))
"""


def run(folder: Path) -> str:
    """Go through each version."""
    for version in VERSIONS:
        python = python_of(f"huggingface_hub=={version}", *WITH)
        home = folder / version
        (home / "model").mkdir(parents=True)
        (home / "model/large.bin").write_bytes(bytes(range(256)) * (11 << 12))
        (home / "model/small.txt").write_text("new")
        with serving(home) as service:
            _pull_requests(python, home, service)
            asked = QUIET | {"HF_ENDPOINT": service.url, "HF_HOME": str(home / "managed")}
            good(python, "-c", _MANAGE, folder=home, env=asked)
            good(python, "-c", _AT_ONCE, folder=home, env=asked)
            if version == VERSIONS[-1]:
                listed = good(
                    python.with_name("hf"),
                    "models",
                    "ls",
                    "--author",
                    "bob",
                    "--format",
                    "json",
                    folder=home,
                    env=asked,
                )
                assert "bob/two" in listed, listed
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
    page = httpx.get(url[0], headers={"accept": "text/html"})
    assert page.status_code == 302, url[0]
    assert page.headers["location"].startswith("/m/team%2Fmodel"), url[0]
    before = httpx.get(f"{service.url}/api/models/team/model").json()
    for what in ("model", "model/large.bin", "model/small.txt"):
        upload: list[str | Path] = [hf, "upload", "team/model", what, "--create-pr"]
        refused("Pull requests are not supported", *upload, folder=home, env=asked)
    assert httpx.get(f"{service.url}/api/models/team/model").json()["sha"] == before["sha"]
    refs = httpx.get(f"{service.url}/api/models/team/model/refs").json()
    assert (len(refs["branches"]), refs["pullRequests"]) == (1, [])
