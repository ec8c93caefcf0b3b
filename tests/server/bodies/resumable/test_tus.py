"""tus 1.0, clause by clause, over real sockets."""

from __future__ import annotations

import hashlib
from email.utils import parsedate_to_datetime

import httpx
import pytest
from tests.support.serve import assert_problem
from tests.support.stores import onnx
from tests.support.tus import BODY, TusClient, base64, metadata

from protoslice import _core

pytestmark = pytest.mark.contract

DATA = onnx(100_000, 30_000, seed=3)
NAMED = metadata(filename="model.onnx")


def failed(answer: httpx.Response, status: int, slug: str | None = None) -> None:
    assert answer.headers["tus-resumable"] == "1.0.0"
    assert_problem(answer.status_code, answer.headers, answer.content, expected=status, slug=slug)


@pytest.mark.parametrize("path", ["/v1/uploads", "/v1/uploads/anything"])
def test_options_tell_versions_extensions_and_limits(tus: TusClient, path: str) -> None:
    answer = tus.send("OPTIONS", path, tus_resumable=None)
    assert answer.status_code == 204
    assert answer.headers["tus-version"] == "1.0.0"
    assert answer.headers["tus-max-size"] == str(64 << 20)
    assert set(answer.headers["tus-checksum-algorithm"].split(",")) == {"sha1", "sha256", "crc32c"}
    assert answer.headers["tus-extension"] == (
        "creation,creation-with-upload,creation-defer-length,expiration,checksum,termination,concatenation"
    )


def test_options_do_not_care_for_the_version(tus: TusClient) -> None:
    assert tus.send("OPTIONS", "/v1/uploads", tus_resumable="0.2.2").status_code == 204


@pytest.mark.parametrize("version", ["0.2.2", "1.0.1", "", "1", None])
def test_other_versions_are_refused_and_nothing_is_done(tus: TusClient, version: str | None) -> None:
    url = tus.url(len(DATA))
    requests = [
        tus.begin(5, tus_resumable=version),
        tus.patch(url, 0, DATA, tus_resumable=version),
        *([] if version is None else [tus.send("DELETE", url, tus_resumable=version)]),
    ]
    for answer in requests:
        failed(answer, 412)
        assert answer.headers["tus-version"] == "1.0.0"
    if version is not None:
        assert tus.head(url, tus_resumable=version).status_code == 412
    assert tus.offset(url) == 0


def test_the_ietf_draft_is_refused_with_the_header_to_send(tus: TusClient) -> None:
    draft: dict[str, str | None] = {"tus_resumable": None, "upload_complete": "?1"}
    url = tus.url(len(DATA))
    for answer in (tus.begin(len(DATA), DATA, **draft), tus.patch(url, 0, DATA, **draft)):
        failed(answer, 412)
        assert "Tus-Resumable: 1.0.0" in answer.json()["detail"]
    options = tus.send("OPTIONS", "/v1/uploads")
    assert options.headers["accept-patch"] == BODY
    assert not {"upload-complete", "upload-limit"} & {*tus.head(url).headers, *options.headers}


def test_an_upload_in_one_go_is_a_store(tus: TusClient) -> None:
    begun = tus.begin(len(DATA), upload_metadata=NAMED)
    assert begun.status_code == 201
    assert begun.headers["tus-resumable"] == "1.0.0"
    url = begun.headers["location"]
    answer = tus.patch(url, 0, DATA)
    assert (answer.status_code, answer.headers["upload-offset"]) == (204, str(len(DATA)))
    assert answer.content == b""
    store = answer.headers["protoslice-store"]
    assert answer.headers["link"] == f'</v1/stores/{store}>; rel="related"'
    assert tus.file(store, "model.onnx") == DATA
    same = tus.http.put("/v1/stores?filename=model.onnx", content=DATA)
    assert (same.status_code, same.json()["id"]) == (200, store)


def test_what_became_of_it_can_be_asked_afterwards(tus: TusClient) -> None:
    url = tus.whole(DATA, upload_metadata=NAMED)
    found = tus.head(url)
    assert found.headers["upload-offset"] == found.headers["upload-length"] == str(len(DATA))
    again = tus.patch(url, len(DATA))  # the client that lost the last answer
    assert again.status_code == 204
    assert again.headers["protoslice-store"] == found.headers["protoslice-store"]
    shown = tus.send("GET", url, tus_resumable=None).json()
    assert (shown["state"], shown["store"]) == ("stored", found.headers["protoslice-store"])
    answer = tus.patch(url, len(DATA), b"more")
    assert answer.json()["type"].endswith("#completed-upload")


