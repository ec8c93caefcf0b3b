"""Index of the files of a store in HTML, for clients that follow links: rclone, wget and browsers."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Final
from urllib.parse import quote

from fastapi import Request
from starlette.responses import HTMLResponse, Response

from protoslice.errors import NotFound
from protoslice.facts import File
from protoslice.server.api.endpoints import endpoint
from protoslice.server.auth.places import Ref
from protoslice.server.auth.rules import SHOWN
from protoslice.server.context import context_of
from protoslice.server.pages.shell import PAGE_HEADERS
from protoslice.server.request.guarded_route import GuardedRouter
from protoslice.server.services import Given
from protoslice.sizes import format_size

router = GuardedRouter()

_LINE_BYTES: Final = 300
_PAGE: Final = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>{title}</title>
<h1>{title}</h1>
<ul>
{rows}
</ul>
"""
"""Only links to entries and to the folder above: clients that follow every link stay below `files/`."""


@endpoint(
    router,
    "GET /v1/stores/{ref}/files/{path:path}",
    SHOWN,
    response_class=HTMLResponse,
    include_in_schema=False,
)
async def list_folder(request: Request, services: Given, ref: Ref, path: str) -> Response:
    """List the files and folders directly in a folder, whose path is empty or ends with a slash."""
    store = await services.stores.get(ref)
    context_of(request.scope).store = store.id
    listed = await services.stores.worker.sized(
        _LINE_BYTES * len(store.files), lambda: _page(f"{ref}/files/{path}", store.files, path)
    )
    return HTMLResponse(listed, headers=PAGE_HEADERS)


def _page(title: str, files: Sequence[File], folder: str) -> bytes:
    """The index of a folder; `NotFound` when it holds no files."""
    found: dict[str, int | None] = {}
    for file in files:
        if file.path.startswith(folder):
            name, slash, _ = file.path[len(folder) :].partition("/")
            found[name + slash] = None if slash else file.size
    if not found:
        raise NotFound(f"The store has no folder {folder!r}")
    rows = [_row("../", None)] if folder else []
    rows += [_row(name, size) for name, size in sorted(found.items())]
    return _PAGE.format(title=escape(title), rows="\n".join(rows)).encode()


def _row(name: str, size: int | None) -> str:
    """A link, every character of which but slashes and plain letters is encoded."""
    return f'<li><a href="{quote(name)}">{escape(name)}</a>' + ("" if size is None else f" {format_size(size)}")
