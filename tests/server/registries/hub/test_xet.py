"""Large files in xorbs and shards.

A serving process needs little memory for a xorb of a gigabyte that arrives as a few megabytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from itertools import pairwise
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from tests.support.hub import header, send, shard_of, xorb_of
from tests.support.serve import LiveServer, service_process

from protoslice.repositories import xet_sessions

Made = Callable[..., str]
Serving = Callable[..., AbstractContextManager[LiveServer]]

DATA = hashlib.shake_256(b"data").digest(300_000)
CUTS = (0, 30_000, 90_000, 150_000, 220_000, len(DATA))
CHUNKS = [DATA[start:end] for start, end in pairwise(CUTS)]


def session(client: httpx.Client, name: str, kind: str = "models") -> str:
    """Return the path of a new session."""
    output = client.get(f"/api/{kind}/{name}/xet-write-token/main")
    assert output.status_code == 200
    found = output.json()
    assert found["accessToken"]
    names = {"casUrl": "x-xet-cas-url", "accessToken": "x-xet-access-token", "exp": "x-xet-token-expiration"}
    assert {name: str(found[name]) for name in names} == {name: output.headers[read] for name, read in names.items()}
    url: str = found["casUrl"]
    return urlsplit(url).path


def sent(client: httpx.Client, cas: str, *chunks: bytes) -> str:
    """Send a xorb, and return its hash."""
    hash, data = xorb_of(*chunks)
    assert client.post(f"{cas}/v1/xorbs/default/{hash}", content=data).json() == {"was_inserted": True}
    return hash


def shard(client: httpx.Client, cas: str, data: bytes) -> httpx.Response:
    """Return the answer to a shard."""
    return client.post(f"{cas}/v1/shards", content=data)


def committed(client: httpx.Client, name: str, data: bytes = DATA, kind: str = "models") -> httpx.Response:
    """Return the answer to a commit of a file by its digest."""
    oid = hashlib.sha256(data).hexdigest()
    return send(client, f"{kind}/{name}", header(), ("lfsFile", {"path": "m.bin", "algo": "sha256", "oid": oid}))


def test_the_hash_of_a_xorb_is_that_of_the_clients() -> None:
    """huggingface_hub 1.33.0 and 2.4.0 both sent these cuts and this hash for these bytes, by hf_xet."""
    data = hashlib.shake_256(b"golden").digest(1_500_000)
    ends = (
        0, 40_970, 109_339, 240_411, 287_187, 396_344, 449_341, 506_432, 517_221, 648_293, 677_312, 715_836, 834_932,
        844_789, 883_280, 911_464, 1_034_840, 1_063_643, 1_083_326, 1_123_190, 1_179_927, 1_239_751, 1_256_334,
        1_283_266, 1_412_425, 1_464_244, 1_500_000,
    )  # fmt: skip
    hash, _ = xorb_of(*(data[start:end] for start, end in pairwise(ends)))
    assert hash == "39b3607542eabdc273b9c333e806d75606a15e2af3933ba4819ac8cc00e3449e"


def size(*chunks: bytes) -> int:
    """Return the number of bytes of chunks together."""
    return sum(map(len, chunks))


@pytest.mark.parametrize("kind", ["model", "dataset"])
def test_a_file_is_made_of_chunks_of_several_xorbs(client: httpx.Client, made: Made, kind: str) -> None:
    name, zeros = made(kind=kind), bytes(1000)
    cas = session(client, name, f"{kind}s")
    first, second = sent(client, cas, b"other", *CHUNKS[:2], zeros), sent(client, cas, *CHUNKS[2:])
    data = DATA + zeros + zeros
    extents = [
        (first, size(*CHUNKS[:2]), 1, 3),
        (second, size(CHUNKS[2]), 0, 1),
        (second, size(*CHUNKS[3:]), 1, 3),
        (first, 1000, 3, 4),
        (first, 1000, 3, 4),
    ]
    assert len(CHUNKS) == 5
    assert shard(client, cas, shard_of((data, extents), (b"other", [(first, 5, 0, 1)]))).json() == {"result": 1}
    assert committed(client, name, data, f"{kind}s").status_code == 200
    prefix = "" if kind == "model" else "datasets/"
    assert client.get(f"/{prefix}{name}/resolve/main/m.bin").content == data
    assert committed(client, name, b"other", f"{kind}s").status_code == 200


def test_a_shard_needs_no_hashes_of_its_extents(client: httpx.Client, made: Made) -> None:
    name = made()
    cas = session(client, name)
    extents = [(sent(client, cas, *CHUNKS), len(DATA), 0, 5)]
    assert shard(client, cas, shard_of((DATA, extents), checked=False)).status_code == 200
    assert committed(client, name).status_code == 200


def test_each_token_has_a_session_of_its_own(client: httpx.Client, made: Made) -> None:
    name = made()
    first, second = session(client, name), session(client, name)
    assert first != second
    extents = [(sent(client, first, DATA[:9]), 9, 0, 1)]
    output = shard(client, second, shard_of((DATA[:9], extents)))
    assert output.status_code == 400
    assert "which was not sent" in output.headers["x-error-message"]


def test_a_session_is_of_one_repository(client: httpx.Client, made: Made) -> None:
    cas = session(client, made())
    others = made()
    path = cas.replace(cas.split("/api/xet/models/")[1].rpartition("/")[0], others)
    hash, data = xorb_of(b"abc")
    assert client.post(f"{path}/v1/xorbs/default/{hash}", content=data).status_code == 404
    assert client.post(f"{path.rpartition('/')[0]}/none/v1/xorbs/default/{hash}", content=data).status_code == 404


def test_what_is_sent_again_is_taken_once(client: httpx.Client, made: Made) -> None:
    name = made()
    cas = session(client, name)
    hash, data = xorb_of(*CHUNKS)
    for new in (True, False):
        assert client.post(f"{cas}/v1/xorbs/default/{hash}", content=data).json() == {"was_inserted": new}
    for _ in range(2):
        assert shard(client, cas, shard_of((DATA, [(hash, len(DATA), 0, 5)]))).status_code == 200
    assert committed(client, name).status_code == 200


def test_a_xorb_has_the_bytes_that_its_hash_was_made_of(client: httpx.Client, made: Made) -> None:
    cas = session(client, made())
    hash, data = xorb_of(*CHUNKS)
    bad = bytearray(data)
    bad[100] ^= 1
    packed = b"\0\3\0\0\1\3\0\0abc"
    for sent in (bytes(bad), data[:-1], b"", b"\1" + data[1:], packed, b"\0\0\0\0\0\xff\xff\xff"):
        output = client.post(f"{cas}/v1/xorbs/default/{hash}", content=sent)
        assert 400 <= output.status_code < 500, output.text
    assert client.post(f"{cas}/v1/xorbs/default/{'g' * 64}", content=data).status_code == 400
    assert client.post(f"{cas}/v1/xorbs/default/{hash}", content=data).json() == {"was_inserted": True}


def test_a_shard_that_lies_is_refused(client: httpx.Client, made: Made) -> None:
    name = made()
    cas = session(client, name)
    hash = sent(client, cas, b"abc", b"defg")
    good = [(hash, 7, 0, 2)]
    whole = shard_of((b"abcdefg", good))
    lies = {
        "bytes of another digest": shard_of((b"abcdefx", good)),
        "chunks beyond the xorb": shard_of((b"abcdefg", [(hash, 7, 0, 3)])),
        "no chunks": shard_of((b"abcdefg", [(hash, 0, 1, 1)])),
        "another size": shard_of((b"abcdefg", [(hash, 8, 0, 2)])),
        "another xorb": shard_of((b"abcdefg", [("0" * 64, 7, 0, 2)])),
        "an end in its list": whole[: 48 * 3],
        "another version": whole[:32] + b"\3" + whole[33:],
        "a file without a digest": whole[: 48 + 35] + b"\0" + whole[48 + 36 :],
        "nothing": b"",
    }
    for what, lie in lies.items():
        assert 400 <= shard(client, cas, lie).status_code < 500, what
        assert committed(client, name, b"abcdefg").status_code == 400, what
    assert shard(client, cas, whole).status_code == 200
    assert committed(client, name, b"abcdefg").status_code == 200


def test_the_files_of_a_shard_have_bytes_in_proportion_to_its_xorbs(
    client: httpx.Client, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(xet_sessions, "_NAMED_FREE", 0)
    name = made()
    cas = session(client, name)
    hash = sent(client, cas, b"ten bytes.")
    most = (b"ten bytes." * 16, [(hash, 10, 0, 1)] * 16)
    output = shard(client, cas, shard_of(most, (b"ten bytes.", [(hash, 10, 0, 1)])))
    assert output.status_code == 413
    assert "more than 160 bytes" in output.headers["x-error-message"]
    assert shard(client, cas, shard_of(most)).status_code == 200


def test_a_file_has_a_bounded_number_of_extents(client: httpx.Client, made: Made) -> None:
    cas = session(client, made())
    head = shard_of((b"", []))[: 48 + 36]
    output = shard(client, cas, head + b"\xff\xff\xff\x7f" + bytes(8))
    assert output.status_code == 413


def test_a_session_counts_as_open_until_a_shard_names_its_xorbs(serving: Serving) -> None:
    with serving(max_open_uploads_per_client=1) as live, httpx.Client(base_url=live.url) as client:
        client.post("/api/repos/create", json={"organization": "ann", "name": "m"}).raise_for_status()
        for number in range(3):
            cas, data = session(client, "ann/m"), DATA[number:][:9]
            assert client.get("/api/models/ann/m/xet-write-token/main").status_code == 429
            assert shard(client, cas, shard_of()).status_code == 200
            assert client.get("/api/models/ann/m/xet-write-token/main").status_code == 429
            extents = [(sent(client, cas, data), 9, 0, 1)]
            for _ in range(2):  # the answer to the first one may be lost
                assert shard(client, cas, shard_of((data, extents))).status_code == 200
        assert len(client.get("/v1/stores").json()["items"]) == 0


CHUNK = 128 << 10
MANY_CHUNKS = 8192
"""The most chunks of a xorb, each of the largest size: a gigabyte, where a xorb may have 64 MiB."""
BOUND = 160 << 20


def packed() -> bytes:
    """Return a chunk of zeros as clients send it, in a frame of LZ4: one zero, which is repeated."""
    left = CHUNK - 1 - 5 - 4 - 15
    match = b"\x1f\0\1\0" + b"\xff" * (left // 255) + bytes([left % 255])
    block = match + b"\x50" + bytes(5)
    frame = b"\x04\x22\x4d\x18\x60\x70\x73" + len(block).to_bytes(4, "little") + block + bytes(4)
    return b"\0" + len(frame).to_bytes(3, "little") + b"\1" + CHUNK.to_bytes(3, "little") + frame


def test_a_xorb_that_unpacks_to_a_gigabyte_is_refused_in_bounded_memory(tmp_path: Path) -> None:
    with (
        service_process("--storage", tmp_path.as_uri(), settings={"PROTOSLICE_LOG_LEVEL": "error"}) as service,
        httpx.Client(base_url=service.url, timeout=60) as client,
    ):
        client.post("/api/repos/create", json={"organization": "ann", "name": "m"}).raise_for_status()
        cas = urlsplit(client.get("/api/models/ann/m/xet-write-token/main").json()["casUrl"]).path
        # A xorb of the largest size has another hash than it claims, and no other fault.
        sent = client.post(f"{cas}/v1/xorbs/default/{'0' * 64}", content=packed() * 512)
        assert (sent.status_code, "chunks do not match" in sent.headers["x-error-message"]) == (460, True)
        service.forget_peak()
        before = service.peak()
        sent = client.post(f"{cas}/v1/xorbs/default/{'0' * 64}", content=packed() * MANY_CHUNKS)
        assert service.peak() - before < BOUND
        assert sent.status_code == 413
    assert sum(each.stat().st_size for each in tmp_path.rglob("*") if each.is_file()) < 1 << 20
