"""The command `doctor`, which checks the proxy in front of a service."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Final
from urllib.parse import quote

import typer

from protoslice import varints
from protoslice.cli.commands.probes import CHECKS, Check, Inconclusive, Target
from protoslice.cli.errors import ExitCode
from protoslice.cli.models.remote import connect
from protoslice.cli.options import Json
from protoslice.cli.tables import coloured, print_json, print_wrapped, say
from protoslice.errors import InvalidInput
from protoslice.references import ref_on, service_url

_SIZE: Final = 256 << 10
_LARGE: Final = 16 << 20
"""Number of elements of a test tensor, which is larger than the socket buffers and the memory buffers of a proxy."""


def doctor(
    url: Annotated[
        str | None, typer.Argument(metavar="URL", help="URL of the service, as seen through the proxy.")
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(metavar="STORE", help="Test with this store instead of pushing one."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Check a reverse proxy in front of a service for problems.

    The command pushes a small store, and removes it afterwards. With this store, the command tests uploads, ranges,
    timeouts, entity tags, compression and paths.

    Example: protoslice doctor https://models.example.org
    """
    try:
        from protoslice.server.settings import check_environment
    except ImportError:
        pass  # the server may not be installed
    else:
        check_environment()
    with _target(service_url(url), store) as target:
        checks = [_run(check, target, quiet=as_json) for check in CHECKS]
    bad = sum(check["found"] is not None for check in checks)
    if as_json:
        print_json({"url": target.url, "well": not bad, "checks": checks})
    elif bad:
        say()
        say(f"{bad} of {len(checks)} checks failed for {target.url}")
    else:
        say()
        say(f"All checks passed for {target.url}")
    if bad:
        raise typer.Exit(ExitCode.FAILED)


def _run(check: Check, target: Target, *, quiet: bool) -> dict[str, str | None]:
    """Run a check and return its result. Unless `quiet` is set, print the result at once: a check may take seconds."""
    found = untold = None
    try:
        found = check.fault(target)
    except Inconclusive as error:
        untold = str(error)
    advice = None if found is None else check.fix
    if not quiet:
        mark = coloured("?   ", "dim") if untold else coloured("BAD ", "red") if found else coloured("OK  ", "green")
        print(f"{mark}  {check.title}", flush=True)
        for name, text in (("", untold), ("", found), ("nginx: ", advice)):
            if text is not None:
                print_wrapped(f"{name}{text}", indent=6)
    return {"check": check.title, "found": found, "advice": advice, "untold": untold}


@contextmanager
def _target(url: str, ref: str | None) -> Iterator[Target]:
    """Yield the store `ref` as the target of the checks. Without `ref`, yield a new store, and remove it at the end."""
    with connect(url) as client:
        if ref is not None:
            yield _of(client, client.store(ref_on(url, ref), names=False), None)
            return
        count = _LARGE + secrets.randbelow(_LARGE // 16)
        content, tag = _content(count), f"doctor-{secrets.token_hex(6)}"
        made = client.push(content, filename="doctor.pb", type="tensorflow.TensorProto", tags=[tag]).store
        try:
            yield _of(client, made, content, 4 * count)
        finally:
            client.remove(made.id, force=[tag])


def _content(count: int) -> bytes:
    """Return a serialized tensor of `count` equal numbers, of which only the first is stored.

    An unknown field of 256 KiB follows. It begins with a random text, so that no other client has the same store. The
    rest of the field is zeros, which compress well.
    """
    size = b"\x08" + varints.write(count)
    shape = b"\x12" + varints.write(len(size)) + size
    tensor = b"\x08\x01\x12" + varints.write(len(shape)) + shape + b"\x2a\x04" + bytes(4)
    return tensor + b"\x82\x80\x04" + varints.write(_SIZE) + secrets.token_hex(16).encode() + bytes(_SIZE - 32)


def _of(client: Any, store: Any, content: bytes | None, large: int | None = None) -> Target:
    largest = max(store.files, key=lambda each: each.size, default=None)
    file = next((each for each in store.files if each.path == store.root), largest)
    if file is None or not file.size:
        raise InvalidInput(f"Store {store.id} has no content to test ranges with: choose another store")
    path = f"/v1/stores/{store.id}"
    long_answer = None if large is None else (f"{path}/tensors/tensor", large)
    return Target(client.url, path, f"/files/{quote(file.path)}", file.size, content, long_answer)
