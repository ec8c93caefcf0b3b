"""Routes of the web page and of its files, and HTML indexes of a store's files for clients that follow links."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Annotated, Final
from urllib.parse import quote, unquote

from fastapi import Query, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from protoslice.errors import NotFound, ProtosliceError, Unsupported
from protoslice.facts import File, Store
from protoslice.server.auth.permissions import OPEN, READ_SIGNED
from protoslice.server.auth.spaces import Ref, absolute_url, url_of
from protoslice.server.context import context_of, public_path
from protoslice.server.http.headers import read_fields
from protoslice.server.pages.html import (
    BUILT_HEADERS,
    PAGE_HEADERS,
    STYLE,
    assets,
    home_body,
    home_page,
    is_built,
    shell,
)
from protoslice.server.problems import NOT_FOUND, HttpProblem
from protoslice.server.routing import RouteGroup, endpoint
from protoslice.server.services import Services
from protoslice.sizes import format_size

router = RouteGroup(tags=["operations"])

_TABS: Final = ("bytes", "files", "graph", "message", "records", "tensors")
"""The names of a model's tabs on the web page, except the first tab. The address of each tab ends with its name."""
_LASTING: Final = {
    "cache-control": "public, max-age=31536000, immutable",
    "vary": "accept-encoding",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
}
_PREFERRED: Final = ("br", "gzip")


@endpoint(router, "GET /", OPEN, operation="get_home", response_class=HTMLResponse, summary="Web page", any_query=True)
async def home(
    request: Request,
    services: Services,
    list_type: Annotated[str, Query(alias="list-type", include_in_schema=False)] = "",
) -> Response:
    """Return the home page, which lists the stores by name.

    Without JavaScript, the page shows new stores and first steps.
    """
    if list_type or read_fields(request.scope).get(b"authorization", "").startswith("AWS4-"):
        raise Unsupported("This service does not speak the protocol of S3: use its HTTP API, see /docs")
    stores: Sequence[Store] | None = None
    if not services.state.authenticator.closed:
        try:
            stores = (await services.stores.list(limit=10)).items
        except ProtosliceError:
            stores = ()
    origin, root = absolute_url(request.scope, ""), url_of(request.scope, "")
    if _has_shell(request):
        built = shell(f"<style>{STYLE}</style>{home_body(stores, origin, root)}", "library")
        return HTMLResponse(built, headers=BUILT_HEADERS)
    return HTMLResponse(home_page(stores, origin, root), headers=PAGE_HEADERS)


@endpoint(router, "GET /m/{rest:path}", OPEN, response_class=HTMLResponse, include_in_schema=False, any_query=True)
async def model(request: Request, rest: str) -> Response:
    """Return the page of a model. If the web page was not built, redirect to the facts of the store."""
    # Clients print the address of this route, so it must also work without the web page.
    if not _has_shell(request):
        # Only the raw path keeps a slash within a reference encoded.
        raw = request.scope["raw_path"].decode("ascii", "replace").removeprefix(request.scope.get("root_path", ""))
        ref = quote(unquote(raw.removeprefix("/m/").partition("/")[0]), safe=":@~+")
        return RedirectResponse(url_of(request.scope, f"/v1/stores/{ref}"), 302)
    tab = rest.rpartition("/")[2]
    return _shell(request, "model", tab if tab in _TABS else "weights")


@endpoint(router, "GET /diff/{rest:path}", OPEN, response_class=HTMLResponse, include_in_schema=False, any_query=True)
async def diff(request: Request, rest: str) -> Response:
    """Return the page that compares two stores."""
    return _shell(request, "diff")


@endpoint(router, "GET /operations", OPEN, response_class=HTMLResponse, include_in_schema=False, any_query=True)
async def operations(request: Request) -> Response:
    """Return the page for operators."""
    return _shell(request, "operations")


@endpoint(router, "GET /assets/{name}", OPEN, include_in_schema=False)
async def asset(request: Request, name: str) -> Response:
    """Return a file of the web page in an encoding that the client accepts.

    The file's name changes with its content.
    """
    found = assets().get(name)
    if found is None:
        raise HttpProblem(NOT_FOUND, "The web page has no such file")
    taken = {each.partition(";")[0].strip() for each in request.headers.get("accept-encoding", "").split(",")}
    coding = next((each for each in _PREFERRED if each in taken and each in found.coded), "identity")
    headers = _LASTING if coding == "identity" else {**_LASTING, "content-encoding": coding}
    return Response(found.coded[coding], headers=headers, media_type=found.media_type)


def _has_shell(request: Request) -> bool:
    """Return True if the web page was built and is at the root of its host, as its scripts require."""
    return is_built() and not public_path(request.scope)


def _shell(request: Request, *parts: str) -> Response:
    if not _has_shell(request):
        why = "only works on a host without a path prefix" if is_built() else "was not built: run `make web`"
        raise HttpProblem(NOT_FOUND, f"The web page {why}")
    plain = '<p>This page needs JavaScript. <a href="/">Without it</a>, there is a list of the newest stores.</p>'
    return HTMLResponse(shell(plain, *parts), headers=BUILT_HEADERS)


_LINE_BYTES: Final = 300
_INDEX: Final = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>{title}</title>
<h1>{title}</h1>
<ul>
{rows}
</ul>
"""
"""The HTML of a folder's index.

It links only to entries and the parent folder, so clients that follow all links stay below `files/`.
"""


@endpoint(
    router,
    "GET /v1/stores/{ref}/files/{path:path}",
    READ_SIGNED,
    response_class=HTMLResponse,
    include_in_schema=False,
)
async def list_folder(request: Request, services: Services, ref: Ref, path: str) -> Response:
    """List the files and folders directly in a folder. The path of the folder is empty or ends with a slash."""
    store = await services.stores.get(ref)
    context_of(request.scope).store = store.id
    listed = await services.stores.worker.run_if_large(
        _LINE_BYTES * len(store.files), lambda: _index(f"{ref}/files/{path}", store.files, path)
    )
    return HTMLResponse(listed, headers=PAGE_HEADERS)


def _index(title: str, files: Sequence[File], folder: str) -> bytes:
    """Return the index of a folder. Raise `NotFound` if the folder holds no files."""
    found: dict[str, int | None] = {}
    for file in files:
        if file.path.startswith(folder):
            name, slash, _ = file.path[len(folder) :].partition("/")
            found[name + slash] = None if slash else file.size
    if not found:
        raise NotFound(f"The store has no folder {folder!r}")
    rows = [_row("../", None)] if folder else []
    rows += [_row(name, size) for name, size in sorted(found.items())]
    return _INDEX.format(title=escape(title), rows="\n".join(rows)).encode()


def _row(name: str, size: int | None) -> str:
    """Return a list item with a link. Its URL encodes all characters except slashes and safe characters."""
    return f'<li><a href="{quote(name)}">{escape(name)}</a>' + ("" if size is None else f" {format_size(size)}")
