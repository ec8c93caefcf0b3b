"""HTML pages: the web page that `make web` builds, and the home page and problem pages, which have no scripts."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from importlib.resources import files
from string import Template
from typing import Any, Final

from protoslice.facts import Store
from protoslice.server.problems import Problem
from protoslice.sizes import format_size


def _text(name: str) -> str:
    """Return a file in `templates/`, which is part of the package."""
    return files(__package__).joinpath("templates", name).read_text(encoding="utf-8")


def template(name: str) -> Template:
    """Return a template in `templates/`. Values are inserted unchanged, so they must be HTML or escaped."""
    return Template(_text(name))


_ICON: Final = (
    '<path d="M3 5.2 12 1l9 4.2-9 4.2z"/><path d="m3 10 9 4.2 9-4.2v2.6L12 16.8l-9-4.2z" opacity=".75"/>'
    '<path d="m3 15.4 9 4.2 9-4.2V18l-9 4.2L3 18z" opacity=".5"/>'
)
STYLE: Final = _text("style.css")
"""The style of pages without scripts."""
_PAGE: Final = template("page.html")
_HOME: Final = template("home.html")

_NOT_BUILT: Final = '<p class="soft">Run <code>make web</code> to build a page with treemaps, tensors and uploads.</p>'

_CLOSED: Final = (
    "This service needs a token: add `-H 'Authorization: Bearer TOKEN'` to the calls above, or "
    "set `PROTOSLICE_TOKEN` for the command line."
)
_OPEN: Final = (
    "This service is open: everyone who can reach it has full access. Set `PROTOSLICE_AUTH=tokens` to require tokens."
)
_PROBLEM: Final = template("problem.html")
_CODE: Final = re.compile(r"`([^`]+)`")


def _picture(attributes: str) -> str:
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 24 24" {attributes}>{_ICON}</svg>'


def icon() -> str:
    """Return the service's logo as an image in base64."""
    return base64.b64encode(_picture('fill="#2f6fed"').encode()).decode()


def style_hash() -> str:
    """Return the base64 SHA-256 of the style. Security policies allow the style by this hash."""
    return base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()


MARK: Final = _picture('class="mark" aria-hidden="true"')
"""The service's logo in the text colour of the page."""

PAGE_HEADERS: Final = {
    "cache-control": "no-cache",
    "content-security-policy": f"default-src 'none'; style-src 'sha256-{style_hash()}'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
}


def page(title: str, body: str) -> str:
    """Return a page with this title and body. The body is HTML already."""
    return _PAGE.substitute(title=escape(title), icon=icon(), style=STYLE, body=body)


def rich(text: str) -> str:
    """Return `text` as HTML. Text between backticks becomes code."""
    return _CODE.sub(r"<code>\1</code>", escape(text))


def home_page(stores: Sequence[Store] | None, origin: str, root: str = "") -> str:
    """Return the home page with the newest stores. `stores` is None if the caller may not see any stores.

    `root` is the beginning of paths in the space.
    """
    return page("Protoslice", home_body(stores, origin, root, _NOT_BUILT))


def home_body(stores: Sequence[Store] | None, origin: str, root: str = "", note: str = "") -> str:
    """Return the content of the home page, with a `note` (HTML) at the end."""
    if stores is None:
        table = f'<p class="soft">{rich(_CLOSED)}</p>'
    else:
        table = _table(stores, root) if stores else '<p class="soft">None yet.</p>'
        table += f'<p class="soft">{rich(_OPEN)}</p>'
    return _HOME.substitute(mark=MARK, origin=escape(origin), root=root, stores=table, note=note)


def problem_page(problem: Problem, root: str = "") -> str:
    """Return the page about one problem: its meaning, and what to do. `root` is the beginning of paths."""
    fields = {name: rich(str(getattr(problem, name))) for name in ("title", "status", "type", "advice")}
    return page(f"{problem.title} — Protoslice", _PROBLEM.substitute(fields, root=root))


def _table(stores: Sequence[Store], root: str) -> str:
    head = '<tr><th>Store</th><th>Tags</th><th>Type</th><th class="n">Size</th><th class="n">Chunks</th></tr>'
    return f'<div class="scroll"><table>{head}{"".join(_row(store, root) for store in stores)}</table></div>'


def _row(store: Store, root: str) -> str:
    link = f'<a href="{root}/v1/stores/{store.id}"><code>{store.id[:12]}</code></a>'
    tags, kind = escape(", ".join(store.tags)), escape(store.type or "unknown")
    numbers = f'<td class="n">{format_size(store.size)}</td><td class="n">{store.chunks}</td>'
    return f'<tr><td class="one">{link}</td><td>{tags}</td><td>{kind}</td>{numbers}</tr>'


_SHELL: Final = template("app.html")
_MEDIA_TYPES: Final = {"js": "text/javascript; charset=utf-8", "css": "text/css; charset=utf-8"}
_CODINGS: Final = {"br": "br", "gz": "gzip"}
"""The content codings of packed files, by file ending."""

BUILT_HEADERS: Final = {
    "cache-control": "no-cache",
    # The hash allows the style of the page without scripts. Trusted Types forbid markup and scripts made of strings.
    # The policy `strip` allows the URL of the page's own worker.
    "content-security-policy": f"default-src 'none'; script-src 'self'; style-src 'self' 'sha256-{style_hash()}'; "
    "worker-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types strip",
}


@dataclass(frozen=True, slots=True)
class Asset:
    """A file of the web page: its media type, and its bytes by content coding, including `identity`."""

    media_type: str
    coded: dict[str, bytes]


@cache
def assets() -> dict[str, Asset]:
    """Return the files of the web page by name. Return none if the page was not built."""
    folder, found = files(__package__).joinpath("built"), dict[str, Asset]()
    for file in folder.iterdir() if folder.is_dir() else ():
        name, _, ending = file.name.rpartition(".")
        if ending in _MEDIA_TYPES:
            asset = found.setdefault(file.name, Asset(_MEDIA_TYPES[ending], {}))
            asset.coded["identity"] = file.read_bytes()
        elif ending in _CODINGS:
            asset = found.setdefault(name, Asset(_MEDIA_TYPES[name.rpartition(".")[2]], {}))
            asset.coded[_CODINGS[ending]] = file.read_bytes()
    return found


@cache
def _first() -> dict[str, Any] | None:
    """Return the build's list, or None if the web page was not built.

    The list has the names of the first script and of the style, and the scripts of each part.
    """
    listed = files(__package__).joinpath("built", "first.json")
    return json.loads(listed.read_text(encoding="utf-8")) if listed.is_file() else None


def is_built() -> bool:
    """Return True if `make web` has built the web page."""
    return _first() is not None


def shell(without_scripts: str, *parts: str) -> str | None:
    """Return the web page, with the HTML `without_scripts` for readers without scripts.

    Return None if the web page was not built. The page loads the scripts of `parts` at once. Otherwise it would load
    them only after the scripts that import them.
    """
    first = _first()
    if first is None:
        return None
    names = dict.fromkeys(name for part in ("main", *parts) for name in first["parts"].get(part, ()))
    preload = "\n".join(f'<link rel="modulepreload" href="/assets/{name}">' for name in names)
    return _SHELL.substitute(first, icon=icon(), plain=without_scripts, preload=preload)
