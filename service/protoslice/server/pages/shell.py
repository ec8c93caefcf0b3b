"""What all pages for people share: a shell without scripts, one style, and the policy that allows nothing else."""

from __future__ import annotations

import base64
import hashlib
import re
from html import escape
from string import Template
from typing import Final

__all__ = ["PAGE_HEADERS", "page", "rich"]

_STYLE: Final = """
:root { color-scheme: light dark; --ink: #1c2330; --soft: #5b6575; --line: #e3e7ee; --back: #fff; --raised: #f6f8fb;
  --link: #1257c9; --get: #0b6b50; --put: #8a4b00; --delete: #ab1f33; --mark: #2f6fed; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e8ef; --soft: #98a3b5; --line: #2a313d; --back: #12161d;
  --raised: #191f29; --link: #7fb0ff; --get: #56c9a1; --put: #e3a857; --delete: #ff8592; --mark: #7fb0ff; } }
* { box-sizing: border-box; }
html { scroll-padding-top: 1.5rem; }
body { margin: 0; background: var(--back); color: var(--ink); font: 16px/1.6 system-ui, sans-serif; }
a { color: var(--link); text-decoration-thickness: 1px; text-underline-offset: .2em; }
code, pre { font: .86em/1.55 ui-monospace, "Cascadia Mono", Menlo, monospace; }
pre { background: var(--raised); border: 1px solid var(--line); border-radius: .5rem; padding: .9rem 1.1rem;
  margin: .8rem 0; overflow-x: auto; }
code { overflow-wrap: anywhere; } pre code { overflow-wrap: normal; font-size: 1em; }
h1 { font-size: 2rem; line-height: 1.2; letter-spacing: -.02em; margin: 0; }
h2 { font-size: 1.3rem; letter-spacing: -.01em; margin: 3rem 0 .8rem; }
h3 { font-size: 1.05rem; margin: 0 0 .2rem; } h4 { font-size: .8rem; margin: 1.3rem 0 .3rem; color: var(--soft);
  text-transform: uppercase; letter-spacing: .06em; }
p { margin: .5rem 0; } .lead, .soft { color: var(--soft); } .lead { font-size: 1.1rem; }
.plain { max-width: 60rem; margin: 0 auto; padding: 3rem 1.5rem 4rem; }
.mark { display: block; width: 2.6rem; height: 2.6rem; margin: 0 0 1rem -.3rem; fill: var(--mark); }
.links { display: flex; flex-wrap: wrap; gap: .4rem 1.4rem; margin: 1.2rem 0; padding: 0; list-style: none; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .94rem; }
th, td { text-align: left; vertical-align: top; padding: .45rem 1rem .45rem 0; border-bottom: 1px solid var(--line); }
th { color: var(--soft); font-weight: 500; font-size: .85rem; }
td.n, th.n { text-align: right; } td.n, td.one { white-space: nowrap; }
.sides { display: grid; grid-template-columns: 19rem minmax(0, 1fr); max-width: 84rem; margin: 0 auto; }
.sides > nav { position: sticky; top: 0; max-height: 100vh; overflow-y: auto; padding: 2.2rem 1.5rem;
  font-size: .9rem; }
.sides > main { padding: 2.5rem 2rem 5rem; border-left: 1px solid var(--line); }
.sides nav ol { list-style: none; margin: .2rem 0 1.1rem; padding: 0; }
.sides nav li a { display: block; padding: .12rem 0; color: inherit; text-decoration: none; }
.sides nav li a:hover { color: var(--link); } .sides nav b { font-weight: 500; }
.sides nav b a { color: var(--soft); text-decoration: none; }
.call { border-top: 1px solid var(--line); padding: 1.8rem 0 1.4rem; }
.call .url { margin: .1rem 0 .6rem; } .method { font-weight: 650; font-size: .86em; letter-spacing: .03em; }
.get { color: var(--get); } .post, .put, .patch { color: var(--put); } .delete { color: var(--delete); }
details { margin: .9rem 0; } summary { cursor: pointer; color: var(--soft); }
.call dl { display: grid; grid-template-columns: minmax(9rem, max-content) minmax(0, 1fr); gap: .3rem 1.4rem;
  margin: .3rem 0; }
.call dt { overflow-wrap: anywhere; } .call dd { margin: 0; }
@media (max-width: 52rem) { .sides { display: block; } .sides > nav { position: static; max-height: none;
  padding: 1.5rem 1.2rem 0; display: flex; flex-wrap: wrap; gap: .2rem 1rem; }
  .sides nav ol { display: none; } .sides .mark { flex: none; margin: 0 calc(100% - 2.3rem) .6rem -.3rem; }
  .sides > main { border: 0; padding: 1rem 1.2rem 4rem; } .plain { padding: 2rem 1.2rem; }
  .call dl { display: block; } .call dd { margin: 0 0 .6rem; } }
"""
_ICON: Final = (
    '<path d="M3 5.2 12 1l9 4.2-9 4.2z"/><path d="m3 10 9 4.2 9-4.2v2.6L12 16.8l-9-4.2z" opacity=".75"/>'
    '<path d="m3 15.4 9 4.2 9-4.2V18l-9 4.2L3 18z" opacity=".5"/>'
)
_PAGE: Final = Template("""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>$title</title>
<link rel="icon" href="data:image/svg+xml;base64,$icon">
<style>$style</style>
</head>
<body>
$body
</body>
</html>
""")
_CODE: Final = re.compile(r"`([^`]+)`")


def _picture(attributes: str) -> str:
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 24 24" {attributes}>{_ICON}</svg>'


def _icon() -> str:
    return base64.b64encode(_picture('fill="#2f6fed"').encode()).decode()


def _style_hash() -> str:
    return base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()


MARK: Final = _picture('class="mark" aria-hidden="true"')
"""Our sign, in the colour of the page."""

PAGE_HEADERS: Final = {
    "cache-control": "no-cache",
    "x-content-type-options": "nosniff",
    "content-security-policy": f"default-src 'none'; style-src 'sha256-{_style_hash()}'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
}


def page(title: str, body: str) -> str:
    """The page with this body, which is HTML already."""
    return _PAGE.substitute(title=escape(title), icon=_icon(), style=_STYLE, body=body)


def rich(text: str) -> str:
    """`text` as HTML; what stands between backticks as code."""
    return _CODE.sub(r"<code>\1</code>", escape(text))
