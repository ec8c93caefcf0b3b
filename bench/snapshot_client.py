"""Hugging Face's own client, timed at each URL: `snapshot_client.py REPOSITORY FOLDER URL…`.

The repository is downloaded into the folder. Each line of the input runs one round; the answer is a line of JSON with
seconds and bytes for each URL. Run by `bench.snapshot` in an environment of huggingface_hub.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

from huggingface_hub import snapshot_download


def main(repository: str, folder: str, urls: list[str]) -> None:
    """Answer each line of the input with a round, whose order of URLs turns with it."""
    for number, _ in enumerate(sys.stdin):
        turn = number % len(urls)
        told = {url: _round(repository, folder, url) for url in (*urls[turn:], *urls[:turn])}
        print(json.dumps([told[url] for url in urls]), flush=True)


def _round(repository: str, folder: str, url: str) -> tuple[float, int]:
    with tempfile.TemporaryDirectory(dir=folder) as cache:
        begun = time.perf_counter()
        there = Path(snapshot_download(repository, cache_dir=cache, endpoint=url))
        done = time.perf_counter()
        # Files of one entity tag are fetched once, and several names point at them.
        fetched = {each.resolve() for each in there.rglob("*") if each.is_file()}
        return done - begun, sum(each.stat().st_size for each in fetched)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
