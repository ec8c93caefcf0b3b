"""Stores that are assembled from an upload that is a recipe or an archive.

Records of an upload are read over HTTP while it arrives: links lead to further records, and senders are not disturbed.
"""

from __future__ import annotations

import hashlib
import re
import threading
from typing import Any

import httpx
import pytest
from tests.server.bodies.resumable.test_turns import hanging, received, until
from tests.server.bodies.ways import tar_of
from tests.support.serve import LiveServer, assert_problem
from tests.support.stores import onnx
from tests.support.streams import FRAMED, example
from tests.support.tus import TusClient, metadata

from protoslice.recipes import Copy, RecipeWriter

MODEL = onnx(300_000)
FILES = {"model.onnx": MODEL, "empty": b""} | {f"{'deep/' * 30}{n}.txt": b"%d" % n for n in range(250)}


def recipe(store: str, *, wrong: str | None = None) -> tuple[bytes, bytes]:
    """Return a recipe for a file, and the file: the stored model followed by a name."""
    made, name = MODEL + b"\x12\x03new", b"\x12\x03new"
    writer = RecipeWriter()
    lines = writer.file("model.onnx") + writer.copy(Copy(store, "model.onnx", 0, len(MODEL)))
    lines += writer.literal(len(name)) + name
    lines += writer.end(len(made), wrong or hashlib.sha256(made).hexdigest())
    return lines + writer.done(), made


def assemble(tus: TusClient, **said: Any) -> httpx.Response:
    return tus.http.post("/v1/stores/assemble", json=said)


@pytest.fixture
def base(tus: TusClient) -> str:
    """Return the id of a store to copy from."""
    made: str = tus.http.post("/v1/stores?filename=model.onnx", content=MODEL).json()["id"]
    return made


@pytest.mark.contract
def test_a_store_is_made_as_it_says(tus: TusClient, base: str) -> None:
    lines, made = recipe(base)
    upload = tus.whole(lines, upload_concat="partial")
    answer = assemble(tus, recipe=upload, tags=["recipe:1"])
    assert answer.status_code == 201, answer.text
    assert answer.headers["location"] == f"/v1/stores/{answer.json()['id']}"
    assert answer.json()["tags"] == ["recipe:1"]
    assert tus.file(answer.json()["id"], "model.onnx") == made
    assert assemble(tus, recipe=upload.rpartition("/")[2]).status_code == 200, "the upload is there until it is ended"


@pytest.mark.contract
def test_a_recipe_that_came_in_parts(tus: TusClient, base: str) -> None:
    lines, made = recipe(base)
    upload = tus.url(len(lines), upload_concat="partial")
    for at in range(0, len(lines), 37):
        assert tus.patch(upload, at, lines[at : at + 37]).status_code == 204
    assert tus.file(assemble(tus, recipe=upload).json()["id"], "model.onnx") == made


@pytest.mark.contract
@pytest.mark.parametrize(
    ("broken", "slug"),
    [
        (lambda lines: lines[:-5], "corrupt-model"),
        (lambda lines: b"", "corrupt-model"),
        (lambda lines: lines.replace(b'"offset":0', b'"offset":1'), "invalid-input"),
    ],
)
def test_a_recipe_that_is_none(tus: TusClient, base: str, broken: Any, slug: str) -> None:
    answer = assemble(tus, recipe=tus.whole(broken(recipe(base)[0]), upload_concat="partial"))
    assert_problem(answer.status_code, answer.headers, answer.content, expected=400, slug=slug)


@pytest.mark.contract
def test_what_it_names_has_to_be_there_and_right(tus: TusClient, base: str) -> None:
    gone = assemble(tus, recipe=tus.whole(recipe("5" * 64)[0], upload_concat="partial"))
    assert_problem(gone.status_code, gone.headers, gone.content, expected=409, slug="conflict")
    wrong = assemble(tus, recipe=tus.whole(recipe(base, wrong="6" * 64)[0], upload_concat="partial"))
    assert_problem(wrong.status_code, wrong.headers, wrong.content, expected=400, slug="digest-mismatch")


@pytest.mark.contract
def test_exactly_one_finished_upload_is_needed(tus: TusClient, base: str) -> None:
    lines, _ = recipe(base)
    upload = tus.whole(lines, upload_concat="partial")
    unfinished = tus.url(len(lines), upload_concat="partial")
    for said in (
        {},
        {"recipe": upload, "uploads": {"a": upload}},
        {"recipe": upload, "archive": upload},
        {"archive": upload, "uploads": {"a": upload}},
        {"recipe": upload, "sha256": {"model.onnx": "6" * 64}},
        {"archive": upload, "sha256": {"model.onnx": "6" * 64}},
        {"recipe": unfinished},
        {"archive": unfinished},
        {"recipe": "nothing"},
        {"archive": "nothing"},
    ):
        answer = assemble(tus, **said)
        assert_problem(answer.status_code, answer.headers, answer.content, expected=400, slug="invalid-input")


