"""Signatures of requests to S3, compared with those of botocore."""

from __future__ import annotations

from datetime import UTC, datetime
from unittest.mock import patch
from urllib.parse import quote

import pytest
from botocore.auth import S3SigV4Auth  # type: ignore[import-untyped]
from botocore.awsrequest import AWSRequest  # type: ignore[import-untyped]
from botocore.credentials import Credentials  # type: ignore[import-untyped]

from protoslice.storage.cloud.signing import Keys, signed

MOMENT = datetime(2026, 11, 23, 4, 5, 6, tzinfo=UTC)


@pytest.mark.parametrize("token", ["", "a-token+of/nobody=="])
@pytest.mark.parametrize(
    ("method", "url", "key", "query"),
    [
        ("GET", "http://127.0.0.1:9000/bucket", "", {"uploads": "", "prefix": "a folder/", "key-marker": "ä&b=c+d"}),
        ("GET", "https://bucket.s3.eu-west-1.amazonaws.com/", "", {"uploads": ""}),
        ("GET", "https://bucket.s3.eu-west-1.amazonaws.com", "a", {"uploadId": "x"}),
        ("DELETE", "https://s3.eu-west-1.amazonaws.com/bucket", "a/b c/ü+~(1)=.pb", {"uploadId": "x/y+z=="}),
    ],
)
def test_signatures_are_those_of_botocore(method: str, url: str, key: str, query: dict[str, str], token: str) -> None:
    keys = Keys("an-id-of-nobody", "a-secret-of-nobody", token, "eu-west-1")
    asked, headers = signed(method, url, key, query, keys, MOMENT)
    path = f"{url}/{quote(key, safe='/~')}" if key else url
    theirs = AWSRequest(method=method, url=path, params=query)
    theirs.context["payload_signing_enabled"] = True  # over https the digest of a body is optional
    with patch("botocore.auth.get_current_datetime", return_value=MOMENT.replace(tzinfo=None)):
        S3SigV4Auth(Credentials(keys.id, keys.secret, token or None), "s3", keys.region).add_auth(theirs)
    assert headers["authorization"] == theirs.headers["Authorization"]
    assert asked.startswith(path)


def test_keys_come_from_options_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN", "REGION", "DEFAULT_REGION"):
        monkeypatch.delenv(f"AWS_{name}", raising=False)
    assert Keys.of({"access_key_id": "one"}) is None
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "two")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "other")
    assert Keys.of({"access_key_id": "one", "region": "x"}) == Keys("one", "two", "", "x")
