"""Routes of git's dumb protocol, to clone and fetch repositories. Large files are pointers of git-lfs."""

from __future__ import annotations

import re
import zlib
from typing import Annotated, Final

from fastapi import Path, Request
from starlette.responses import PlainTextResponse, Response

from protoslice.errors import Unsupported
from protoslice.repositories import MAIN
from protoslice.repositories.git_history import GitHistory
from protoslice.server.auth.permissions import READ
from protoslice.server.http.headers import read_fields
from protoslice.server.registries.hub.paths import render_git, repository_of, split_kind
from protoslice.server.routing import RouteGroup, endpoint
from protoslice.server.services import Services

_PUSH: Final = "git-receive-pack"
_FETCH: Final = "git-upload-pack"
_SMART_ONLY: Final = re.compile("libgit2|go-git|isomorphic-git")
"""A pattern of User-Agent for programs that only read the smart protocol."""
_OTHER_PROGRAM: Final = (
    "this service has git's dumb protocol, which this program does not know: clone with git itself, or download files "
    "with `hf download`"
)
_HEADS: Final = "refs/heads/"


router = RouteGroup(render=render_git, strict=False, include_in_schema=False)


def _packet(line: str | None) -> str:
    """Return a line of the smart protocol. The line for None ends a list of lines."""
    return "0000" if line is None else f"{len(line) + 4:04x}{line}"


async def _history(services: Services, name: str) -> GitHistory:
    return GitHistory(await services.repositories.find(repository_of(*split_kind(name.removesuffix(".git")))))


async def _refs(services: Services, name: str) -> list[tuple[str, str]]:
    history = await _history(services, name)
    return await services.state.git_refs.get((services.stores, history.name), history.refs)


@endpoint(router, "GET /{name:owned}/info/refs", READ)
async def list_git_refs(request: Request, services: Services, name: str, service: str = "") -> Response:
    """Return the branches and tags, one per line.

    Programs that only read the smart protocol get an error that explains why it is not supported.
    """
    if service == _PUSH:
        raise Unsupported("git push is not supported: upload with `hf upload`")
    refs = await _refs(services, name)
    if service == _FETCH and _SMART_ONLY.search(read_fields(request.scope).get(b"user-agent", "")):
        said = f"# service={_FETCH}\n", None, f"ERR {_OTHER_PROGRAM}"
        return Response("".join(map(_packet, said)), media_type=f"application/x-{_FETCH}-advertisement")
    return PlainTextResponse("".join(f"{id}\t{ref}\n" for ref, id in refs))


@endpoint(router, "GET /{name:owned}/HEAD", READ)
async def get_git_head(services: Services, name: str) -> Response:
    """Return the branch that a clone checks out."""
    heads = [ref for ref, _ in await _refs(services, name) if ref.startswith(_HEADS)]
    main = _HEADS + MAIN
    return PlainTextResponse(f"ref: {main if main in heads or not heads else heads[0]}\n")


@endpoint(router, "GET /{name:owned}/objects/{start}/{rest}", READ)
async def get_git_object(
    services: Services,
    name: str,
    start: Annotated[str, Path(max_length=4)],
    rest: Annotated[str, Path(max_length=64)],
) -> Response:
    """Return a compressed git object by its id."""
    found = await (await _history(services, name)).object(start + rest)
    data = await services.stores.worker.run_if_large(len(found), lambda: zlib.compress(found, 1))
    headers = {"content-disposition": "attachment", "cache-control": "no-cache"}
    return Response(data, headers=headers, media_type="application/x-git-loose-object")
