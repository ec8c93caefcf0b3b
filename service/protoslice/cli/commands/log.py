"""The verb `log`."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated, Any

import typer

from protoslice.cli.models.remote import client_of, first_of
from protoslice.cli.options import Json, Limit, ServiceUrl, Since, Until
from protoslice.cli.tables import note, print_json, print_table, utc
from protoslice.references import service_url


def log(  # noqa: PLR0913 - each is an option
    subject: Annotated[
        str | None, typer.Argument(metavar="SUBJECT", help="Only changes of this store, by its id, or of this name.")
    ] = None,
    url: ServiceUrl = None,
    who: Annotated[str | None, typer.Option(metavar="WHO", help="Only changes by this token or account.")] = None,
    what: Annotated[
        str | None, typer.Option(metavar="WHAT", help="Only changes of this kind, such as store.removed.")
    ] = None,
    since: Since = None,
    until: Until = None,
    every_space: Annotated[
        bool, typer.Option("--every-space", help="Changes that concern all spaces: of tokens and spaces.")
    ] = False,
    limit: Limit = 100,
    as_json: Json = False,
) -> None:
    """List changes and who made them, newest first.

    Example: protoslice log resnet:3 --since 2026-11-01
    """
    with client_of(service_url(url)) as client:
        changes = client.changes(every_space=every_space, subject=subject, who=who, what=what, since=since, until=until)
        found, more = first_of(changes, limit)
    if as_json:
        print_json([asdict(each) | {"at": utc(each.at)} for each in found])
    else:
        print_table(["time", "who", "what", "subject", "detail"], [_row(each) for each in found])
    if more:
        note(f"only the first {limit} are shown; use --limit 0 for all")


def _row(change: Any) -> list[str]:
    subject = change.subject[:12] if change.what.startswith("store.") else change.subject
    detail = {name: value for name, value in change.detail.items() if value not in ("", change.subject, None, [])}
    shown = " ".join(f"{name}={_short(value)}" for name, value in detail.items())
    who = f"{change.who} ({change.who_id})" if change.who_id else change.who or "-"
    return [f"{change.at:%Y-%m-%d %H:%M:%S}", who, change.what, subject, shown]


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text[:12] if len(text) == 64 else text
