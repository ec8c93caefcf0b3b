"""Signature of requests to S3 (Signature Version 4), for the few that obstore does not make."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from hmac import digest
from typing import Final
from urllib.parse import quote, urlsplit

_EMPTY: Final = sha256(b"").hexdigest()
_ALGORITHM: Final = "AWS4-HMAC-SHA256"


@dataclass(frozen=True, slots=True)
class Keys:
    """Credentials and region of a bucket."""

    id: str
    secret: str
    token: str
    """Token of temporary credentials; empty for others."""
    region: str

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Keys | None:
        """Keys in the options of a store or the environment; None where a role of the machine gives them."""
        found = cls(
            id=option(options, "access_key_id"),
            secret=option(options, "secret_access_key"),
            token=option(options, "token", "session_token"),
            region=option(options, "region", "default_region") or "us-east-1",
        )
        return found if found.id and found.secret else None


def option(options: Mapping[str, str], *names: str) -> str:
    """First of the options that is given, or else that the environment has; empty when there is none."""
    given = (options.get(name, "") for name in names)
    environment = (os.environ.get(f"AWS_{name.upper()}", "") for name in names)
    return next((value for value in (*given, *environment) if value), "")


def signed(
    method: str, bucket_url: str, key: str, query: Mapping[str, str], keys: Keys, moment: datetime
) -> tuple[str, dict[str, str]]:
    """URL and headers of a request without a body for an object, or for the bucket when `key` is empty."""
    base = urlsplit(bucket_url)
    path = f"{base.path}/{quote(key, safe='/~')}" if key else base.path or "/"
    asked = "&".join(f"{quote(name, safe='~')}={quote(value, safe='~')}" for name, value in sorted(query.items()))
    time = moment.strftime("%Y%m%dT%H%M%SZ")
    headers = {"host": base.netloc, "x-amz-content-sha256": _EMPTY, "x-amz-date": time}
    if keys.token:
        headers["x-amz-security-token"] = keys.token
    names = ";".join(headers)
    lines = "".join(f"{name}:{value}\n" for name, value in headers.items())
    request = "\n".join((method, path, asked, lines, names, _EMPTY))
    scope = f"{time[:8]}/{keys.region}/s3/aws4_request"
    text = "\n".join((_ALGORITHM, time, scope, sha256(request.encode()).hexdigest()))
    secret = f"AWS4{keys.secret}".encode()
    for step in scope.split("/"):
        secret = digest(secret, step.encode(), "sha256")
    signature = digest(secret, text.encode(), "sha256").hex()
    headers["authorization"] = (
        f"{_ALGORITHM} Credential={keys.id}/{scope}, SignedHeaders={names}, Signature={signature}"
    )
    return f"{base.scheme}://{base.netloc}{path}?{asked}", headers
