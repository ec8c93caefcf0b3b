"""The page at the root, and those that explain problems."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Final

from protoslice.facts import Store
from protoslice.server.pages.shell import MARK, page, rich, template
from protoslice.server.problems import Problem
from protoslice.sizes import format_size

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


def home_page(stores: Sequence[Store] | None, origin: str, root: str = "") -> str:
    """Page about the service, with its newest stores; None where they are told to nobody without a token.

    `root` is the beginning of paths in the space.
    """
    return page("Protoslice", home_body(stores, origin, root, _NOT_BUILT))


def home_body(stores: Sequence[Store] | None, origin: str, root: str = "", note: str = "") -> str:
    """Content of the page about the service, with a `note` (HTML) at the end."""
    if stores is None:
        table = f'<p class="soft">{rich(_CLOSED)}</p>'
    else:
        table = _table(stores, root) if stores else '<p class="soft">None yet.</p>'
        table += f'<p class="soft">{rich(_OPEN)}</p>'
    return _HOME.substitute(mark=MARK, origin=escape(origin), root=root, stores=table, note=note)


def problem_page(problem: Problem, root: str = "") -> str:
    """Page about one problem: its meaning, and what to do. `root` is the beginning of paths."""
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
