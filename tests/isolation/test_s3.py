"""Requests of S3 get equal answers beside a full space, an empty one and none."""

from __future__ import annotations

import re
from urllib.parse import quote

from tests.server.auth.closed import bearer, closed_service, token_for
from tests.server.registries.s3.test_signatures import DATA, Made, got, keys_of
from tests.support.serve import ask

from protoslice.server.auth.permissions import Scope

SECRET = b"\x0a\x06secret"


async def _answers(store: str, *, full: bool) -> dict[tuple[str, str], tuple[int, str]]:
    """Return what a caller of `own` is answered, with content in `other` if it is `full`."""
    async with closed_service() as app:
        put = "/v1/stores?filename=m.pb&tag=m"
        writer = bearer(await token_for(app, Scope.WRITE))
        assert (await ask(app, "PUT", f"/spaces/own{put}", DATA, writer)).status == 201
        if full:
            writer = bearer(await token_for(app, Scope.WRITE, space="other"))
            assert (await ask(app, "PUT", f"/spaces/other{put}&tag=secret", SECRET, writer)).status == 201
        keys = await keys_of(app, await token_for(app, Scope.READ))
        found = {}
        for path, query in _requests(store):
            for method in ("GET", "HEAD"):
                answer = await got(app, Made(keys, path=path, query=query, method=method), method=method)
                text = re.sub("<(LastModified|RequestId|ID)>[^<]*", "", answer.body.decode("latin-1"))
                shown = {k: v for k, v in answer.headers.items() if "request-id" not in k and k != "last-modified"}
                found[method, f"{path}?{query}"] = (answer.status, f"{shown}{text}")
        return found


def _requests(store: str) -> list[tuple[str, str]]:
    """Return paths and queries of objects and listings, of which some name what is in `other`."""
    keys = ["tags/m/m.pb", "tags/secret/m.pb", f"stores/{store}/m.pb", f"stores/{store}/@safetensors/m.pb"]
    prefixes = ["", "tags/", "tags/secret/", "stores/", f"stores/{store}/", "hub/", "oci/"]
    queries = [f"list-type=2&prefix={quote(prefix, safe='')}" for prefix in prefixes]
    queries += ["list-type=2&prefix=&start-after=tags%2Fs", "delimiter=%2F", "location=", "acl=", "versioning="]
    found = [("/s3", "")]
    for bucket in ("own", "other"):
        found += [(f"/s3/{bucket}/{key}", "") for key in keys]
        found += [(f"/s3/{bucket}", query) for query in queries]
    return found


async def test_other_spaces_show_nowhere_in_s3() -> None:
    async with closed_service() as app:
        writer = bearer(await token_for(app, Scope.WRITE))
        made = await ask(app, "PUT", "/spaces/own/v1/stores?filename=m.pb", SECRET, writer)
    store = made.headers["location"].rpartition("/")[2]
    full, empty = await _answers(store, full=True), await _answers(store, full=False)
    assert full == empty
    assert {status for status, _ in full.values()} >= {200, 403, 404}