@pytest.mark.parametrize("sizes", [[1] * 40, [7, 65536, 65536, 1], [100_000]])
def test_pieces_of_any_size_go_on_where_the_last_ended(tus: TusClient, sizes: list[int]) -> None:
    url, at = tus.url(len(DATA), upload_metadata=NAMED), 0
    for size in [*sizes, len(DATA)]:
        assert tus.offset(url) == at
        answer = tus.patch(url, at, DATA[at : at + size])
        at = min(at + size, len(DATA))
        assert (answer.status_code, answer.headers["upload-offset"]) == (204, str(at))
    assert tus.file(tus.head(url).headers["protoslice-store"], "model.onnx") == DATA


def test_head_tells_offset_length_and_metadata_and_is_not_cached(tus: TusClient) -> None:
    url = tus.url(1000, upload_metadata=NAMED)
    tus.patch(url, 0, DATA[:300])
    answer = tus.head(url)
    assert answer.status_code == 200
    assert answer.headers["upload-offset"] == "300"
    assert answer.headers["upload-length"] == "1000"
    assert answer.headers["upload-metadata"] == NAMED
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["tus-resumable"] == "1.0.0"
    assert "upload-defer-length" not in answer.headers
    get = tus.send("GET", url)
    told = ("upload-offset", "upload-length", "content-length", "content-type", "upload-expires")
    assert {name: get.headers[name] for name in told} == {name: answer.headers[name] for name in told}


@pytest.mark.parametrize(
    "url", ["/v1/uploads/nothing", "/v1/uploads/0069204b3a-00000000000000000000", "/v1/uploads/%2e%2e"]
)
def test_what_is_not_there_is_404_and_has_no_offset(tus: TusClient, url: str) -> None:
    head = tus.head(url)
    assert head.status_code == 404
    assert "upload-offset" not in head.headers
    failed(tus.patch(url, 0, b"abc"), 404, "not-found")
    failed(tus.send("DELETE", url), 404, "not-found")


def test_a_wrong_offset_is_409_with_the_right_one_before_any_of_the_body(tus: TusClient) -> None:
    url = tus.url(1000)
    tus.patch(url, 0, DATA[:300])
    for offset in (0, 299, 301, 1000, 10**17):
        answer = tus.patch(url, offset, DATA[:100])
        failed_type = "https://iana.org/assignments/http-problem-types#mismatching-upload-offset"
        assert answer.status_code == 409
        problem = answer.json()
        assert (problem["type"], problem["expected-offset"], problem["provided-offset"]) == (failed_type, 300, offset)
        assert answer.headers["upload-offset"] == "300"
    assert tus.offset(url) == 300


@pytest.mark.parametrize("offset", ["-1", "+0", "0x0", "1e1", "", "٠", "1_0", "9" * 30])
def test_an_offset_that_is_no_number_is_refused(tus: TusClient, offset: str) -> None:
    url = tus.url(1000)
    headers = [(b"upload-offset", offset.encode()), (b"content-type", BODY.encode()), (b"tus-resumable", b"1.0.0")]
    failed(tus.http.request("PATCH", url, content=b"abc", headers=headers), 400, "invalid-input")
    failed(tus.patch(url, None, b"abc"), 400, "invalid-input")
    assert tus.offset(url) == 0


@pytest.mark.parametrize("kind", [None, "application/octet-stream", "application/partial-upload", "text/plain"])
def test_another_content_type_is_415(tus: TusClient, kind: str | None) -> None:
    url = tus.url(1000)
    failed(tus.patch(url, 0, b"abc", content_type=kind), 415)
    failed(tus.begin(3, b"abc", content_type=kind), 415)
    assert tus.offset(url) == 0


