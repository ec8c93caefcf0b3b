"""The page at the root, and those that explain problems."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from string import Template
from typing import Final

from protoslice.facts import Store
from protoslice.server.api.problems import Problem
from protoslice.server.pages.shell import MARK, page, rich
from protoslice.sizes import format_size

__all__ = ["home_page", "problem_page"]

_HOME: Final = Template("""<main class="plain">
$mark<h1>Protoslice</h1>
<p class="lead">Big protobufs, part by part: put a model in, and pull only what you need.</p>
<ul class="links"><li><a href="/docs">Every call</a></li><li><a href="/openapi.json">OpenAPI</a></li>
<li><a href="/metrics">Metrics</a></li></ul>
<h2>Begin</h2>
<p>Send a model, of any size and by any client, and name it:</p>
<pre><code>curl -T model.onnx '$origin/v1/stores?filename=model.onnx&amp;tag=mine'</code></pre>
<p>Look at its structure without its weights, at one part of it, or take a range of a chunk:</p>
<pre><code>curl '$origin/v1/stores/mine/merge?omit_larger_than=64KiB' -H 'Accept: application/json'
curl '$origin/v1/stores/mine/tree?path=graph'
curl -r 0-4095 '$origin/v1/stores/mine/chunks/0' -o part</code></pre>
<h2>Newest stores</h2>
$stores
</main>""")

_PROBLEM: Final = Template("""<main class="plain">
<p class="soft">Problem <code>$type</code>, status $status</p>
<h1>$title</h1>
<p class="lead">$advice</p>
<ul class="links"><li><a href="/">Protoslice</a></li><li><a href="/docs">Every call</a></li></ul>
</main>""")


def home_page(stores: Sequence[Store], origin: str) -> str:
    """Page about the service, with its newest stores."""
    table = _table(stores) if stores else '<p class="soft">None yet.</p>'
    return page("Protoslice", _HOME.substitute(mark=MARK, origin=escape(origin), stores=table))


def problem_page(problem: Problem) -> str:
    """Page about one problem: its meaning, and what to do."""
    fields = {name: rich(str(getattr(problem, name))) for name in ("title", "status", "type", "advice")}
    return page(f"{problem.title} — Protoslice", _PROBLEM.substitute(fields))


def _table(stores: Sequence[Store]) -> str:
    head = '<tr><th>Store</th><th>Tags</th><th>Type</th><th class="n">Size</th><th class="n">Chunks</th></tr>'
    return f'<div class="scroll"><table>{head}{"".join(map(_row, stores))}</table></div>'


def _row(store: Store) -> str:
    link = f'<a href="/v1/stores/{store.id}"><code>{store.id[:12]}</code></a>'
    tags, kind = escape(", ".join(store.tags)), escape(store.type or "unknown")
    numbers = f'<td class="n">{format_size(store.size)}</td><td class="n">{store.chunks}</td>'
    return f'<tr><td class="one">{link}</td><td>{tags}</td><td>{kind}</td>{numbers}</tr>'
