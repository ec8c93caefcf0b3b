"""Range headers by the clauses of RFC 9110 section 14, compared with a very simple slicer.

Digests of request bodies: they are compared for every body that is read; a wrong body has no effect.
"""

from __future__ import annotations

import hashlib
import json
import random
from base64 import b64encode
from itertools import pairwise

import httpx
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from hypothesis import given
from hypothesis import strategies as st
from tests.support.serve import LiveServer, assert_problem, exchange

from protoslice.server.http.headers import media_type_of
from protoslice.server.http.planner import NEAR, ByteRange, Selection, select

N = 10_000


def slices(*pairs: tuple[int, int]) -> Selection:
    return tuple(ByteRange(start, end) for start, end in pairs)


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("bytes=0-499", slices((0, 500))),
        ("bytes=500-999", slices((500, 1000))),
        ("bytes=-500", slices((9500, 10000))),
        ("bytes=9500-", slices((9500, 10000))),
        ("bytes=0-0", slices((0, 1))),
        ("bytes=-1", slices((9999, 10000))),
        ("bytes=0-", slices((0, 10000))),
        ("bytes=0-9999", slices((0, 10000))),
        ("bytes=9999-", slices((9999, 10000))),
        ("bytes=9990-20000", slices((9990, 10000))),
        ("bytes=-20000", slices((0, 10000))),
        ("bytes=-10000", slices((0, 10000))),
        ("bytes=0-9999999999999999999", slices((0, 10000))),
        ("bytes=000000000000000010-0000000000000000019", slices((10, 20))),
        ("bytes=0-" + "9" * 31, slices((0, 10000))),
        ("bytes=-" + "9" * 31, slices((0, 10000))),
        ("bytes=-" + "0" * 30 + "1", slices((9999, 10000))),
        ("bytes=" + "0" * 4000 + "-" + "0" * 80 + "1", slices((0, 2))),
        ("bytes=0-" + "9" * 4080, slices((0, 10000))),
        ("BYTES=0-1", slices((0, 2))),
        ("Bytes=0-1", slices((0, 2))),
        ("  bytes=0-1\t", slices((0, 2))),
    ],
)
def test_one_range(header: str, expected: Selection) -> None:
    assert select(header, N) == expected


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("bytes=0-0,-1", slices((0, 1), (9999, 10000))),
        ("bytes=500-700, 900-999", slices((500, 701), (900, 1000))),
        ("bytes=900-999 ,\t500-700", slices((900, 1000), (500, 701))),
        ("bytes=,0-1,,500-501,", slices((0, 2), (500, 502))),
        ("bytes=0-1,99999-", slices((0, 2))),
        ("bytes=99999-,0-1,-0", slices((0, 2))),
        ("bytes=0-99,50-149", slices((0, 150))),
        ("bytes=50-149,0-99", slices((0, 150))),
        ("bytes=0-99,100-199", slices((0, 200))),
        ("bytes=0-9,89-99", slices((0, 100))),
        ("bytes=0-9,90-99", slices((0, 10), (90, 100))),
        ("bytes=0-999,10-20", slices((0, 1000))),
        ("bytes=5000-5001,0-1,5002-5003,2000-2001", slices((5000, 5004), (0, 2), (2000, 2002))),
        ("bytes=0-0,0-0,0-0", slices((0, 1))),
        ("bytes=0-,0-,-10000", slices((0, 10000))),
    ],
)
def test_several_ranges(header: str, expected: Selection) -> None:
    assert select(header, N) == expected


@pytest.mark.parametrize(
    "header",
    [
        "bytes=10000-", "bytes=10000-10001", "bytes=-0", "bytes=-0,10000-", "bytes=9999999999999999999-",
        "bytes=" + "9" * 31 + "-", "bytes=" + "9" * 31 + "-" + "9" * 32, "bytes=-" + "0" * 31,
        "bytes=" + "9" * 4080 + "-",
    ],
)  # fmt: skip
def test_what_cannot_be_satisfied(header: str) -> None:
    assert select(header, N) == ()


