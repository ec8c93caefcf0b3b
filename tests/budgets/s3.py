"""The worst requests to buckets, as clients of S3 make them."""

from __future__ import annotations

from typing import Final

import httpx
from tests.budgets.rows import KIB, Budget, Row, get
from tests.support.stores import onnx

_FILES: Final = 1000
_TENSORS: Final = 2000


def _names(http: httpx.Client) -> None:
    """Give a store of a thousand files fifty names, and a model of many tensors one."""
    if http.get("/v1/tags/s3-0").status_code == 200:
        return
    files = [("file", (f"f/{number:04}", b"x")) for number in range(_FILES)]
    tags = "&".join(f"tag=s3-{number}" for number in range(50))
    http.post(f"/v1/stores?{tags}", files=files).raise_for_status()
    http.put("/v1/stores?filename=m.onnx&tag=s3-model", content=onnx(*[4] * _TENSORS)).raise_for_status()


def _listing(worst: str, query: str, budget: Budget, status: int = 200) -> Row:
    ask = get(f"/s3/default?{query}")
    return Row(route="GET /s3/bucket", worst=worst, ask=ask, given=_names, status=status, budget=budget)


_PAGE: Final = Budget(held=20_000, work=500_000)
"""For a page of a thousand keys."""

S3: Final = (
    _listing("a page of keys of fifty names", "list-type=2&prefix=tags/s3-", _PAGE),
    _listing("a delimiter in every key", "list-type=2&delimiter=0&prefix=tags/s3-", Budget(held=20_000, work=500_000)),
    _listing("no key of a page is wanted", "list-type=2&max-keys=0", Budget()),
    _listing(
        "the view of a model of many tensors", "list-type=2&prefix=tags/s3-model/@safetensors/", Budget(work=2_000_000)
    ),
    _listing("a prefix of 60 kB", f"list-type=2&prefix={'tags/' * 12_000}", Budget(), 400),
    _listing("two hundred parameters", "&".join(f"{number}=" for number in range(200)), _PAGE),
    _listing("too many parameters", "&".join(f"{number}=" for number in range(10_000)), Budget(), 400),
    Row(
        route="GET /s3/bucket/key",
        worst="five thousand ranges",
        ask=get("/s3/default/tags/s3-0/f/0000", range="bytes=" + ",".join(["0-0"] * 5000)),
        given=_names,
        status=200,
        budget=Budget(held=13_000),
    ),
    Row(
        route="GET /s3/bucket/key",
        worst="signed headers of 50 kB",
        ask=get(
            "/s3/default/tags/s3-0/f/0000",
            authorization=f"AWS4-HMAC-SHA256 Credential=a/b, SignedHeaders={';'.join(['host'] * 10 * KIB)}, Signature="
            + "0" * 64,
        ),
        given=_names,
        status=200,
        budget=Budget(),
    ),
)
