"""boto3 against a service: buckets, listings, ranges, conditions, and signatures."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import boto3
import httpx
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError
from tests.support.serve import serve
from tests.support.stores import onnx

from protoslice.server.app import create_app
from protoslice.server.settings import Settings

CLIENTS: list[Any] = []
DATA = onnx(3000, 200, seed=3)


class Closed:
    """A closed service with a store, and the tokens of two callers."""

    def __init__(self, url: str, admin: str) -> None:
        self.url = url
        self.http = httpx.Client(base_url=url, headers={"authorization": f"Bearer {admin}"})
        self.http.put("/v1/spaces/other").raise_for_status()
        self.store = self.upload("m.onnx", DATA, "llm:1", "llm-2")

    def upload(self, path: str, data: bytes, *tags: str, space: str = "") -> str:
        query = "".join(f"&tag={tag}" for tag in tags)
        found = self.http.put(f"{space}/v1/stores?filename={path}{query}", content=data).raise_for_status()
        return str(found.json()["id"])

    def client(self, *, space: str = "", **options: Any) -> Any:
        """Return a boto3 client of a new token that reads in one space."""
        token = self.http.post(f"{space}/v1/tokens", json={"name": "reader", "scopes": ["read"]}).json()
        self.token = token
        headers = {"authorization": f"Bearer {token['token']}"}
        keys = httpx.post(f"{self.url}{space}/v1/s3-keys", headers=headers).raise_for_status().json()
        return client(self.url, keys["access_key_id"], keys["secret_access_key"], **options)


def client(url: str, key: str = "any", secret: str = "any-secret", **options: Any) -> Any:
    config = Config(s3={"addressing_style": "path"}, retries={"total_max_attempts": 1}, **options)
    made = boto3.client(
        "s3",
        endpoint_url=f"{url}/s3",
        aws_access_key_id=key,
        aws_secret_access_key=secret,
        region_name="us-east-1",
        config=config,
    )
    CLIENTS.append(made)
    return made


@pytest.fixture(scope="module")
def closed() -> Iterator[Closed]:
    app = create_app(Settings(storage="memory://", auth="tokens"))
    with serve(app=app) as live:
        token = app.services.initial_admin_token
        assert token is not None
        found = Closed(live.url, token.text)
        yield found
        found.http.close()
    while CLIENTS:
        CLIENTS.pop().close()


def code_of(failed: pytest.ExceptionInfo[ClientError]) -> str:
    return str(failed.value.response["Error"]["Code"])


def test_object_is_read_whole_and_by_range(closed: Closed) -> None:
    s3 = closed.client()
    found = s3.get_object(Bucket="default", Key="tags/llm:1/m.onnx")
    assert found["Body"].read() == DATA
    head = s3.head_object(Bucket="default", Key="tags/llm:1/m.onnx")
    assert (head["ContentLength"], head["ETag"]) == (len(DATA), found["ETag"])
    part = s3.get_object(Bucket="default", Key=f"stores/{closed.store}/m.onnx", Range="bytes=10-29")
    assert part["Body"].read() == DATA[10:30]
    assert part["ContentRange"] == f"bytes 10-29/{len(DATA)}"


def test_listing_is_in_order_of_keys(closed: Closed) -> None:
    s3 = closed.client()
    keys = [each["Key"] for each in s3.list_objects_v2(Bucket="default", Prefix="tags/")["Contents"]]
    assert keys == ["tags/llm-2/m.onnx", "tags/llm:1/m.onnx"]
    groups = s3.list_objects_v2(Bucket="default", Delimiter="/")["CommonPrefixes"]
    assert groups == [{"Prefix": "tags/"}]
    first = s3.list_objects_v2(Bucket="default", MaxKeys=1)
    rest = s3.list_objects_v2(Bucket="default", ContinuationToken=first["NextContinuationToken"])
    assert [each["Key"] for page in (first, rest) for each in page["Contents"]] == keys


def test_sizes_times_and_tags_of_listings_and_objects_are_equal(closed: Closed) -> None:
    s3 = closed.client()
    (listed, _) = s3.list_objects(Bucket="default", Prefix="tags/")["Contents"]
    head = s3.head_object(Bucket="default", Key=listed["Key"])
    assert (head["ContentLength"], head["ETag"]) == (listed["Size"], listed["ETag"])
    assert head["LastModified"] == listed["LastModified"]


def test_conditions(closed: Closed) -> None:
    s3 = closed.client()
    key = {"Bucket": "default", "Key": "tags/llm:1/m.onnx"}
    head = s3.head_object(**key)
    second = timedelta(seconds=1)
    for failing in ({"IfNoneMatch": head["ETag"]}, {"IfModifiedSince": head["LastModified"]}):
        with pytest.raises(ClientError) as failed:
            s3.get_object(**key, **failing)
        assert code_of(failed) == "304"
    for failing in ({"IfMatch": '"other"'}, {"IfUnmodifiedSince": head["LastModified"] - second}):
        with pytest.raises(ClientError) as failed:
            s3.get_object(**key, **failing)
        assert code_of(failed) == "PreconditionFailed"
    assert s3.get_object(**key, IfMatch=head["ETag"], IfModifiedSince=head["LastModified"] - second)["ETag"]


@pytest.mark.parametrize("call", ["get_object", "head_object"])
def test_first_part_is_the_whole_object_as_a_range(closed: Closed, call: str) -> None:
    found = getattr(closed.client(), call)(Bucket="default", Key="tags/llm:1/m.onnx", PartNumber=1)
    assert found["ResponseMetadata"]["HTTPStatusCode"] == 206
    assert found["ContentRange"] == f"bytes 0-{len(DATA) - 1}/{len(DATA)}"
    assert found["ContentLength"] == len(DATA)


@pytest.mark.parametrize(("region", "shown"), [("", None), ("us-east-1", None), ("eu-west-1", "eu-west-1")])
def test_location_is_empty_for_the_first_region(region: str, shown: str | None) -> None:
    with serve(app=create_app(Settings(storage="memory://", s3_region=region))) as live:
        assert client(live.url).get_bucket_location(Bucket="default")["LocationConstraint"] == shown


def test_head_of_a_range_is_answered_as_get(closed: Closed) -> None:
    s3 = closed.client()
    for key in ("tags/llm:1/m.onnx", f"stores/{closed.store}/m.onnx"):
        head = s3.head_object(Bucket="default", Key=key, Range="bytes=10-29")
        assert head["ResponseMetadata"]["HTTPStatusCode"] == 206
        assert (head["ContentLength"], head["ContentRange"]) == (20, f"bytes 10-29/{len(DATA)}")
        with pytest.raises(ClientError) as failed:
            s3.head_object(Bucket="default", Key=key, Range="bytes=99999-")
        assert code_of(failed) == "416"


def test_entity_tags_may_lack_their_quotes(closed: Closed) -> None:
    s3 = closed.client()
    for key in ("tags/llm:1/m.onnx", f"stores/{closed.store}/m.onnx"):
        bare = s3.head_object(Bucket="default", Key=key)["ETag"].strip('"')
        assert s3.get_object(Bucket="default", Key=key, IfMatch=bare)["Body"].read() == DATA
        with pytest.raises(ClientError) as failed:
            s3.get_object(Bucket="default", Key=key, IfNoneMatch=bare)
        assert code_of(failed) == "304"


@pytest.mark.parametrize("name", ["prefix", "delimiter", "start-after"])
def test_text_of_a_listing_that_is_not_utf8_is_refused(name: str) -> None:
    with serve(app=create_app(Settings(storage="memory://"))) as live:
        found = httpx.get(f"{live.url}/s3/default?list-type=2&encoding-type=url&{name}=%ff")
    assert (found.status_code, "InvalidArgument" in found.text) == (400, True)


@pytest.mark.parametrize("name", ["if-modified-since", "if-unmodified-since"])
def test_date_beyond_all_years_is_ignored(closed: Closed, name: str) -> None:
    s3 = closed.client()
    vast = "Mon, 01 Jan 99999999999999999999 00:00:00 GMT"
    s3.meta.events.register("before-sign.s3.GetObject", lambda request, **_: request.headers.add_header(name, vast))
    assert s3.get_object(Bucket="default", Key="tags/llm:1/m.onnx")["Body"].read() == DATA


def test_missing_things_have_the_codes_of_s3(closed: Closed) -> None:
    s3 = closed.client()
    for call, code in (
        (lambda: s3.get_object(Bucket="default", Key="tags/none/m.onnx"), "NoSuchKey"),
        (lambda: s3.get_object(Bucket="default", Key="tags/llm:1/m.onnx", VersionId="7"), "NoSuchVersion"),
        (lambda: s3.get_object(Bucket="default", Key="tags/llm:1/m.onnx", Range="bytes=99999-"), "InvalidRange"),
        (lambda: s3.list_objects_v2(Bucket="other"), "AccessDenied"),
        (lambda: s3.list_objects_v2(Bucket="nowhere"), "AccessDenied"),
        (lambda: s3.put_object(Bucket="default", Key="k", Body=b"x"), "AccessDenied"),
        (lambda: s3.delete_object(Bucket="default", Key="tags/llm:1/m.onnx"), "AccessDenied"),
        (lambda: s3.get_bucket_policy(Bucket="default"), "NoSuchBucketPolicy"),
        (lambda: s3.get_bucket_encryption(Bucket="default"), "ServerSideEncryptionConfigurationNotFoundError"),
    ):
        with pytest.raises(ClientError) as failed:
            call()  # type: ignore[no-untyped-call]
        assert code_of(failed) == code


def test_wrong_secret_unknown_key_and_revoked_token(closed: Closed) -> None:
    s3 = closed.client()
    keys = s3._request_signer._credentials
    with pytest.raises(ClientError) as failed:
        client(closed.url, keys.access_key, "0" * 64).list_objects_v2(Bucket="default")
    assert code_of(failed) == "SignatureDoesNotMatch"
    with pytest.raises(ClientError) as failed:
        client(closed.url, f"PSLFFFF{keys.access_key[7:]}", keys.secret_key).list_objects_v2(Bucket="default")
    assert code_of(failed) == "InvalidAccessKeyId"
    with pytest.raises(ClientError) as failed:
        client(closed.url, "AKIAIOSFODNN7EXAMPLE", keys.secret_key).list_objects_v2(Bucket="default")
    assert code_of(failed) == "InvalidAccessKeyId"


def test_buckets_are_the_spaces_of_the_caller(closed: Closed) -> None:
    assert [each["Name"] for each in closed.client().list_buckets()["Buckets"]] == ["default"]
    assert [each["Name"] for each in closed.client(space="/spaces/other").list_buckets()["Buckets"]] == ["other"]


def test_presigned_url(closed: Closed) -> None:
    s3 = closed.client(signature_version="s3v4")
    parameters = {"Bucket": "default", "Key": "tags/llm:1/m.onnx", "ResponseContentType": "text/html"}
    url = s3.generate_presigned_url("get_object", parameters, ExpiresIn=60)
    found = httpx.get(url)
    assert (found.status_code, found.content) == (200, DATA)
    assert found.headers["content-type"] == "text/html"
    assert found.headers["content-disposition"].startswith("attachment")
    assert "sandbox" in found.headers["content-security-policy"]
    altered = httpx.get(url.replace("text%2Fhtml", "text%2Fplain"))
    assert (altered.status_code, "SignatureDoesNotMatch" in altered.text) == (403, True)
    assert httpx.get(url.replace("X-Amz-Expires=60", "X-Amz-Expires=61")).status_code == 403


def test_view_is_a_folder(closed: Closed) -> None:
    s3 = closed.client()
    (listed,) = s3.list_objects_v2(Bucket="default", Prefix="tags/llm:1/@safetensors/")["Contents"]
    found = s3.get_object(Bucket="default", Key=listed["Key"])
    assert listed["Key"] == "tags/llm:1/@safetensors/model.safetensors"
    assert (len(found["Body"].read()), found["ETag"]) == (listed["Size"], listed["ETag"])


def test_open_service_takes_any_signature() -> None:
    with serve() as live:
        httpx.put(f"{live.url}/v1/stores?filename=m.onnx&tag=m", content=DATA).raise_for_status()
        s3 = client(live.url)
        assert s3.get_object(Bucket="default", Key="tags/m/m.onnx")["Body"].read() == DATA
        with pytest.raises(ClientError) as failed:
            s3.list_objects_v2(Bucket="nowhere")
        assert code_of(failed) == "NoSuchBucket"


def test_body_is_refused_unread(closed: Closed) -> None:
    s3 = closed.client()
    with pytest.raises(ClientError) as failed:
        s3.put_object(Bucket="default", Key="k", Body=bytes(20_000_000))
    assert code_of(failed) == "AccessDenied"
    read = httpx.request("GET", f"{closed.url}/s3/default/tags/llm:1/m.onnx", content=b"body")
    assert (read.status_code, "<Code>InvalidRequest</Code>" in read.text) == (400, True)


def test_answers_are_xml_for_keys_that_xml_cannot_hold(closed: Closed) -> None:
    s3 = closed.client()
    for key in ("tags/\x01<&]]>/m", "tags/\ufffe", "a\nb"):
        with pytest.raises(ClientError) as failed:
            s3.get_object(Bucket="default", Key=key)
        assert code_of(failed) == "NoSuchKey"
        assert "Contents" not in s3.list_objects_v2(Bucket="default", Prefix=key)


def test_foreign_host_is_refused_but_for_the_domain() -> None:
    with serve(s3_domain="s3.models.example") as live:
        httpx.put(f"{live.url}/v1/stores?filename=m.onnx&tag=m", content=DATA).raise_for_status()
        statuses = {
            (host, path): httpx.get(f"{live.url}{path}", headers={"host": host}).status_code
            for host in ("evil.example", "s3.models.example", "default.s3.models.example", "evils3.models.example")
            for path in ("/s3/default/tags/m/m.onnx", "/default/tags/m/m.onnx", "/tags/m/m.onnx")
        }
    served = {key for key, status in statuses.items() if status == 200}
    assert served == {
        ("s3.models.example", "/default/tags/m/m.onnx"),
        ("default.s3.models.example", "/tags/m/m.onnx"),
    }
    assert {status for (host, _), status in statuses.items() if host.startswith("evil")} == {400, 421}
