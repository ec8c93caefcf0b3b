"""300 reads by botocore of the same objects in Versity's gateway, in MinIO and in Protoslice, and the differences.

Each difference is in `s3_differences.toml` with its reason. The comparison fails on a difference without an entry. It
also fails on an entry that is no longer the first to match a difference.
"""

from __future__ import annotations

import fnmatch
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, NamedTuple
from unittest.mock import patch
from urllib.parse import quote
from xml.etree import ElementTree

import boto3
import botocore.auth
import httpx
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.credentials import Credentials
from botocore.exceptions import BotoCoreError, ClientError
from tests.clients.running import HERE, program, serving
from tests.clients.s3_reads import Read, reads, signed_reads
from tests.support.buckets import BUCKET, KEY_ID, SECRET, gateway
from tests.support.hub import commit
from tests.support.stores import onnx

from protoslice.client import Client

SEED: Final = 53
_SHOWN: Final = 80
"""The most characters that a difference shows of a value."""
_LISTED: Final = HERE / "s3_differences.toml"
_PEERS: Final = ("versitygw", "minio")
_REGION: Final = "us-east-1"
_SPACE: Final = "default"
_TAGS: Final = ("m", "m-1", "m.1", "M", "m:2", "a+b_c", "z~9", "m@x")
_FILES: Final = ("config.json", "model.onnx", "data-0", "data/a b.txt", "data/\u00fc+&<c>.txt", "data/100%.txt")
_UNSTABLE: Final = frozenset({"connection", "date", "keep-alive", "server", "transfer-encoding", "x-amz-id-2"})
"""Headers that depend on the connection or the program."""
_COMPARED: Final = frozenset(
    {
        "accept-ranges", "cache-control", "content-encoding", "content-language", "content-length", "content-range",
        "content-type", "etag", "expires", "last-modified", "x-amz-bucket-region",
    }
)  # fmt: skip
"""The headers whose values are compared; for other headers, only their presence is compared."""
_LISTS: Final = ("xml Contents", "xml CommonPrefixes")
_FREE: Final = frozenset({"Message", "RequestId", "HostId", "Resource", "BucketName", "Region", "Key"})
"""The members of errors whose texts depend on the program."""


class Difference(NamedTuple):
    """A part of an answer that differs, for all reads of a kind."""

    peer: str
    kind: str
    part: str
    ours: str
    theirs: str

    def toml(self) -> str:
        """Return an entry of the list, without its reason."""
        return "\n".join(["[[difference]]", *(f"{name} = {value!r}" for name, value in self._asdict().items())])


@dataclass(frozen=True, slots=True)
class _Server:
    """A server with the objects, and the keys that may read them."""

    name: str
    url: str
    bucket: str
    key: str
    secret: str
    facts: dict[str, tuple[str, datetime]]
    """The entity tag and the date of each object."""

    @classmethod
    def of(cls, name: str, url: str, bucket: str, key: str, secret: str) -> _Server:
        """Return a server whose objects are examined later."""
        return cls(name, url, bucket, key, secret, {})

    def client(self, attempts: int = 1) -> Any:
        """Return a boto3 client that sends all requests unchanged, by default without retries."""
        config = Config(
            s3={"addressing_style": "path"},
            retries={"total_max_attempts": attempts},
            parameter_validation=False,
            response_checksum_validation="when_required",
        )
        keys = {"aws_access_key_id": self.key, "aws_secret_access_key": self.secret}
        return boto3.client("s3", endpoint_url=self.url, region_name=_REGION, config=config, **keys)

    def look(self, keys: Sequence[str]) -> None:
        """Record the entity tags and dates of objects."""
        client = self.client()
        for key in keys:
            head = client.head_object(Bucket=self.bucket, Key=key)
            self.facts[key] = head["ETag"], head["LastModified"]


