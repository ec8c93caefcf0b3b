"""The careful form of the IETF draft, on the same resource."""

from __future__ import annotations

import hashlib

import httpx
import pytest
from tests.support.problems import assert_problem
from tests.support.stores import onnx
from tests.support.tus import TusClient, base64

pytestmark = pytest.mark.contract

DATA = onnx(90_000, seed=8)
PART = "application/partial-upload"


class Draft:
    """Speaks the draft by hand."""

    def __init__(self, http: httpx.Client) -> None:
        self.http = http

    def begin(self, body: bytes = b"", /, *, complete: str = "?0", **more: str) -> httpx.Response:
        headers = {"Upload-Complete": complete} | {name.replace("_", "-"): value for name, value in more.items()}
        return self.http.post("/v1/uploads?filename=model.onnx", content=body, headers=headers)

    def append(self, url: str, offset: int, body: bytes, /, *, complete: str, **more: str) -> httpx.Response:
        headers = {"Upload-Complete": complete, "Upload-Offset": str(offset), "Content-Type": PART}
        return self.http.patch(url, content=body, headers=headers | {k.replace("_", "-"): v for k, v in more.items()})


@pytest.fixture
def draft(tus: TusClient) -> Draft:
    return Draft(tus.http)


def test_carefully_begun_and_gone_on_with(draft: Draft, tus: TusClient) -> None:
    begun = draft.begin()
    assert (begun.status_code, begun.headers["upload-complete"]) == (201, "?0")
    assert "max-size=" in begun.headers["upload-limit"]
    url = begun.headers["location"]
    first = draft.append(url, 0, DATA[:50_000], complete="?0")
    assert (first.status_code, first.headers["upload-offset"], first.headers["upload-complete"]) == (204, "50000", "?0")
    found = draft.http.head(url)
    assert (found.headers["upload-offset"], found.headers["upload-complete"]) == ("50000", "?0")
    assert found.headers["cache-control"] == "no-store"
    assert "upload-length" not in found.headers
    last = draft.append(url, 50_000, DATA[50_000:], complete="?1")
    assert (last.status_code, last.headers["upload-complete"]) == (204, "?1")
    assert tus.file(last.headers["protoslice-store"], "model.onnx") == DATA
    found = draft.http.head(url)
    assert (found.headers["upload-complete"], found.headers["upload-length"]) == ("?1", str(len(DATA)))


def test_all_in_the_first_request(draft: Draft, tus: TusClient) -> None:
    answer = draft.begin(DATA, complete="?1")
    assert (answer.status_code, answer.headers["upload-complete"]) == (201, "?1")
    assert tus.file(answer.headers["protoslice-store"], "model.onnx") == DATA


def test_the_end_may_come_without_bytes(draft: Draft) -> None:
    url = draft.begin(DATA).headers["location"]
    assert draft.http.head(url).headers["upload-complete"] == "?0"
    last = draft.append(url, len(DATA), b"", complete="?1")
    assert last.headers["upload-complete"] == "?1"
    assert "protoslice-store" in last.headers


def test_begun_by_one_dialect_and_ended_by_the_other(draft: Draft, tus: TusClient) -> None:
    url = draft.begin(DATA[:1000], Upload_Length=str(len(DATA))).headers["location"]
    assert tus.offset(url) == 1000
    assert tus.patch(url, 1000, DATA[1000:]).headers["upload-complete"] == "?1"
    other = tus.url(len(DATA))
    assert draft.append(other, 0, DATA, complete="?1").status_code == 204


def test_a_wrong_offset_is_409_with_the_right_one(draft: Draft) -> None:
    url = draft.begin(DATA[:1000]).headers["location"]
    answer = draft.append(url, 10, DATA[10:20], complete="?0")
    assert (answer.status_code, answer.headers["upload-offset"]) == (409, "1000")
    assert answer.json()["type"].endswith("#mismatching-upload-offset")


def test_lengths_that_do_not_fit_are_told_apart(draft: Draft) -> None:
    url = draft.begin(DATA[:1000], Upload_Length=str(len(DATA))).headers["location"]
    answers = [
        draft.append(url, 1000, DATA[1000:2000], complete="?1"),
        draft.append(url, 1000, DATA[1000:2000], complete="?0", Upload_Length="77"),
        draft.begin(DATA, complete="?1", Upload_Length="77"),
    ]
    for answer in answers:
        assert answer.status_code == 400
        assert answer.json()["type"].endswith("#inconsistent-upload-length")


def test_what_is_complete_takes_no_more(draft: Draft) -> None:
    url = draft.begin(DATA, complete="?1").headers["location"]
    answer = draft.append(url, len(DATA), b"more", complete="?1")
    assert (answer.status_code, answer.json()["type"].rpartition("#")[2]) == (400, "completed-upload")


@pytest.mark.parametrize("value", ["1", "true", "?2", "", "?1;a=b"])
def test_a_boolean_is_read_strictly(draft: Draft, value: str) -> None:
    answer = draft.begin(complete=value)
    assert_problem(answer.status_code, answer.headers, answer.content, expected=400, slug="invalid-input")


def test_another_media_type_is_415(draft: Draft) -> None:
    url = draft.begin().headers["location"]
    answer = draft.append(url, 0, DATA, complete="?1", Content_Type="application/offset+octet-stream")
    assert_problem(answer.status_code, answer.headers, answer.content, expected=415)


def test_digests_of_a_body_and_of_the_whole(draft: Draft) -> None:
    def digest(data: bytes) -> str:
        return f"sha-256=:{base64(hashlib.sha256(data).digest())}:"

    url = draft.begin(Repr_Digest=digest(DATA)).headers["location"]
    wrong = draft.append(url, 0, DATA[:100], complete="?0", Content_Digest=digest(b"x"))
    assert_problem(wrong.status_code, wrong.headers, wrong.content, expected=460, slug="checksum-mismatch")
    assert draft.append(url, 0, DATA[:100], complete="?0", Content_Digest=digest(DATA[:100])).status_code == 204
    assert draft.append(url, 100, DATA[100:], complete="?1").status_code == 204


def test_given_up(draft: Draft) -> None:
    url = draft.begin(DATA[:10]).headers["location"]
    assert draft.http.delete(url).status_code == 204
    assert draft.http.head(url).status_code == 410
