"""The verb `auth explain`: what a token or JWT may do, and why."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import asdict
from typing import Annotated

import typer

from protoslice.cli.errors import ExitCode
from protoslice.cli.options import Json, StorageUri
from protoslice.cli.service import service_settings
from protoslice.cli.tables import print_json, say

_LONGEST = 64 << 10


def explain(
    token: Annotated[
        str, typer.Argument(metavar="TOKEN", help="A token or a JWT; use - to read it from standard input.")
    ],
    method: Annotated[str, typer.Argument(metavar="METHOD", help="HTTP method, such as GET.")],
    path: Annotated[str, typer.Argument(metavar="PATH", help="Path of the request, with its query.")],
    storage: StorageUri = None,
    as_json: Json = False,
) -> None:
    """Explain what a token or JWT grants, and whether a request would be allowed.

    Uses the same settings as the service, such as PROTOSLICE_ISSUERS. Exits with 6 if the request would be refused.

    Example: protoslice auth explain - GET /spaces/team/v1/stores < token
    """
    settings = service_settings(storage=storage)
    from protoslice.server.app import create_app
    from protoslice.server.auth.explain import explain as explained

    text = sys.stdin.read(_LONGEST).strip() if token == "-" else token
    found = asyncio.run(explained(settings, text, create_app(settings).asked(method.upper(), path)))
    if as_json:
        print_json(asdict(found))
    else:
        say(f"{found.caller or 'nobody'}: {found.decision}")
        for reason in found.reasons:
            say(f"  {reason}")
    if found.decision != "allowed":
        raise typer.Exit(ExitCode.REFUSED)