def run(folder: Path) -> str:
    """Compare the answers to all reads, and the differences with the listed ones."""
    with ExitStack() as stack:
        ours, objects = stack.enter_context(_protoslice(folder))
        assert len(objects) == 60, len(objects)
        peers = [stack.enter_context(_copy(name, ours, objects)) for name in _PEERS]
        for server in (ours, *peers):
            server.look(list(objects))
        every = [*reads(SEED, sorted(objects)), *signed_reads()]
        found = set(_differences(ours, peers, every))
    entries = tomllib.loads(_LISTED.read_text())["difference"]
    matched = {each: next((at for at, entry in enumerate(entries) if _matches(entry, each)), None) for each in found}
    unlisted = sorted(each for each, at in matched.items() if at is None)
    gone = [entry for at, entry in enumerate(entries) if at not in matched.values()]
    for each in unlisted:
        print(each.toml())
    for entry in gone:
        print("does not occur:", entry)
    if unlisted or gone:
        raise AssertionError(f"{len(unlisted)} differences are not listed, {len(gone)} listed do not occur")
    return f"{len(every)} reads, seed {SEED}: {len(found)} differences of {len(entries)} kinds"


@contextmanager
def _protoslice(folder: Path) -> Iterator[tuple[_Server, Mapping[str, bytes]]]:
    """Serve 60 objects: the files of eight tags, and of two repositories."""
    with serving(folder, closed=True, settings={"PROTOSLICE_S3_REGION": _REGION}) as service:
        headers = {"authorization": f"Bearer {service.token}"}
        with (
            httpx.Client(base_url=service.url, headers=headers) as http,
            Client(service.url, token=service.token) as client,
        ):
            objects = dict[str, bytes]()
            for number, tag in enumerate(_TAGS):
                source = folder / str(number)
                for path, data in _files(number).items():
                    (source / path).parent.mkdir(parents=True, exist_ok=True)
                    (source / path).write_bytes(data)
                    objects[f"tags/{tag}/{path}"] = data
                client.push(source, tags=[tag], resume=False)
            for number, name in enumerate(("m", "m-1"), len(_TAGS)):
                http.post("/api/repos/create", json={"organization": "ann", "name": name}).raise_for_status()
                commit(http, f"models/ann/{name}", _files(number)).raise_for_status()
                objects |= {f"hub/ann/{name}@main/{path}": data for path, data in _files(number).items()}
            keys = http.post("/v1/s3-keys").raise_for_status().json()
        yield (
            _Server.of("protoslice", f"{service.url}/s3", _SPACE, keys["access_key_id"], keys["secret_access_key"]),
            objects,
        )


def _files(number: int) -> Mapping[str, bytes]:
    return {
        path: onnx(300, seed=number) if path == "model.onnx" else f"{number} {path}\n".encode() * 40 for path in _FILES
    }


@contextmanager
def _copy(name: str, ours: _Server, objects: Mapping[str, bytes]) -> Iterator[_Server]:
    """Run another server with the same objects, of the same media types."""
    with gateway(str(program(name))) as url:
        server = _Server.of(name, url, _SPACE, KEY_ID, SECRET)
        client, source = server.client(attempts=12), ours.client()  # MinIO listens before it is ready
        client.create_bucket(Bucket=_SPACE)
        client.delete_bucket(Bucket=BUCKET)
        for key, data in objects.items():
            kind = source.head_object(Bucket=ours.bucket, Key=key)["ContentType"]
            client.put_object(Bucket=_SPACE, Key=key, Body=data, ContentType=kind)
        yield server


def _differences(ours: _Server, peers: Sequence[_Server], every: Sequence[Read]) -> Iterator[Difference]:
    clients = {server.name: server.client() for server in (ours, *peers)}
    for read in every:
        mine = _answer(ours, clients[ours.name], read)
        for peer in peers:
            other = _answer(peer, clients[peer.name], read)
            for part in sorted(mine.keys() | other.keys()):
                if (one := mine.get(part, "absent")) != (two := other.get(part, "absent")):
                    yield Difference(peer.name, read.kind, part, one[:_SHOWN], two[:_SHOWN])


def _matches(entry: Mapping[str, str], found: Difference) -> bool:
    """Return True if the patterns of an entry match a difference; a missing pattern matches anything."""
    return all(
        name == "reason" or fnmatch.fnmatchcase(getattr(found, name), pattern) for name, pattern in entry.items()
    )