@pytest.mark.parametrize(
    "headers",
    [
        {"upload_length": None},
        {"upload_defer_length": 1},
        {"upload_length": None, "upload_defer_length": 2},
        {"upload_length": -5},
        {"upload_length": "ten"},
        {"upload_metadata": "filename !!!"},
        {"upload_metadata": "a YQ==,a YQ=="},
        {"upload_metadata": metadata(filename="../up")},
        {"upload_metadata": metadata(tag="not/a tag")},
        {"upload_metadata": metadata(min_chunk="lots")},
        {"upload_metadata": metadata(min_chunk="2MiB", max_chunk="1MiB")},
        {"upload_concat": "some"},
        {"upload_concat": "final;", "upload_length": None},
        {"upload_checksum": "md5 AAAA"},
        {"upload_checksum": "sha256 AAAA"},
    ],
)
def test_what_does_not_make_sense_begins_nothing(tus: TusClient, headers: dict[str, str | int | None]) -> None:
    failed(tus.begin(10, **headers), 400, "invalid-input")


def test_a_type_nobody_knows_is_told_before_a_byte_is_sent(tus: TusClient) -> None:
    failed(tus.begin(10, upload_metadata=metadata(type="no.Such")), 422, "unsupported")


def test_longer_than_the_limit_is_413_at_once(tus: TusClient) -> None:
    failed(tus.begin((64 << 20) + 1), 413, "limit-exceeded")
    url = tus.url(None)
    failed(tus.patch(url, 0, b"abc", upload_length=(64 << 20) + 1), 413, "limit-exceeded")


def test_a_body_past_the_end_is_refused_and_what_was_due_kept(tus: TusClient) -> None:
    url = tus.url(len(DATA), upload_metadata=NAMED)
    at = len(DATA) - 10
    tus.patch(url, 0, DATA[:at])
    failed(tus.patch(url, at, DATA[at:] + b"more"), 413)
    assert tus.offset(url) == at
    assert tus.patch(url, at, DATA[at:]).status_code == 204


def test_the_length_may_come_later_and_never_changes(tus: TusClient) -> None:
    url = tus.url(None, upload_metadata=NAMED)
    assert tus.head(url).headers["upload-defer-length"] == "1"
    assert "upload-length" not in tus.head(url).headers
    assert tus.patch(url, 0, DATA[:1000]).status_code == 204
    problem = tus.patch(url, 1000, b"", upload_length=999).json()
    assert problem["type"].endswith("#inconsistent-upload-length")
    assert tus.patch(url, 1000, DATA[1000:2000], upload_length=len(DATA)).status_code == 204
    found = tus.head(url).headers
    assert (found["upload-length"], found["upload-offset"]) == (str(len(DATA)), "2000")
    assert "upload-defer-length" not in found
    failed_again = tus.patch(url, 2000, DATA[2000:], upload_length=len(DATA) + 1)
    assert failed_again.status_code == 400
    last = tus.patch(url, 2000, DATA[2000:])
    assert tus.file(last.headers["protoslice-store"], "model.onnx") == DATA


def test_a_length_told_at_the_end_makes_it_whole(tus: TusClient) -> None:
    url = tus.url(None, upload_metadata=NAMED)
    assert tus.patch(url, 0, DATA).status_code == 204
    answer = tus.patch(url, len(DATA), b"", upload_length=len(DATA))
    assert "protoslice-store" in answer.headers


def test_creation_takes_the_first_bytes(tus: TusClient) -> None:
    answer = tus.begin(len(DATA), DATA[:5000], upload_metadata=NAMED)
    assert (answer.status_code, answer.headers["upload-offset"]) == (201, "5000")
    assert tus.patch(answer.headers["location"], 5000, DATA[5000:]).status_code == 204
    whole = tus.begin(len(DATA), DATA, upload_metadata=NAMED)
    assert (whole.status_code, whole.headers["upload-offset"]) == (201, str(len(DATA)))
    assert tus.file(whole.headers["protoslice-store"], "model.onnx") == DATA


def test_nothing_at_all_is_an_upload_too(tus: TusClient) -> None:
    answer = tus.begin(0, upload_metadata=metadata(filename="empty.bin", type="unknown"))
    assert answer.status_code == 201
    assert tus.file(answer.headers["protoslice-store"], "empty.bin") == b""


