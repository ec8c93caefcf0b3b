"""Verbs `login` and `logout`: the token of a service, kept for the verbs that ask it."""

from __future__ import annotations

import sys
from getpass import getpass
from typing import Annotated, Final

import typer

from protoslice.cli.models.addresses import header_of, origin_of, service_url
from protoslice.cli.models.credentials import credentials_file, end_of, forget_token, keep_token
from protoslice.cli.models.remote import client_of
from protoslice.cli.terminal.show import note, utc
from protoslice.errors import InvalidInput, NotFound, StorageDenied, UnknownCaller

_LONGEST: Final = 1 << 14
"""Characters of a token; JWTs of large companies have thousands."""

Of = Annotated[
    str | None, typer.Argument(metavar="[URL]", help="The service, as http://HOST:PORT.", show_default="PROTOSLICE_URL")
]


def login(url: Of = None) -> None:
    """Keep the token of a service, for all verbs that ask it.

    Asks for the token, or reads it from standard input; an argument would be seen by everybody on the machine.

    Example: protoslice login https://models.example < token
    """
    service = service_url(url)
    token = (getpass(f"Token for {service}: ") if sys.stdin.isatty() else sys.stdin.read(_LONGEST)).strip()
    if not token:
        raise InvalidInput("a token is wanted on standard input: protoslice login URL < token")
    with client_of(service, header=header_of(f"Bearer {token}")) as client:
        try:
            next(client.stores(), None)
        except UnknownCaller:
            raise
        except (StorageDenied, NotFound):
            pass  # the service knows whom the token names, who may do something else there
    keep_token(origin_of(service), token)
    end = end_of(token)
    until = "" if end is None else f", and ends at {utc(end)}"
    note(f"the token for {origin_of(service)} is kept in {credentials_file()}{until}")


def logout(url: Of = None) -> None:
    """Forget the kept token of a service, which goes on to hold.

    Example: protoslice logout https://models.example
    """
    origin = origin_of(service_url(url))
    if not forget_token(origin):
        raise NotFound(f"no token is kept for {origin}")
    note(f"the token for {origin} is forgotten here; protoslice token revoke ends it for everybody")
