"""Records of an upload over HTTP while it arrives: links lead on, and senders are not disturbed."""

from __future__ import annotations

import re
import threading

import httpx
from tests.server.bodies.resumable.test_turns import hanging, received, until
from tests.support.serve import LiveServer, assert_problem
from tests.support.streams import FRAMED, example
from tests.support.tus import TusClient, metadata

NAMED = metadata(filename="log.delimited")
EXAMPLES = [example(n) for n in range(100)]
DATA = FRAMED["delimited"](EXAMPLES)


def following(answer: httpx.Response) -> str | None:
    """The URL of the records behind those of `answer`."""
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