def _answer(server: _Server, client: Any, read: Read) -> dict[str, str]:
    """Return the parts of an answer: status, code, headers, body, and members of the document.

    A listing's keys are the keys of all its pages.
    """
    if not read.call:
        return _raw(server, read)
    given = {name: _resolved(server, read, value) for name, value in read.parameters.items()}
    if read.call != "list_buckets":
        given = {"Bucket": server.bucket, **given}
    pages = list[dict[str, str]]()
    while True:
        try:
            answer = getattr(client, read.call)(**given)
        except ClientError as error:
            answer = dict(error.response)
        except BotoCoreError as error:
            return {"error": type(error).__name__}
        pages.append(dict(_parts(server, answer)))
        next_page = answer.get("NextContinuationToken") or answer.get("NextMarker")
        if not answer.get("IsTruncated") or not (next_page or answer.get("Contents")) or len(pages) == 100:
            break
        if read.call == "list_objects":
            given["Marker"] = next_page or answer["Contents"][-1]["Key"]
        else:
            given["ContinuationToken"] = next_page
    listed = {name: " ".join(page[name] for page in pages if name in page) for name in _LISTS if len(pages) > 1}
    return pages[0] | listed | {"pages": str(len(pages))}


def _resolved(server: _Server, read: Read, value: Any) -> Any:
    """Return the value of a parameter for a server."""
    if not isinstance(value, str) or "$" not in value:
        return value
    etag, date = server.facts[read.parameters["Key"]]
    if value.startswith("$date "):
        return date + timedelta(seconds=int(value.removeprefix("$date ")))
    return value.replace("$etag", etag).replace("$bare", etag.strip('"'))


def _parts(server: _Server, answer: dict[str, Any]) -> Iterator[tuple[str, str]]:
    about = answer.pop("ResponseMetadata")
    yield "status", str(about["HTTPStatusCode"])
    yield from _headers(server, about["HTTPHeaders"])
    if "Body" in answer:
        yield "body", sha256(answer.pop("Body").read()).hexdigest()[:12]
    if "Error" in answer:
        yield "code", answer["Error"]["Code"]
        return
    document = about["HTTPHeaders"].get("content-type", "").startswith("application/xml")
    for name, value in answer.items() if document else ():
        if isinstance(value, list):
            yield f"xml {name}", " ".join(str(each.get("Key", each.get("Prefix", each.get("Name")))) for each in value)
            yield f"xml members of {name}", " ".join(sorted({member for each in value for member in each}))
        else:
            yield f"xml {name}", "a token" if "Token" in name else str(value)


def _headers(server: _Server, headers: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    tags = {etag for etag, _ in server.facts.values()}
    dates = {format_datetime(date.astimezone(UTC), usegmt=True) for _, date in server.facts.values()}
    sized = "etag" in headers  # the length of a document shows nothing
    for name, value in headers.items():
        if name in _UNSTABLE or (name == "content-length" and not sized):
            continue
        shown = "its tag" if value in tags else "its date" if value in dates else value
        yield f"header {name}", shown if name in _COMPARED else "there"


def _raw(server: _Server, read: Read) -> dict[str, str]:
    """Return the parts of the answer to a request that is signed in some way."""
    how = read.signing
    key = next(key for key in server.facts if key.endswith("m/config.json"))
    request = AWSRequest("GET", f"{server.url}/{server.bucket}/{quote(key, safe='/~')}")
    keys = Credentials(how.get("key", server.key), how.get("secret", server.secret))
    where = how.get("service", "s3"), how.get("region", _REGION)
    moment = datetime.now(UTC) - timedelta(seconds=how.get("late", 0))
    with patch.object(botocore.auth, "get_current_datetime", lambda *_, **__: moment.replace(tzinfo=None)):
        if "seconds" in how:
            botocore.auth.S3SigV4QueryAuth(keys, *where, expires=how["seconds"]).add_auth(request)
        else:
            botocore.auth.S3SigV4Auth(keys, *where).add_auth(request)
    prepared = request.prepare()
    headers = {**{name.lower(): value for name, value in prepared.headers.items()}, **how.get("headers", {})}
    url = prepared.url.replace(*how["edit"], 1) if "edit" in how else prepared.url
    answer = httpx.get(url, headers={name: value for name, value in headers.items() if value})
    parts = {"status": str(answer.status_code), **dict(_headers(server, answer.headers))}
    if answer.status_code == 200:
        return parts | {"body": sha256(answer.content).hexdigest()[:12]}
    root = ElementTree.fromstring(answer.content)
    members = {re.sub("{.*}", "", each.tag): each.text or "" for each in root}
    return parts | {"code": members.pop("Code", ""), "xml members": " ".join(sorted(members.keys() - _FREE))}