def test_metadata_says_what_the_store_is_to_be(tus: TusClient) -> None:
    words = metadata(
        filename="odd name.bin", type="onnx.ModelProto", tag="one:1 two:2", min_chunk="16KiB", max_chunk="1MiB", x="y"
    )
    store = tus.http.get(f"/v1/stores/{tus.head(tus.whole(DATA, upload_metadata=words)).headers['protoslice-store']}")
    found = store.json()
    assert (found["root"], found["type"], found["tags"]) == ("odd name.bin", "onnx.ModelProto", ["one:1", "two:2"])
    assert (found["min_chunk"], found["max_chunk"]) == (16 << 10, 1 << 20)


def test_the_query_says_it_as_for_any_upload(tus: TusClient) -> None:
    begun = tus.send("POST", "/v1/uploads?tag=q:1&tag=q:2&filename=m.onnx", None, upload_length=len(DATA))
    answer = tus.patch(begun.headers["location"], 0, DATA)
    found = tus.http.get(f"/v1/stores/{answer.headers['protoslice-store']}").json()
    assert (found["root"], set(found["tags"]) >= {"q:1", "q:2"}) == ("m.onnx", True)


@pytest.mark.parametrize("query", ["strict=maybe", "&".join(f"tag=t:{n}" for n in range(65))])
def test_the_query_is_checked_as_for_any_upload(tus: TusClient, query: str) -> None:
    headers = {"tus-resumable": "1.0.0", "upload-length": "1"}
    answers = [tus.http.post(f"/v1/{path}?{query}", headers=headers) for path in ("uploads", "stores")]
    named = [(each.status_code, each.json()["errors"][0]["name"]) for each in answers]
    assert named == [(400, query.partition("=")[0])] * 2


def test_words_take_precedence_over_the_query_and_tags_are_added(tus: TusClient) -> None:
    words = metadata(
        filename="model.onnx", min_chunk="1KiB", tag="words:1 both:1", rule="graph.node: every 5", strict="false"
    )
    query = "min_chunk=64KiB&tag=both:1&tag=query:1&rule=nosuch:+always&strict=true"
    begun = tus.send("POST", f"/v1/uploads?{query}", upload_length=len(DATA), upload_metadata=words)
    answer = tus.patch(begun.headers["location"], 0, DATA)
    store = tus.http.get(f"/v1/stores/{answer.headers['protoslice-store']}").json()
    assert (store["tags"], store["rules"]) == (["both:1", "query:1", "words:1"], ["graph.node: every 5"])
    sizes = [row["size"] for row in tus.http.get(f"/v1/stores/{store['id']}/chunks").json()["items"]]
    assert len(sizes) > 1


def test_a_media_type_in_the_metadata_is_no_message_type(tus: TusClient) -> None:
    words = metadata(name="model.onnx", type="application/octet-stream")  # as uploaders for browsers send it
    found = tus.http.get(f"/v1/stores/{tus.head(tus.whole(DATA, upload_metadata=words)).headers['protoslice-store']}")
    assert (found.json()["type"], found.json()["root"]) == ("onnx.ModelProto", "model.onnx")


@pytest.mark.parametrize(
    "checksum",
    [
        f"sha1 {base64(hashlib.sha1(DATA).digest())}",
        f"sha256 {base64(hashlib.sha256(DATA).digest())}",
        f"crc32c {base64(_core.crc32c(DATA).to_bytes(4, 'big'))}",
    ],
)
def test_checksums_are_compared(tus: TusClient, checksum: str) -> None:
    url = tus.url(len(DATA), upload_metadata=NAMED)
    failed(tus.patch(url, 0, DATA[:-1] + b"!", upload_checksum=checksum), 460, "checksum-mismatch")
    assert tus.offset(url) == 0
    answer = tus.patch(url, 0, DATA, upload_checksum=checksum)
    assert tus.file(answer.headers["protoslice-store"], "model.onnx") == DATA


def test_content_digest_is_compared_as_a_checksum_is(tus: TusClient) -> None:
    url = tus.url(len(DATA), upload_metadata=NAMED)
    digest = f"sha-256=:{base64(hashlib.sha256(DATA).digest())}:"
    failed(tus.patch(url, 0, DATA[::-1], content_digest=digest), 460, "checksum-mismatch")
    assert tus.offset(url) == 0
    assert tus.patch(url, 0, DATA, content_digest=digest).status_code == 204


