"""Pages for people: small, without scripts, readable without styles."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from string import Template
from typing import Final

from protoslice.server.problems import Problem
from protoslice.sizes import format_size
from protoslice.stores import StoreInfo

__all__ = ["home_page", "problem_page"]

_PAGE: Final = Template("""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>$title</title>
<style>
:root { color-scheme: light dark; }
body { font: 16px/1.55 system-ui, sans-serif; max-width: 56rem; margin: 3rem auto; padding: 0 1.25rem; }
h1 { font-size: 1.7rem; margin: 0 0 .2rem; letter-spacing: -.01em; }
h2 { font-size: 1.05rem; margin: 2.2rem 0 .6rem; }
p.lead { margin-top: 0; opacity: .75; }
pre, code { font: .88rem/1.5 ui-monospace, monospace; }
pre { background: #8881; border: 1px solid #8883; border-radius: .4rem; padding: .8rem 1rem; overflow-x: auto; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .35rem .8rem .35rem 0; border-bottom: 1px solid #8883; white-space: nowrap; }
td.n, th.n { text-align: right; }
td.wide { white-space: normal; overflow-wrap: anywhere; }
nav a { margin-right: 1.2rem; }
.scroll { overflow-x: auto; }
</style>
</head>
<body>
$body
</body>
</html>
""")

_HOME: Final = Template("""<h1>Protoslice</h1>
<p class="lead">Big protobufs, part by part: put a model in, and pull only what you need.</p>
<nav><a href="/docs">API</a><a href="/openapi.json">OpenAPI</a><a href="/metrics">Metrics</a></nav>
<h2>Begin</h2>
<pre>curl -T model.onnx '$origin/v1/stores?filename=model.onnx&amp;tag=mine'
curl '$origin/v1/stores/mine/merge?omit_larger_than=64KiB' -H 'Accept: application/json'
curl '$origin/v1/stores/mine/tree?path=graph'
curl -r 0-4095 '$origin/v1/stores/mine/chunks/0' -o part</pre>
<h2>Newest stores</h2>
$stores""")

_PROBLEM: Final = Template("""<h1>$title</h1>
<p class="lead">A problem of status $status, <code>$type</code>.</p>
<p>$advice</p>
<nav><a href="/">Protoslice</a><a href="/docs">API</a></nav>""")


def home_page(stores: Sequence[StoreInfo], origin: str) -> str:
    """What the service is, and the newest stores."""
    body = _HOME.substitute(origin=escape(origin), stores=_table(stores) if stores else "<p>None yet.</p>")
    return _PAGE.substitute(title="Protoslice", body=body)


def problem_page(problem: Problem) -> str:
    """What a problem means and what to do."""
    fields = {name: escape(str(getattr(problem, name))) for name in ("title", "status", "type", "advice")}
    return _PAGE.substitute(title=f"{fields['title']} — Protoslice", body=_PROBLEM.substitute(fields))


def _table(stores: Sequence[StoreInfo]) -> str:
    head = '<tr><th>Store</th><th>Tags</th><th>Type</th><th class="n">Size</th><th class="n">Chunks</th></tr>'
    return f'<div class="scroll"><table>{head}{"".join(map(_row, stores))}</table></div>'


def _row(store: StoreInfo) -> str:
    link = f'<a href="/v1/stores/{store.id}"><code>{store.id[:12]}</code></a>'
    tags, kind = escape(", ".join(store.tags)), escape(store.type or "unknown")
    numbers = f'<td class="n">{format_size(store.size)}</td><td class="n">{store.chunks}</td>'
    return f'<tr><td>{link}</td><td class="wide">{tags}</td><td>{kind}</td>{numbers}</tr>'
