"""Shell of all pages for people: one style, no scripts, and a policy that allows nothing else."""

from __future__ import annotations

import base64
import hashlib
import re
from html import escape
from importlib.resources import files
from string import Template
from typing import Final


def _text(name: str) -> str:
    """A file of `templates/`, which is part of the package."""
    return files(__package__).joinpath("templates", name).read_text(encoding="utf-8")


def template(name: str) -> Template:
    """Template of `templates/`; values are inserted as they are, and must be HTML or escaped."""
    return Template(_text(name))


_ICON: Final = (
    '<path d="M3 5.2 12 1l9 4.2-9 4.2z"/><path d="m3 10 9 4.2 9-4.2v2.6L12 16.8l-9-4.2z" opacity=".75"/>'
    '<path d="m3 15.4 9 4.2 9-4.2V18l-9 4.2L3 18z" opacity=".5"/>'
)
STYLE: Final = _text("style.css")
"""The style of pages without scripts."""
_PAGE: Final = template("page.html")
_CODE: Final = re.compile(r"`([^`]+)`")


def _picture(attributes: str) -> str:
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 24 24" {attributes}>{_ICON}</svg>'


def icon() -> str:
    """Our sign as an image, in base64."""
    return base64.b64encode(_picture('fill="#2f6fed"').encode()).decode()


def style_hash() -> str:
    """SHA-256 of the style in base64, by which policies allow it."""
    return base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()


MARK: Final = _picture('class="mark" aria-hidden="true"')
"""Our sign, in the colour of the page."""

PAGE_HEADERS: Final = {
    "cache-control": "no-cache",
    "content-security-policy": f"default-src 'none'; style-src 'sha256-{style_hash()}'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
}


def page(title: str, body: str) -> str:
    """The page with this body, which is HTML already."""
    return _PAGE.substitute(title=escape(title), icon=icon(), style=STYLE, body=body)


def rich(text: str) -> str:
    """`text` as HTML; what stands between backticks as code."""
    return _CODE.sub(r"<code>\1</code>", escape(text))
