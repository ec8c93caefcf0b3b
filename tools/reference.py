"""Write the reference pages of docs/ from the tables in the code: `python -m tools.reference docs`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from string import Template
from typing import Any, Final

from pydantic_core import PydanticUndefined

from protoslice.errors import WITH_SLUG, ProtosliceError
from protoslice.server.app import create_app
from protoslice.server.problems import BY_SLUG, PROBLEMS
from protoslice.server.registries.hub.paths import TAKEN
from protoslice.server.settings import Settings, environment_name
from protoslice.sizes import format_size

_PROBLEMS: Final = Template("""# Problems

<!-- Made by `python -m tools.reference docs`; a test compares. -->

Every error response is `application/problem+json` (RFC 9457). `type` is a path at which the service explains the
problem, the same on every installation, or a type registered with IANA; programs should compare it literally. `detail`
says what happened; `request_id` is also in the log. Errors in a file have its `path` and byte `offset`, and exceeded
limits have `limit`. A 5xx response does not explain its cause: see the log.

| status | `type` | title | what to do |
|---|---|---|---|
$problems

## Which error is which problem

The table shows which problem an error of the library (`protoslice.errors`) becomes, when stored data is read and during
an upload:

| error | reading | upload |
|---|---|---|
$errors

If an error occurs after the first byte of a response, the connection is closed before `Content-Length` is reached, so
clients can tell that the response is incomplete.
""")

_CONFIGURATION: Final = Template("""# Configuration

<!-- Made by `python -m tools.reference docs`; a test compares. -->

Every setting is an environment variable. `protoslice config` shows their values, without secrets; `protoslice serve`
also has the options `--host`, `--port` and `--storage`. The service does not start with an unknown `PROTOSLICE_…`
variable. Sizes are bytes or have a unit (`64KiB`, `2GB`); lists are separated by commas or spaces.

The value of a setting can also be in a file, such as a Docker or Kubernetes secret: `PROTOSLICE_DATABASE_FILE` names
the file with the value of `PROTOSLICE_DATABASE`. Set only one of the two. Settings whose values are paths of files have
no such form.

| variable | default | meaning |
|---|---|---|
$settings
""")


_VERSIONS: Final = Template("""# Versions of the API

<!-- Made by `python -m tools.reference docs`; a test compares. -->

The version of the API is the beginning of its paths, `/v1`. Paths of any other version are `404`.

## What is promised

Below `/v1`, these $promised_count operations stay as they are: paths, parameters, members of JSON, statuses and the
`type` of problems. New ones are added, so programs should ignore members that they do not know.

| operation | result |
|---|---|
$promised

A change that breaks programs gets a new version of the path. `/v1` is then served for at least another year. An
operation leaves this list only if it is [deprecated](#what-is-deprecated); it then works until its `Sunset`.

`HEAD` is as stable as the `GET` of its path. `/livez` and `/readyz` are promised too. `/session` and
`/.well-known` serve the page and logins, and may change. Protocols of
[registries](../tutorials/registry.md) follow their clients.

The command line (`--json`, exit codes) and the [Python API](python/library.md) follow Semantic Versioning: before 1.0 a
minor release may change them, and the changelog says so. Texts that commands print may change in any release.

## What may change

These $experimental_count operations are experimental (`"x-stability": "experimental"` in the OpenAPI document). A minor
release may change or remove them, which may break programs that call them; the changelog says so.

| operation | result |
|---|---|
$experimental

Apart from them, these may change in any release: the text of `detail` and `title`, the order of JSON members, the form
of cursors and entity tags, web pages, and names of metrics that the documentation does not list.

## What is deprecated

| operation | since | use |
|---|---|---|
$deprecated

The OpenAPI document has `deprecated` for them. Their answers have `Deprecation` with that date (RFC 9745) and a `Link`
with `rel="successor-version"`. Before an operation is removed, its answers have `Sunset` (RFC 8594) for six months.

## Computed views and caches

Files, chunks, `/merge`, `/metadata` and plain tensors are bytes of the upload: under an id they are the same in all
releases, and caches may keep them for a year. A later release may compute other views in another way: JSON, rendered
text, and files that the service composes. They then have another entity tag, and caches keep them for an hour at most.
During an upgrade, ranges of one such view may be of two releases: send `If-Range`.

## Reserved names

- Tags may have any valid name, also that of a part of a path, such as `register`: all operations reach them.
- Owners of repositories cannot be called $owners.
""")


def problems_page() -> str:
    """Return docs/reference/problems.md."""
    rows = (f"| {each.status} | `{each.type}` | {each.title} | {each.advice} |" for each in PROBLEMS)
    return _PROBLEMS.substitute(problems="\n".join(rows), errors="\n".join(map(_error_row, WITH_SLUG)))


def configuration_page() -> str:
    """Return docs/reference/configuration.md."""
    rows = (
        f"| `{environment_name(name)}` | {_default(name, field.default)} | {field.description} |"
        for name, field in Settings.model_fields.items()
    )
    return _CONFIGURATION.substitute(settings="\n".join(rows))


def versions_page() -> str:
    """Return docs/reference/versions.md."""
    rows: dict[str, list[str]] = {"promised": [], "experimental": [], "deprecated": []}
    for path, operations in create_app(Settings(storage="memory://")).openapi()["paths"].items():
        for method, said in operations.items():
            call = f"| `{method.upper()} {path}` |"
            if not path.startswith("/v1/") or method == "head":
                continue
            if old := said.get("x-deprecated"):
                rows["deprecated"].append(f"{call} {old['since']} | `{old['successor']}` |")
            else:
                rows["experimental" if "x-stability" in said else "promised"].append(f"{call} {said['summary']} |")
    counts = {f"{kind}_count": len(listed) for kind, listed in rows.items()}
    owners = ", ".join(f"`{name}`" for name in sorted(TAKEN))
    return _VERSIONS.substitute({kind: "\n".join(listed) for kind, listed in rows.items()}, **counts, owners=owners)


def _error_row(kind: type[ProtosliceError]) -> str:
    return f"| `{kind.__name__}` | {_brief(kind.slug)} | {_brief(kind.upload_slug)} |"


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
    "reference/versions.md": versions_page,
}
"""Functions that make the pages, by path below docs/."""


def main(folder: str) -> None:
    """Write the pages."""
    for name, page in PAGES.items():
        Path(folder, name).write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
