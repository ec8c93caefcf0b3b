"""The command `sign`, and the commands of the groups `token`, `space` and `auth`."""

from __future__ import annotations

import asyncio
import re
import shlex
import sys
import time
from collections.abc import Callable
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from protoslice.cli.errors import ExitCode
from protoslice.cli.models.remote import connect
from protoslice.cli.options import DatabaseUrl, Json, SpaceUrl, StorageUri, open_service, service_settings
from protoslice.cli.tables import agreed, counted, exact_size, note, print_items, print_json, print_pairs, say
from protoslice.errors import IntegrityError, InvalidInput, NotFound, Unsupported
from protoslice.references import service_url, store_of
from protoslice.sizes import format_size, parse_size

if TYPE_CHECKING:
    from protoslice.server.settings import Settings

_LONGEST_TOKEN: Final = 64 << 10
_NO_BUCKET: Final = re.compile(r"^xn--|-$|--x-s3$|-s3alias$|--ol-s3$")
"""Space names that S3 clients refuse as bucket names."""
_S3_KEYS: Final = {
    "access_key_id": ("AccessKeyId", "AWS_ACCESS_KEY_ID"),
    "secret_access_key": ("SecretAccessKey", "AWS_SECRET_ACCESS_KEY"),
    "session_token": ("SessionToken", "AWS_SESSION_TOKEN"),
    "expires": ("Expiration", ""),
}
"""For each member of the service's response: its name for `credential_process`, and its environment variable."""
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}

Everywhere = Annotated[
    bool,
    typer.Option("--every-space", help="For tokens that are valid in all spaces; needs an admin token for all spaces."),
]


