"""Calls of a Protoslice service through a client that openapi-python-client generated; see README.md."""

from __future__ import annotations

import os
import sys
from base64 import b64encode
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO, cast

import httpx
from protoslice_client import AuthenticatedClient, Client
from protoslice_client.api.stores import create_store
from protoslice_client.api.tags import get_tag, put_tag
from protoslice_client.api.uploads import append_to_upload, create_upload, get_upload_head
from protoslice_client.api.views import get_chunk, get_merged, get_tensor, list_chunks, list_tensors
from protoslice_client.models import PutTag
from protoslice_client.types import UNSET, File, Response

PIECE = 1 << 20  # the longest range whose answer has a digest
RETRIES = 100


def rest_of(source: BinaryIO) -> File:
    """Return the unread rest of a file as a body. For a file object, httpx would announce the whole file's length."""
    return File(payload=cast(BinaryIO, iter(lambda: source.read(PIECE), b"")))


def upload_stream(client: AuthenticatedClient, source: BinaryIO, tag: str) -> str:
    """Upload a source of unknown length, such as a pipe; return the store's id."""
    made = create_store.sync(client=client, body=rest_of(source), filename="model.onnx", tag=[tag])
    return made.id


def upload_file(client: AuthenticatedClient, file: Path, tag: str) -> str:
    """Upload a file by tus, and continue at the service's offset when the connection breaks; return the store's id."""
    size = file.stat().st_size
    begun = create_upload.sync_detailed(
        client=client, tus_resumable="1.0.0", upload_length=size, filename=file.name, tag=[tag]
    )
    upload = begun.headers["location"].rpartition("/")[2]
    offset = 0
    for _ in range(RETRIES):
        try:
            with file.open("rb") as source:
                source.seek(offset)
                sent = append_to_upload.sync_detailed(
                    upload, client=client, tus_resumable="1.0.0", upload_offset=offset, body=rest_of(source)
                )
            return sent.headers["protoslice-store"]
        except httpx.TransportError as error:
            state = get_upload_head.sync_detailed(upload, client=client, tus_resumable="1.0.0")
            offset = int(state.headers["upload-offset"])
            print(f"  {type(error).__name__}: continue at {offset} of {size} bytes")
            if offset == size:
                return state.headers["protoslice-store"]
    raise SystemExit("The connection breaks too often")


def entries(list_page: Any, client: AuthenticatedClient, store: str) -> Iterator[Any]:
    """Yield all entries of a store's list, page by page; `list_page` is the module of the list's operation."""
    cursor: str | None = None
    while True:
        page = list_page.sync(store, client=client, limit=2, cursor=cursor or UNSET)
        yield from page.items
        cursor = page.next_
        if cursor is None:
            return


def chunk_in_parts(client: AuthenticatedClient, store: str, number: int) -> bytes:
    """Download a chunk by four ranges at a time.

    Each range is compared with its digest; `If-Range` ensures that all ranges are of one version.
    """

    def part(start: int, etag: str | None = None) -> Response:
        answer = get_chunk.sync_detailed(
            store, number, client=client,
            range_=f"bytes={start}-{start + PIECE - 1}", if_range=etag or UNSET, want_content_digest="sha-256=1",
        )  # fmt: skip
        if answer.status_code != 206:
            raise SystemExit("The chunk has changed: start again")
        check(answer.content, answer.headers.get("content-digest"))
        return answer

    first = part(0)
    size, etag = int(first.headers["content-range"].rpartition("/")[2]), first.headers["etag"]
    with ThreadPoolExecutor(4) as pool:
        rest = pool.map(lambda start: part(start, etag).content, range(PIECE, size, PIECE))
        whole = first.content + b"".join(rest)
    check(whole, first.headers.get("repr-digest"))
    return whole


def check(data: bytes, digest: str | None) -> None:
    """Compare bytes with a digest from the service; exit if they differ or there is no digest."""
    if digest is None:
        raise SystemExit("There is no digest in the answer")
    if f"sha-256=:{b64encode(sha256(data).digest()).decode()}:" != digest:
        raise SystemExit("The bytes differ from their digest")


def move_tag(client: AuthenticatedClient, tag: str, store: str) -> list[int]:
    """Create a tag only if it is absent, then move it only if it is unchanged; a stale condition gives status 412."""
    target = PutTag(store=store)

    def status(answer: Response) -> int:
        return int(answer.status_code)

    created = status(put_tag.sync_detailed(tag, client=client, body=target, if_none_match="*"))
    etag = get_tag.sync_detailed(tag, client=client).headers["etag"]
    moved = status(put_tag.sync_detailed(tag, client=client, body=target, if_match=etag))
    stale = status(put_tag.sync_detailed(tag, client=client, body=target, if_match='"stale"'))
    return [created, moved, stale]


def main(url: str, model: Path) -> None:
    """Make every call once."""
    # A service without access control needs no token, so the client for it is `Client(base_url=url)`.
    token = os.environ.get("PROTOSLICE_TOKEN")
    plain = Client(base_url=url, timeout=httpx.Timeout(60))
    client = AuthenticatedClient(base_url=url, token=token, timeout=httpx.Timeout(60)) if token else plain
    client = cast(AuthenticatedClient, client)

    with model.open("rb") as source:
        store = upload_stream(client, source, "python-stream")
    print(f"stream of unknown length: store {store[:12]}")
    print(f"resumable upload: store {upload_file(client, model, 'python-file')[:12]}")
    chunks = list(entries(list_chunks, client, store))
    largest = max(chunks, key=lambda chunk: chunk.size)
    print(
        f"{len(chunks)} chunks; number {largest.index} by ranges: {len(chunk_in_parts(client, store, largest.index))}"
    )
    graph = get_merged.sync_detailed(store, client=client, path="graph", omit_larger_than="1KiB")
    print(f"the graph without weights: {len(graph.content)} bytes")
    tensors = list(entries(list_tensors, client, store))
    first = get_tensor.sync_detailed(store, tensors[0].name, client=client, slice_="0:4")
    print(f"{len(tensors)} tensors; the first bytes of {tensors[0].name}: {first.content.hex()}")
    print(f"tag created, moved, refused: {move_tag(client, 'python-tag', store)}")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