def archived(tus: TusClient, data: bytes, **said: Any) -> httpx.Response:
    """Assemble a store from an archive that is uploaded in two requests."""
    part = tus.url(len(data), upload_concat="partial")
    half = len(data) // 2
    for at, piece in ((0, data[:half]), (half, data[half:])):
        assert tus.patch(part, at, piece).status_code == 204
    return assemble(tus, archive=part, **said)


@pytest.mark.contract
def test_the_files_of_an_archive_become_a_store(tus: TusClient) -> None:
    made = archived(tus, tar_of(FILES), tags=["archived:1"])
    assert made.status_code == 201, made.text
    assert {each["path"]: each["size"] for each in made.json()["files"]} == {k: len(v) for k, v in FILES.items()}
    assert (made.json()["root"], made.json()["tags"]) == ("model.onnx", ["archived:1"])
    for path in ("model.onnx", f"{'deep/' * 30}7.txt", "empty"):
        assert tus.http.get(f"/v1/stores/archived:1/files/{path}").content == FILES[path]
    again = archived(tus, tar_of(FILES))
    assert (again.status_code, again.json()["id"]) == (200, made.json()["id"])


@pytest.mark.contract
@pytest.mark.parametrize("data", [b"no archive at all" * 100, tar_of(FILES)[:300_000], tar_of({"../x": b"1"})])
def test_a_bad_archive_makes_no_store(tus: TusClient, data: bytes) -> None:
    assert archived(tus, data, tags=["none:1"]).status_code in {400, 422}
    assert tus.http.get("/v1/stores/none:1").status_code == 404


NAMED = metadata(filename="log.delimited")
EXAMPLES = [example(n) for n in range(100)]
DATA = FRAMED["delimited"](EXAMPLES)


def following(answer: httpx.Response) -> str | None:
    """Return the URL of the records after those of `answer`."""
    found = re.search(r'<([^>]*)>; rel="next"', answer.headers.get("link", ""))
    return found[1] if found else None


def test_links_lead_from_record_to_record_until_the_stream_has_ended(tus: TusClient) -> None:
    url = tus.url(None, upload_metadata=NAMED)
    at, found, offset = f"{url}/records?framing=delimited", b"", 0
    for cut in (0, 1, 1000, 2500, len(DATA)):
        if cut:
            tus.patch(url, offset, DATA[offset:cut], upload_length=len(DATA) if cut == len(DATA) else None)
            offset = cut
        answer = tus.http.get(at)
        assert (answer.status_code, answer.headers["content-type"]) == (200, "application/x-protobuf-delimited")
        assert (answer.headers["cache-control"], answer.headers["upload-offset"]) == ("no-store", str(offset))
        found += answer.content
        assert DATA.startswith(found)
        assert found[:offset] == DATA[: len(found)]
        at = following(answer) or ""
    assert (found, at) == (DATA, "")
    assert answer.headers["upload-complete"] == "?1"
    store = answer.headers["protoslice-store"]
    assert f'</v1/stores/{store}>; rel="related"' in answer.headers["link"]
    assert tus.http.get(f"/v1/stores/{store}/records?framing=delimited").content == DATA


def test_a_reader_waits_for_more_and_the_sender_goes_on(service: LiveServer, tus: TusClient) -> None:
    url = tus.url(None, upload_metadata=NAMED)
    tus.patch(url, 0, DATA[:100])
    with hanging(service, url, 100, DATA[100:200], 1000):
        until(lambda: received(tus) > 0)
        answers: list[httpx.Response] = []
        asked = f"{service.url}{url}/records?framing=delimited&after=50&wait=20"
        reader = threading.Thread(target=lambda: answers.append(httpx.get(asked, timeout=30)))
        reader.start()
        assert received(tus) > 0
    until(lambda: received(tus) == 0)
    assert tus.offset(url) == 200
    tus.patch(url, 200, DATA[200:])
    reader.join(20)
    assert answers[0].content == FRAMED["delimited"](EXAMPLES[50:])
    assert following(answers[0]) == f"{url}/records?framing=delimited&wait=20&after=100"


def test_what_cannot_be_read_is_a_problem(tus: TusClient) -> None:
    url = tus.url(None, upload_metadata=NAMED)
    tus.patch(url, 0, DATA)
    for asked, status in (("", 422), ("?framing=csv", 400), ("?after=-1", 400), ("?wait=31", 400)):
        refused(tus.http.get(f"{url}/records{asked}"), status)
    refused(tus.http.get(f"/v1/uploads/{'0' * 31}/records"), 404)
    tus.send("DELETE", url)
    refused(tus.http.get(f"{url}/records?framing=delimited"), 410)


def refused(answer: httpx.Response, status: int) -> None:
    assert_problem(answer.status_code, answer.headers, answer.content, expected=status)