@pytest.mark.parametrize(
    "header",
    [
        None, "", "bytes", "bytes=", "bytes=,", "bytes= ,", "bytes=-", "bytes=--1", "bytes=a-b", "bytes=1",
        "bytes=1-2-3", "bytes=5-4", "bytes=1" + "0" * 31 + "-" + "9" * 31, "bytes=0-1,5-4", "bytes=0-1;2-3",
        "bytes=0-1 2-3", "bytes:0-1", "bytes =0-1", "bytes= 0-1", "bytes=0 - 1", "bytes=+0-1", "bytes=0-+1",
        "bytes=1_0-20", "bytes=0x0-0xf", "bytes=0.0-1", "bytes=-1.5", "bytes=1e3-", "bytes=\u0660-\u0661",
        "bytes=\uff10-\uff11", "bytes=\u00b2-3", "bytes=0-1\x00", "bytes=0-1\u00a0", "bytes=0\u2013-1", "items=0-1",
        "seconds=0-1", "=0-1", "none", "bytes=0-1=",
    ],
)  # fmt: skip
def test_what_is_ignored(header: str | None) -> None:
    assert select(header, N) is None


@pytest.mark.parametrize("header", ["bytes=0-", "bytes=-5", "bytes=0-0", "bytes=-0", "bytes=5-4", "x"])
def test_nothing_is_always_whole(header: str) -> None:
    assert select(header, 0) is None


def test_too_many_ranges_are_ignored() -> None:
    def header(count: int) -> str:
        return "bytes=" + ",".join(f"{at}-{at}" for at in range(0, 100 * count, 100))

    selection = select(header(64), N)
    assert selection is not None
    assert len(selection) == 64
    assert select(header(65), N) is None
    assert select("bytes=" + "0-0," * 65, N) is None


def test_a_long_header_is_ignored_however_it_is_made() -> None:
    for filler in (" ", ",", ", "):
        assert select("bytes=0-1," + filler * 5000, N) is None


@pytest.mark.parametrize("length", [1, 1 << 31, (1 << 32) + 5, 1 << 53, (1 << 63) - 1])
def test_lengths_beyond_32_bits(length: int) -> None:
    assert select(f"bytes={length - 1}-", length) == slices((length - 1, length))
    assert select("bytes=-1", length) == slices((length - 1, length))
    assert select(f"bytes={length}-", length) == ()


def test_content_range_of_parts_and_refusals() -> None:
    assert ByteRange(0, 500).content_range(1234) == b"bytes 0-499/1234"
    assert ByteRange(3, 4).length == 1


SPEC = st.one_of(
    st.builds("{}-{}".format, st.integers(0, 300), st.integers(0, 300)),
    st.builds("{}-".format, st.integers(0, 300)),
    st.builds("-{}".format, st.integers(0, 300)),
)


def wanted(spec: str, data: bytes) -> set[int]:
    """Return the positions that a valid spec requests, as slices of a list of positions."""
    positions = list(range(len(data)))
    first, last = spec.split("-")
    if not first:
        return set(positions[-int(last) :]) if int(last) else set()
    return set(positions[int(first) :] if not last else positions[int(first) : int(last) + 1])


@given(st.lists(SPEC, min_size=1, max_size=8), st.integers(0, 250))
def test_against_a_naive_slicer(specs: list[str], length: int) -> None:
    data = random.Random(length).randbytes(length)
    selection = select("bytes=" + ",".join(specs), length)
    reversed_range = any(0 <= int(b) < int(a) for a, b in (spec.split("-") for spec in specs) if a and b)
    if reversed_range or length == 0:
        assert selection is None
        return
    asked = set().union(*(wanted(spec, data) for spec in specs))
    if not asked:
        assert selection == ()
        return
    assert selection is not None
    ordered = sorted(selection)
    assert all(0 <= found.start < found.end <= length for found in ordered)
    assert all(one.end + NEAR <= two.start for one, two in pairwise(ordered)), "near ranges are one"
    given_bytes = {position for found in ordered for position in range(found.start, found.end)}
    assert asked <= given_bytes
    assert all(found.start in asked and found.end - 1 in asked for found in ordered), "nothing is added at the edges"
    parts = [set(range(found.start, found.end)) for found in selection]
    first = [min(place for place, spec in enumerate(specs) if wanted(spec, data) & part) for part in parts]
    assert first == sorted(first), "parts come in the order asked"


@given(st.text(max_size=60), st.integers(0, 100))
def test_any_text_selects_something_sound(text: str, length: int) -> None:
    for header in (text, f"bytes={text}"):
        selection = select(header, length)
        if selection is not None:
            assert all(0 <= found.start < found.end <= length for found in selection)
            assert sum(found.length for found in selection) <= length


@pytest.mark.parametrize(
    "sent", ["application/x-tar", "Application/X-TAR", " application/x-tar ; a=b;c", "application/x-tar;"]
)
def test_a_media_type_is_told_without_its_case_and_parameters(sent: str) -> None:
    assert media_type_of({b"content-type": sent}) == "application/x-tar"


