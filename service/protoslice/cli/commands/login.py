"""The commands `login` and `logout`, which save and delete the token of a service."""

from __future__ import annotations

import sys
from getpass import getpass
from typing import Annotated, Final

import typer

from protoslice.cli.models.remote import connect
from protoslice.cli.tables import note, utc
from protoslice.credentials import SavedToken, credentials_file, end_of, forget_token, others_that_accept, save_token
from protoslice.errors import InvalidInput, NotFound, StorageDenied, UnknownCaller, Unsupported
from protoslice.facts import SignInTerms
from protoslice.references import header_of, origin_of, service_url

_LONGEST: Final = 1 << 14
"""Maximum number of characters of a token. A JWT may have thousands of characters."""

Of = Annotated[
    str | None, typer.Argument(metavar="URL", help="The service, as http://HOST:PORT.", show_default="PROTOSLICE_URL")
]


def login(
    url: Of = None,
    device: Annotated[
        bool | None,
        typer.Option("--device/--token", help="Sign in with a browser (--device) or a token.", show_default=False),
    ] = None,
) -> None:
    """Sign in to a service.

    On a terminal, you sign in with a browser if the service has an identity provider. Otherwise, you are prompted for
    a token. Without a terminal, the command reads a token from standard input, so that the token is not in the process
    list.

    Example: protoslice login https://models.example
    """
    service = service_url(url)
    terms = _terms(service) if device or (device is None and sys.stdin.isatty()) else None
    if device and terms is None:
        raise Unsupported(f"{service} has no identity provider to sign in with: use a token instead")
    saved = SavedToken(_typed(service)) if terms is None else _signed_in(service, terms)
    _try(service, saved.token)
    save_token(origin_of(service), saved)
    end = end_of(saved.token)
    until = "" if end is None else f", expires {utc(end)}"
    until += "" if saved.grant is None else "; renewed automatically"
    note(f"Token for {origin_of(service)} saved in {credentials_file()}{until}")


def _typed(service: str) -> str:
    token = (getpass(f"Token for {service}: ") if sys.stdin.isatty() else sys.stdin.read(_LONGEST)).strip()
    if not token:
        raise InvalidInput("No token given: pass it on standard input, as in protoslice login URL < token")
    return token


def _terms(service: str) -> SignInTerms | None:
    """Return the identity provider at which people sign in to a service, or None. The request needs no token."""
    with connect(service, header={}) as client:
        found: SignInTerms | None = client.sign_in_terms()
        return found


def _signed_in(service: str, terms: SignInTerms) -> SavedToken:
    """Let the user sign in with a browser, and return the id token.

    The token is accepted by every service that uses the same issuer and client id. A malicious service could name the
    issuer and client id of another service, and use the token there as this user. Therefore, no service gets a token
    that another known origin accepts, unless the user agrees.
    """
    from protoslice.sign_in import DevicePrompt, sign_in

    origin, client = origin_of(service), f"client {terms.client_id!r} of {terms.issuer}"
    if others := others_that_accept(terms.issuer, terms.client_id, origin):
        risk = f"{origin} uses the same {client} as {', '.join(others)}: its operator could act there in your name"
        if not sys.stdin.isatty():
            raise StorageDenied(
                f"{risk}. Use a token, or run protoslice logout {others[0]} first if you trust {origin}"
            )
        note(risk)
        if not typer.confirm("Sign in anyway?", err=True):
            raise StorageDenied(f"Not signed in to {origin}")

    def show(prompt: DevicePrompt) -> None:
        note(f"{origin} will receive your name. It can use every service that accepts the {client} in your name")
        note(
            f"Open {prompt.place} and enter the code {prompt.code}"
            + (f", or open {prompt.whole}" if prompt.whole else "")
        )

    return sign_in(terms, show, resource=origin)


def _try(service: str, token: str) -> None:
    """Check a token with a request, and raise `UnknownCaller` if the service does not accept the token."""
    with connect(service, header=header_of(f"Bearer {token}")) as client:
        try:
            next(client.stores(), None)
        except UnknownCaller:
            raise
        except (StorageDenied, NotFound):
            pass  # the service accepts the token, although the token may not list stores


def logout(url: Of = None) -> None:
    """Delete the saved token of a service, but do not revoke it.

    Example: protoslice logout https://models.example
    """
    origin = origin_of(service_url(url))
    if not forget_token(origin):
        raise NotFound(f"No token is saved for {origin}")
    note(f"Token for {origin} deleted from this machine. It stays valid; to revoke it, use protoslice token revoke")