def test_a_checksum_covers_one_body_and_what_came_before_stays(tus: TusClient) -> None:
    url = tus.url(len(DATA), upload_metadata=NAMED)
    assert tus.patch(url, 0, DATA[:70_000]).status_code == 204
    rest = f"sha256 {base64(hashlib.sha256(DATA[70_000:]).digest())}"
    failed(tus.patch(url, 70_000, DATA[70_000:][::-1], upload_checksum=rest), 460)
    assert tus.offset(url) == 70_000
    answer = tus.patch(url, 70_000, DATA[70_000:], upload_checksum=rest)
    assert tus.file(answer.headers["protoslice-store"], "model.onnx") == DATA


@pytest.mark.parametrize("checksum", ["md5 1B2M2Y8AsgTpgAmY7PhCfg==", "sha256", "sha256 ???", "sha256 AAAA"])
def test_a_checksum_nobody_understands_is_400(tus: TusClient, checksum: str) -> None:
    url = tus.url(len(DATA))
    failed(tus.patch(url, 0, DATA, upload_checksum=checksum), 400, "invalid-input")
    assert tus.offset(url) == 0


def test_expiry_is_told(tus: TusClient) -> None:
    begun = tus.begin(100)
    url = begun.headers["location"]
    for answer in (begun, tus.patch(url, 0, b"abc"), tus.head(url)):
        assert parsedate_to_datetime(answer.headers["upload-expires"]).tzinfo is not None


def test_an_upload_that_is_ended_is_gone(tus: TusClient) -> None:
    url = tus.url(1000)
    tus.patch(url, 0, DATA[:300])
    assert tus.send("DELETE", url).status_code == 204
    assert tus.head(url).status_code == 410
    failed(tus.patch(url, 300, b"abc"), 410, "gone")
    failed(tus.send("DELETE", url), 410, "gone")


def test_parts_are_joined_in_the_order_given(tus: TusClient) -> None:
    thirds = [DATA[:40_000], DATA[40_000:90_001], DATA[90_001:]]
    urls = [tus.whole(third, upload_concat="partial") for third in thirds]
    for url in urls:
        found = tus.head(url).headers
        assert found["upload-concat"] == "partial"
        assert "protoslice-store" not in found
    absolute = str(tus.http.base_url).rstrip("/") + urls[1]
    concat = f"final;{urls[0]} {absolute} {urls[2]}"
    final = tus.begin(None, upload_concat=concat, upload_defer_length=None, upload_metadata=NAMED)
    assert final.status_code == 201, final.text
    assert tus.file(final.headers["protoslice-store"], "model.onnx") == DATA
    found = tus.head(final.headers["location"]).headers
    assert (found["upload-length"], found["upload-offset"]) == (str(len(DATA)), str(len(DATA)))
    assert found["upload-concat"] == "final;" + " ".join(urls)
    refused = tus.patch(final.headers["location"], len(DATA), b"more")
    failed(refused, 403, "joined-upload")


def test_only_whole_parts_can_be_joined_and_no_final_one(tus: TusClient) -> None:
    half = tus.url(100, upload_concat="partial")
    tus.patch(half, 0, DATA[:50])
    none: dict[str, str | int | None] = {"upload_defer_length": None}
    failed(tus.begin(None, upload_concat=f"final;{half}", **none), 400, "invalid-input")
    failed(tus.begin(None, upload_concat="final;/v1/uploads/nothing", **none), 400, "invalid-input")
    failed(tus.begin(None, upload_concat="final;/v1/elsewhere/x", **none), 400, "invalid-input")
    failed(tus.begin(10, upload_concat=f"final;{half}"), 400, "invalid-input")


def test_parts_may_be_used_again_and_outlive_their_uploads(tus: TusClient) -> None:
    urls = [tus.whole(part, upload_concat="partial") for part in (DATA[:70_000], DATA[70_000:])]
    none: dict[str, str | int | None] = {"upload_defer_length": None, "upload_concat": "final;" + " ".join(urls)}
    first = tus.begin(None, upload_metadata=NAMED, **none)
    second = tus.begin(None, upload_metadata=metadata(filename="other.onnx"), **none)
    for url in urls:
        assert tus.send("DELETE", url).status_code == 204
    assert tus.file(first.headers["protoslice-store"], "model.onnx") == DATA
    assert tus.file(second.headers["protoslice-store"], "other.onnx") == DATA