def test_a_default_counts_only_where_the_request_names_no_type() -> None:
    assert media_type_of({}) == ""
    assert media_type_of({}, "text/plain") == "text/plain"
    assert media_type_of({b"content-type": ""}, "text/plain") == ""


DESCRIPTORS = FileDescriptorSet(file=[FileDescriptorProto(name="garbled.proto", package="garbled")]).SerializeToString()
JSON = {"content-type": "application/json"}


def digest(data: bytes) -> dict[str, str]:
    return {"content-digest": f"sha-256=:{b64encode(hashlib.sha256(data).digest()).decode()}:"}


@pytest.fixture(scope="module")
def store(client: httpx.Client) -> str:
    return str(client.post("/v1/stores?filename=digested.pb", content=b"\x0a\x08digested").json()["id"])


def bodies(client: httpx.Client, store: str) -> list[tuple[str, str, bytes, dict[str, str]]]:
    """Return well-formed requests for each route that reads a whole body; they succeed with the right digest."""
    headers = {"tus-resumable": "1.0.0", "upload-length": "2", "upload-concat": "partial"}
    headers |= {"content-type": "application/offset+octet-stream"}
    upload = client.post("/v1/uploads", headers=headers, content=b"\x08\x01").headers["location"]
    asked = {"stores": [store], "chunks": [{"sha256": "0" * 64, "size": 1}]}
    return [
        ("PUT", "/v1/tags/digested", json.dumps({"store": store}).encode(), JSON),
        ("POST", "/v1/stores/assemble", json.dumps({"uploads": {"a.pb": upload}}).encode(), JSON),
        ("POST", "/v1/chunks/missing", json.dumps(asked).encode(), JSON),
        ("PUT", "/v1/schemas/digested", DESCRIPTORS, {"content-type": "application/protobuf"}),
    ]


@pytest.mark.contract
def test_wherever_a_body_is_read_its_digest_is_compared(client: httpx.Client, store: str) -> None:
    for method, path, body, headers in bodies(client, store):
        before = [client.get(f"/v1/{what}").json() for what in ("stores", "tags", "schemas")]
        wrong = client.request(method, path, content=body, headers=headers | digest(body + b" "))
        assert_problem(wrong.status_code, wrong.headers, wrong.content, expected=400, slug="digest-mismatch")
        assert [client.get(f"/v1/{what}").json() for what in ("stores", "tags", "schemas")] == before
        right = client.request(method, path, content=body, headers=headers | digest(body))
        assert right.status_code in {200, 201}, (path, right.text)


@pytest.mark.contract
def test_a_body_in_place_is_compared_before_it_is_looked_at(client: httpx.Client) -> None:
    body = json.dumps({"files": {"a.pb": "file:///nowhere/a.pb"}}).encode()
    wrong = client.post("/v1/stores/register", content=body, headers=JSON | digest(b"{}"))
    assert_problem(wrong.status_code, wrong.headers, wrong.content, expected=400, slug="digest-mismatch")
    right = client.post("/v1/stores/register", content=body, headers=JSON | digest(body))
    assert_problem(right.status_code, right.headers, right.content, expected=422)


@pytest.mark.contract
def test_a_body_in_pieces(service: LiveServer, store: str) -> None:
    halves = (b'{"store": ', b'"' + store.encode() + b'"}')
    for said, status in ((b"".join(halves), 201), (halves[1] + halves[0], 400)):
        head = b"PUT /v1/tags/pieces:%d HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n" % status
        head += b"transfer-encoding: chunked\r\ncontent-digest: " + digest(said)["content-digest"].encode()
        chunks = b"".join(b"%x\r\n%s\r\n" % (len(half), half) for half in halves)
        assert exchange(service, head + b"\r\n\r\n" + chunks + b"0\r\n\r\n").status == status


@pytest.mark.contract
def test_digests_that_say_nothing_of_the_body_are_passed_over_or_refused(client: httpx.Client, store: str) -> None:
    body = json.dumps({"store": store}).encode()
    for value, status in (("md5=:AAAA:", 200), ("sha-256=:AAAA:", 400), ("sha-256=1", 400)):
        client.put("/v1/tags/passed", content=body, headers=JSON)
        answer = client.put("/v1/tags/passed", content=body, headers=JSON | {"content-digest": value})
        assert answer.status_code == status
