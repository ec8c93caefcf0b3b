"""The page that `make web` builds: its shell, and its files as they are sent."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Final

from protoslice.server.pages.html import icon, style_hash, template

_SHELL: Final = template("app.html")
_MEDIA_TYPES: Final = {"js": "text/javascript; charset=utf-8", "css": "text/css; charset=utf-8"}
_CODINGS: Final = {"br": "br", "gz": "gzip"}
"""Content codings, by the endings of packed files."""

BUILT_HEADERS: Final = {
    "cache-control": "no-cache",
    # The style with a hash is that of the page without scripts. Trusted Types forbid markup and scripts made of
    # strings; the policy `strip` allows the URL of the page's own worker.
    "content-security-policy": f"default-src 'none'; script-src 'self'; style-src 'self' 'sha256-{style_hash()}'; "
    "worker-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types strip",
}


@dataclass(frozen=True, slots=True)
class Asset:
    """A file of the page: its media type, and its bytes by content coding, `identity` among them."""

    media_type: str
    coded: dict[str, bytes]


@cache
def assets() -> dict[str, Asset]:
    """The files of the page by name; none where the page was not built."""
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
    """The list of the build: names of the first script and of the style, and scripts by part; None without a page."""
    listed = files(__package__).joinpath("built", "first.json")
    return json.loads(listed.read_text(encoding="utf-8")) if listed.is_file() else None


def is_built() -> bool:
    """True where `make web` has built the page."""
    return _first() is not None


def shell(without_scripts: str, *parts: str) -> str | None:
    """The page, with the HTML `without_scripts` for readers without them; None if it was not built.

    The scripts of `parts` that exist are loaded at once, not only after those that import them.
    """
    first = _first()
    if first is None:
        return None
    names = dict.fromkeys(name for part in ("main", *parts) for name in first["parts"].get(part, ()))
    preload = "\n".join(f'<link rel="modulepreload" href="/assets/{name}">' for name in names)
    return _SHELL.substitute(first, icon=icon(), plain=without_scripts, preload=preload)
