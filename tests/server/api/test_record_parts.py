"""Parts of records over a real socket: by path and mask, and records by key and in samples."""

from __future__ import annotations

import httpx
import pytest
from google.protobuf.message import Message
from tests.support.serve import assert_problem
from tests.support.streams import FRAMED, example

from protoslice import schema
from protoslice.streams import open_records

pytestmark = pytest.mark.contract

EXAMPLES = [example(n % 40) for n in range(100)]
LABEL = 'features.feature["label"].int64_list.value[0]'


@pytest.fixture(scope="module", params=["tfrecord", "u32be"])
def url(client: httpx.Client, request: pytest.FixtureRequest) -> str:
    """The records of a store of one stream."""
    stream = FRAMED[request.param]([*EXAMPLES, b""])
    answer = client.put(f"/v1/stores?filename={request.param}.parts", content=stream)
    assert answer.status_code in {200, 201}, answer.text
    return f"/v1/stores/{answer.json()['id']}/records?type=tensorflow.Example"


def asked(url: str, **params: object) -> httpx.URL:
    """The URL with more parameters; a list gives one several times."""
    return httpx.URL(url).copy_merge_params(params)  # type: ignore[arg-type]


def got(client: httpx.Client, url: str, framing: str = "delimited", **params: object) -> list[bytes]:
    answer = client.get(asked(url, format=framing, **params))
    assert answer.status_code == 200, answer.text
    return list(open_records(answer.content, "any", framing=framing))


def masked(record: bytes) -> Message:
    message = schema.bundled().message_class("tensorflow.Example").FromString(record)
    for name in ("image", "weights"):
        del message.features.feature[name]  # type: ignore[attr-defined]
    return message


def test_a_mask_is_kept_of_each_record(client: httpx.Client, url: str) -> None:
    kept = got(client, url, fields='features.feature["label"]', range="3:50")
    assert [masked(each).SerializeToString(deterministic=True) for each in EXAMPLES[3:50]] == kept
    small = got(client, url, omit_larger_than="8", range="30:31")
    assert 0 < len(small[0]) < len(EXAMPLES[30])


def test_a_path_leads_into_each_record(client: httpx.Client, url: str) -> None:
    labels = [str(n % 40).encode() for n in range(100)]
    for framing in ("delimited", "u64le"):
        assert got(client, url, framing, path=LABEL, range=":100") == labels
    assert got(client, url, path=LABEL, range="99:101") == [b"19", b""]
    shown = client.get(
        f"{url}&range=7:9&path=features.feature%5B%22label%22%5D", headers={"accept": "application/jsonl"}
    )
    assert shown.text == '{"int64_list": {"value": ["7"]}}\n{"int64_list": {"value": ["8"]}}\n'
    whole, part = (client.get(f"{url}&range=7:9{more}").headers["etag"] for more in ("", "&fields=features"))
    assert whole != part


def test_records_are_found_by_key(client: httpx.Client, url: str) -> None:
    assert got(client, url, key=LABEL, value="7") == [EXAMPLES[7], EXAMPLES[47], EXAMPLES[87]]
    assert got(client, url, key=LABEL, value="39", path=LABEL) == [b"39", b"39"]
    both = got(client, url, key=LABEL, value=["39", "0"], range=":1")
    assert both == [EXAMPLES[n] for n in (0, 39, 79, 0, 40, 80)]
    for value, status, slug in (("41", 404, "not-found"), ("", 404, "not-found")):
        refused = client.get(asked(url, key=LABEL, value=value))
        assert_problem(refused.status_code, refused.headers, refused.content, expected=status, slug=slug)


def test_a_sample_is_decided_by_its_seed(client: httpx.Client, url: str) -> None:
    first, again, other = (got(client, url, sample=20, seed=seed) for seed in (1, 1, 2))
    assert first == again != other
    assert len(first) == 20
    assert set(first) <= {*EXAMPLES, b""}
    assert len(got(client, url, sample=5000)) == 101


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("path=nothing.here", 404),
        ("path=a[", 400),
        ("key=features", 400),
        ("value=7", 400),
        ("key=nothing&value=7", 404),
        ("sample=10001", 400),
        ("sample=x", 400),
        ("fields=a[", 400),
    ],
)
def test_parts_that_cannot_be_given_are_refused(client: httpx.Client, url: str, query: str, status: int) -> None:
    answer = client.get(f"{url}&{query}")
    assert answer.status_code == status, answer.text
