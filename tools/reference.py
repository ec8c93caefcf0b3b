"""Write the reference pages of docs/ from the tables in the code: `python -m tools.reference docs`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from string import Template
from typing import Any, Final

from pydantic_core import PydanticUndefined

from protoslice.errors import WITH_SLUG
from protoslice.server.problems import BY_SLUG, PROBLEMS
from protoslice.server.settings import Settings, environment_name
from protoslice.sizes import format_size

_PROBLEMS: Final = Template("""# Problems

<!-- Made by `python -m tools.reference docs`; a test compares. -->

Every error response is `application/problem+json` (RFC 9457). `type` is a path at which the service explains the
problem, or a type registered with IANA; programs should compare it literally. `detail` says what happened, and
`request_id` is also in the log. Errors in a file have its `path` and byte `offset`, and exceeded limits have `limit`.
A 5xx response does not explain its cause: see the log.

The last column is the error of `protoslice.errors` that becomes the problem.

| status | `type` | what to do | error |
|---|---|---|---|
$problems

During an upload, some errors become other problems: $uploads.

If an error occurs after the first byte of a response, the connection is closed before `Content-Length` is reached.
""")

_CONFIGURATION: Final = Template("""# Configuration

<!-- Made by `python -m tools.reference docs`; a test compares. -->

Every setting is an environment variable. `protoslice config` shows their values, without secrets. The service does not
start with an unknown `PROTOSLICE_…` variable. Sizes are bytes or have a unit (`64KiB`, `2GB`); lists are separated by
commas or spaces.

Beyond the limits of one client, token or space, the response is 429. Beyond those of the service, it is 503. It is 403
beyond a quota of bytes, stores or entries, and 413 for a size above a limit.

The value of a setting can also be in a file, such as a Docker or Kubernetes secret: `PROTOSLICE_DATABASE_FILE` names
the file with the value of `PROTOSLICE_DATABASE`. Set only one of the two.

| variable | default | meaning |
|---|---|---|
$settings
""")


def problems_page() -> str:
    """Return docs/reference/problems.md."""
    names: dict[str, list[str]] = {}
    for kind in WITH_SLUG:
        names.setdefault(kind.slug, []).append(f"`{kind.__name__}`")
    rows = (
        f"| {each.status} | `{each.type}` | {each.advice} | {', '.join(names.get(each.slug, ()))} |"
        for each in PROBLEMS
    )
    uploads = (
        f"`{kind.__name__}` is {_brief(kind.upload_slug)}" for kind in WITH_SLUG if kind.upload_slug != kind.slug
    )
    return _PROBLEMS.substitute(problems="\n".join(rows), uploads=", ".join(uploads))


def configuration_page() -> str:
    """Return docs/reference/configuration.md."""
    rows = (
        f"| `{environment_name(name)}` | {_default(name, field.default)} | {field.description} |"
        for name, field in Settings.model_fields.items()
    )
    return _CONFIGURATION.substitute(settings="\n".join(rows))


def _brief(slug: str) -> str:
    return f"{BY_SLUG[slug].status} `{slug}`"


def _default(name: str, value: Any) -> str:
    if name == "storage":
        return "`protoslice` in the user's data folder"
    if value is PydanticUndefined or value is None or value == ():
        return ""
    if name.endswith("_bytes") and value >= 1024:
        return f"{format_size(value)} (`{value}`)"
    return f"`{json.dumps(value) if isinstance(value, bool) else value}`"


PAGES: Final = {
    "reference/problems.md": problems_page,
    "reference/configuration.md": configuration_page,
}
"""The functions that make the pages, by path below docs/."""


def main(folder: str) -> None:
    """Write the pages."""
    for name, page in PAGES.items():
        Path(folder, name).write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