@pytest.mark.parametrize(
    ("data", "words", "status", "slug"),
    [
        (DATA[:-5], {"filename": "model.onnx"}, 400, "corrupt-model"),
        (b"\x1f\x8b\x08" + bytes(1000), {"filename": "model.onnx.gz", "root": "model.onnx.gz"}, 422, "unsupported"),
    ],
)
def test_no_store_is_a_problem_now_and_afterwards(
    tus: TusClient, data: bytes, words: dict[str, str], status: int, slug: str
) -> None:
    url = tus.url(len(data), upload_metadata=metadata(**words))
    answer = tus.patch(url, 0, data)
    failed(answer, status, slug)
    failed(tus.send("GET", url), status, slug)
    failed(tus.patch(url, len(data)), status, slug)
    head = tus.head(url)
    assert (head.status_code, head.headers["upload-offset"]) == (status, str(len(data)))


def test_the_digest_of_the_whole_is_compared(tus: TusClient) -> None:
    right = f"sha-256=:{base64(hashlib.sha256(DATA).digest())}:"
    wrong = f"sha-256=:{base64(hashlib.sha256(b'other').digest())}:"
    assert tus.whole(DATA, upload_metadata=NAMED, repr_digest=right)
    url = tus.url(len(DATA), upload_metadata=NAMED, repr_digest=wrong)
    failed(tus.patch(url, 0, DATA), 400, "digest-mismatch")
    failed(tus.send("GET", url), 400, "digest-mismatch")


def test_the_method_may_stand_in_a_header(tus: TusClient) -> None:
    url = tus.url(len(DATA), upload_metadata=NAMED)
    override: dict[str, str | int | None] = {
        "content_type": BODY,
        "upload_offset": 0,
        "x_http_method_override": "PATCH",
    }
    assert tus.send("POST", url, DATA[:100], **override).headers["upload-offset"] == "100"
    assert tus.send("POST", url, None, x_http_method_override="DELETE").status_code == 204
    failed(tus.send("POST", url, None), 405)
    failed(tus.send("PUT", url, None), 405)


def test_several_uploads_make_a_directory(tus: TusClient) -> None:
    files = {"m/model.onnx": DATA, "m/weights.bin": bytes(range(256)) * 3000, "m/empty": b""}
    urls: dict[str, str | list[str]] = {
        path: tus.whole(data, upload_concat="partial", upload_metadata=metadata(filename=path))
        for path, data in files.items()
    }
    half = len(DATA) // 2
    parts = [tus.whole(part, upload_concat="partial") for part in (DATA[:half], DATA[half:])]
    urls["m/copy.onnx"] = [part.rpartition("/")[2] for part in parts]
    answer = tus.http.post(
        "/v1/stores/assemble", json={"uploads": urls, "root": "m/model.onnx", "tags": ["dir:1"], "min_chunk": "16KiB"}
    )
    assert answer.status_code == 201, answer.text
    store = answer.json()
    assert (store["root"], store["type"], store["tags"]) == ("m/model.onnx", "onnx.ModelProto", ["dir:1"])
    for path, data in (files | {"m/copy.onnx": DATA}).items():
        assert tus.file(store["id"], path) == data
    assert (
        tus.http.post(
            "/v1/stores/assemble", json={"uploads": urls, "root": "m/model.onnx", "min_chunk": 16384}
        ).status_code
        == 200
    )
    wrong: list[dict[str, str | list[str]]] = [{"a": "nothing"}, {"../a": urls["m/model.onnx"]}, {}]
    for uploads in wrong:
        failed_answer = tus.http.post("/v1/stores/assemble", json={"uploads": uploads})
        assert_problem(
            failed_answer.status_code, failed_answer.headers, failed_answer.content, expected=400, slug="invalid-input"
        )


def test_what_happens_is_counted_and_logged(tus: TusClient) -> None:
    tus.whole(DATA, upload_metadata=NAMED)
    lines = tus.http.get("/metrics").text
    assert 'protoslice_resumable_uploads_total{event="begun"}' in lines
    assert 'protoslice_resumable_uploads_total{event="stored"}' in lines
    assert 'protoslice_requests_total{method="PATCH",route="/v1/uploads/{upload}",status="204"}' in lines