def create_token(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the token, shown in lists and logs.")],
    scope: Annotated[
        list[str], typer.Option(metavar="SCOPE", help="read, write, delete, register, schemas or admin; repeatable.")
    ],
    tag: Annotated[
        list[str] | None,
        typer.Option(metavar="PATTERN", help="Pattern of tags that the token may set, such as ci-*; repeatable."),
    ] = None,
    expires: Annotated[str | None, typer.Option(metavar="TIME", help="Lifetime, such as 90d, 12h or 30m.")] = None,
    every_space: Everywhere = False,
    url: SpaceUrl = None,
    storage: Annotated[
        str | None,
        typer.Option(metavar="URI", help="Create the token directly in this storage, if the admin token is lost."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Create a token for a space, and print it (only once).

    Example: protoslice token create ci --url http://models.example/spaces/team --scope read --scope write
    """
    seconds = None if expires is None else _seconds(expires)
    if storage is not None:
        if not every_space:
            raise InvalidInput(
                "With --storage, only a token for all spaces can be created: add --every-space, or leave out --storage"
            )
        print(asyncio.run(_made_in(storage, name, scope, tag or [], seconds)))
        return
    with connect(service_url(url)) as client:
        made = client.create_token(name, scope, tags=tag or (), expires_seconds=seconds, every_space=every_space)
    if as_json:
        print_json(made)
        return
    print(made.token)
    note(f"Token {made.id} for {made.space} (shown only once)")


def sign(
    store: Annotated[str, typer.Argument(metavar="STORE", help="The store: http://HOST/v1/stores/TAG, or @TAG.")],
    view: Annotated[
        str,
        typer.Argument(
            metavar="VIEW",
            help="View to share, such as files/model.onnx or safetensors; default: the store's metadata.",
        ),
    ] = "",
    time: Annotated[str, typer.Option("--for", metavar="TIME", help="Lifetime, such as 30m, 12h or 7d.")] = "1h",
    url: SpaceUrl = None,
) -> None:
    """Create a URL that needs no token for a limited time.

    Example: protoslice sign @resnet50:4 files/model.onnx --for 12h
    """
    address = store_of(store, url)
    seconds = _seconds(time)
    with connect(address.service) as client:
        try:
            print(client.sign(address.ref, view, expires_seconds=seconds))
        except Unsupported:
            if not client.is_open():
                raise
            print(client.url_of(address.ref, view))
            note("This service is open: share the plain URL, which needs no token and does not expire.")


def s3_keys(
    credential_process: Annotated[
        bool, typer.Option("--credential-process", help="Print the JSON that AWS's `credential_process` reads.")
    ] = False,
    url: SpaceUrl = None,
    as_json: Json = False,
) -> None:
    """Print S3 keys with the read access and the expiry time of your token.

    Example: eval $(protoslice token s3 --url http://models.example)
    """
    with connect(service_url(url)) as client:
        keys = client._connection.call("POST", "/v1/s3-keys").json()  # the client has no method for this call
    if not isinstance(keys, dict) or not {type(keys.get(name)) for name in _S3_KEYS} <= {str, NoneType}:
        raise IntegrityError("The service's response has no valid S3 keys")
    if as_json:
        print_json(keys)
    elif credential_process:
        members = {member: keys.get(name) for name, (member, _) in _S3_KEYS.items()}
        print_json({"Version": 1, **{member: value for member, value in members.items() if value is not None}})
    else:
        for name, (_, variable) in _S3_KEYS.items():
            if variable and keys.get(name) is not None:
                print(f"export {variable}={shlex.quote(keys[name])}")


def ls_tokens(every_space: Everywhere = False, url: SpaceUrl = None, as_json: Json = False) -> None:
    """List the tokens of a space.

    Example: protoslice token ls --url http://models.example/spaces/team
    """
    with connect(service_url(url)) as client:
        columns: dict[str, Callable[[Any], object]] = {
            "id": lambda token: token.id,
            "name": lambda token: token.name,
            "scopes": lambda token: token.scopes,
            "tags": lambda token: token.tags,
            "created": lambda token: token.created,
            "used": lambda token: token.used or "never",
            "ends": lambda token: token.expires or "never",
        }
        print_items(client.tokens(every_space=every_space), columns, as_json=as_json)


def revoke_token(
    token: Annotated[str, typer.Argument(metavar="ID", help="Token id, as shown by `token ls`.")],
    every_space: Everywhere = False,
    url: SpaceUrl = None,
) -> None:
    """Revoke a token. All replicas refuse the token within ten seconds.

    Example: protoslice token revoke Ngj9oJrTNp --url http://models.example/spaces/team
    """
    with connect(service_url(url)) as client:
        client.revoke_token(token, every_space=every_space)


def rotate_token(
    token: Annotated[str, typer.Argument(metavar="ID", help="Token id, as shown by `token ls`.")],
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep the old token valid until it is revoked or expires.")
    ] = False,
    every_space: Everywhere = False,
    url: SpaceUrl = None,
    as_json: Json = False,
) -> None:
    """Replace a token with a new one, and print the new token (only once).

    The new token has the same name, scopes, tags and lifetime as the old one. The old token is revoked after the new
    token is printed.

    Example: protoslice token rotate Ngj9oJrTNp --url http://models.example/spaces/team
    """
    with connect(service_url(url)) as client:
        old = next((each for each in client.tokens(every_space=every_space) if each.id == token), None)
        if old is None:
            raise NotFound(f"No token here has the id {token!r}: run `protoslice token ls` for a list")
        seconds = None if old.expires is None else max(1, round((old.expires - old.created).total_seconds()))
        made = client.create_token(
            old.name, old.scopes, tags=old.tags, expires_seconds=seconds, every_space=every_space
        )
        if as_json:
            print_json(made)
        else:
            print(made.token, flush=True)
            note(f"Token {made.id} for {made.space} (shown only once) replaces {old.id}")
        if not keep:
            client.revoke_token(old.id, every_space=every_space)


def create_space(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Lower-case letters, digits and '-', at most 63 characters.")
    ],
    url: SpaceUrl = None,
) -> None:
    """Create a space with its own stores, tags and schemas, and print its URL.

    Example: protoslice space create team --url http://models.example
    """
    with connect(service_url(url)) as client:
        client.create_space(name)
        say(f"{client.url}/spaces/{name}")
    if _NO_BUCKET.search(name) or len(name) < 3:
        note("Some S3 clients refuse this bucket name: use at least three characters, and no ending that AWS reserves")


def remove_space(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the space.")],
    with_stores: Annotated[bool, typer.Option("--with-stores", help="Remove all stores and names in it too.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Remove stores without asking.")] = False,
    url: SpaceUrl = None,
) -> None:
    """Remove an empty space, or a space with all its content.

    With --with-stores, the command prints the number of stores, and you have to confirm the removal. The content of the
    space is deleted a day later. Until then, `space restore` can restore the space and its content.

    Example: protoslice space rm team --url http://models.example
    """
    with connect(service_url(url)) as client:
        if with_stores and not yes:
            found = next((each for each in client.space_usage() if each.name == name), None)
            if found is None:
                raise NotFound(f"No space {name!r}")
            held = f"{counted(found.stores, 'store')} ({format_size(found.stored_bytes)})"
            if not agreed(
                f"remove space {name} with {held} and all names?",
                f"Space {name} would be removed with {held} and all names: pass --yes to remove it",
            ):
                note("nothing was removed")
                return
        client.remove_space(name, with_stores=with_stores)
    say(f"Removed space {name}.")
    if with_stores:
        note(
            "Undo within a day, with the PROTOSLICE_STORAGE of the service as URI: "
            f"protoslice space restore {name} --storage URI"
        )


def restore_space(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the removed space.")],
    storage: StorageUri = None,
    database: DatabaseUrl = None,
) -> None:
    """Restore a removed space and its content in the database of a service.

    Like `serve`, this command reads PROTOSLICE_STORAGE, PROTOSLICE_STORAGE_OPTIONS and PROTOSLICE_DATABASE.

    Example: protoslice space restore team --storage /var/lib/protoslice
    """
    if not asyncio.run(_restored(service_settings(storage=storage, database=database), name)):
        raise NotFound(f"No removed space has the name {name!r}, or it can no longer be restored")
    say(f"Restored space {name}.")


def ls_spaces(url: SpaceUrl = None, as_json: Json = False) -> None:
    """List the spaces of a service, with their usage and quotas.

    Example: protoslice space ls --url http://models.example
    """
    with connect(service_url(url)) as client:
        columns: dict[str, Callable[[Any], object]] = {
            "space": lambda space: space.name,
            "stored": lambda space: _of(
                format_size(space.stored_bytes), space.quota_bytes and format_size(space.quota_bytes)
            ),
            "stores": lambda space: _of(str(space.stores), space.quota_stores),
        }
        print_items(client.space_usage(), columns, as_json=as_json)


def set_space(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the space; `default` is the one at /v1.")],
    stored_bytes: Annotated[
        str | None, typer.Option("--bytes", metavar="SIZE", help="Maximum stored bytes, such as 500GB; 0 for no limit.")
    ] = None,
    stores: Annotated[int | None, typer.Option(min=0, help="Maximum number of stores; 0 for no limit.")] = None,
    open_uploads: Annotated[
        int | None, typer.Option(min=0, help="Maximum number of unfinished resumable uploads; 0 for no limit.")
    ] = None,
    requests: Annotated[
        int | None, typer.Option(min=0, help="Maximum concurrent requests per replica; 0 for no limit.")
    ] = None,
    reset: Annotated[bool, typer.Option("--reset", help="Reset all other limits to the service's defaults.")] = False,
    url: SpaceUrl = None,
    as_json: Json = False,
) -> None:
    """Set limits of a space, and print all its limits.

    If the space does not exist, it is created.

    Example: protoslice space set team --bytes 500GB --stores 1000 --url http://models.example
    """
    most = None if stored_bytes is None else parse_size(stored_bytes)
    with connect(service_url(url)) as client:
        if not reset:
            client.create_space(name)
        change = client.set_quota if reset else client.change_quota
        found = change(name, stored_bytes=most, stores=stores, open_uploads=open_uploads, requests=requests)
    if as_json:
        print_json(found)
        return
    limits = [
        ("bytes", found.quota_bytes and exact_size(found.quota_bytes)),
        ("stores", found.quota_stores),
        ("open uploads", found.quota_open_uploads),
        ("requests", found.quota_requests),
    ]
    print_pairs([("space", name), *((what, str(limit or "no limit")) for what, limit in limits)])


async def _restored(settings: Settings, name: str) -> bool:
    from protoslice.catalog.spaces import SpaceTable

    async with open_service(settings, audited=True) as (_, database):
        return await SpaceTable(database).restore(name)


async def _made_in(uri: str, name: str, scopes: list[str], tags: list[str], seconds: int | None) -> str:
    settings = service_settings(storage=uri)
    from protoslice.server.auth.tokens import Tokens

    async with open_service(settings, audited=True) as (_, database):
        until = None if seconds is None else time.time() + seconds
        token, _ = await Tokens(database).create(name, None, scopes, tags=tags, expires=until)
    return token.text


def explain(
    token: Annotated[
        str, typer.Argument(metavar="TOKEN", help="A token or a JWT; use - to read it from standard input.")
    ],
    method: Annotated[str, typer.Argument(metavar="METHOD", help="HTTP method, such as GET.")],
    path: Annotated[str, typer.Argument(metavar="PATH", help="Path of the request, with its query.")],
    storage: StorageUri = None,
    as_json: Json = False,
) -> None:
    """Explain what a token or JWT grants, and whether it allows a request.

    The command uses the service's settings, such as PROTOSLICE_ISSUERS. The exit code is 6 if the service would refuse
    the request.

    Example: protoslice auth explain - GET /spaces/team/v1/stores < token
    """
    settings = service_settings(storage=storage)
    from protoslice.server.app import create_app
    from protoslice.server.auth.explain import explain as explained

    text = sys.stdin.read(_LONGEST_TOKEN).strip() if token == "-" else token
    found = asyncio.run(explained(settings, text, create_app(settings).asked(method.upper(), path)))
    if as_json:
        print_json(found)
    else:
        say(f"{found.caller or 'nobody'}: {found.decision}")
        for reason in found.reasons:
            say(f"  {reason}")
    if found.decision != "allowed":
        raise typer.Exit(ExitCode.REFUSED)


def _of(used: str, most: str | int) -> str:
    """Return the used amount as text, followed by the limit if there is one."""
    return f"{used} of {most}" if most else used


def _seconds(text: str) -> int:
    found = re.fullmatch(r"([0-9]{1,9})([smhd])", text)
    if found is None:
        raise InvalidInput(f"Invalid time {text!r}: use a number and s, m, h or d, such as 90d")
    return int(found[1]) * _SECONDS[found[2]]
