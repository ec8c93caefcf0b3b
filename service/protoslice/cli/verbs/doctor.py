"""The verb `doctor`: what is wrong with the way to a service."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Final
from urllib.parse import quote

import typer

from protoslice.cli.models.addresses import service_url
from protoslice.cli.models.remote import client_of
from protoslice.cli.options import Json
from protoslice.cli.probing.patient import Patient
from protoslice.cli.probing.probes import PROBES, Probe
from protoslice.cli.terminal.show import coloured, print_json, print_wrapped, say
from protoslice.errors import InvalidInput

__all__ = ["doctor"]

NOT_WELL: Final = 3
_SIZE: Final = 256 << 10


def doctor(
    url: Annotated[str | None, typer.Argument(metavar="URL", help="The service, by the way that is in doubt.")] = None,
    store: Annotated[
        str | None, typer.Option(help="Read this store, a tag or an id, and push none to try things on.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Find out what a proxy on the way to a service does to uploads, ranges, entity tags, binaries and paths.

    A small store is pushed for it under a tag of its own, and removed.

    Example: protoslice doctor https://models.example.org
    """
    with _patient(service_url(url), store) as patient:
        checks = [_checked(probe, patient, quiet=as_json) for probe in PROBES]
    bad = sum(check["found"] is not None for check in checks)
    if as_json:
        print_json({"url": patient.url, "well": not bad, "checks": checks})
    elif bad:
        say()
        say(f"{bad} of {len(checks)} are not as they should be between here and {patient.url}")
    else:
        say()
        say(f"all is well between here and {patient.url}")
    if bad:
        raise typer.Exit(NOT_WELL)


def _checked(probe: Probe, patient: Patient, *, quiet: bool) -> dict[str, str | None]:
    """What a probe finds; told at once, as it may take seconds."""
    found = probe.found(patient)
    if not quiet:
        print(f"{coloured('well', 'green') if found is None else coloured('BAD ', 'red')}  {probe.promise}", flush=True)
        for name, text in (("", found), ("nginx: ", probe.advice)):
            if found is not None:
                print_wrapped(f"{name}{text}", indent=6)
    return {"check": probe.promise, "found": found, "advice": probe.advice if found is not None else None}


@contextmanager
def _patient(url: str, ref: str | None) -> Iterator[Patient]:
    with client_of(url) as client:
        if ref is not None:
            yield _of(client, client.store(ref), None)
            return
        # A field of bytes: unlike any other, so that nobody else's store is removed in the end; easily compressed.
        content = b"\x82\x80\x04" + _varint(_SIZE) + secrets.token_hex(16).encode() + bytes(_SIZE - 32)
        tag = f"doctor-{secrets.token_hex(6)}"
        made = client.push(content, filename="doctor.pb", tags=[tag]).store
        try:
            yield _of(client, made, content)
        finally:
            client.delete(made.id)


def _of(client: Any, store: Any, content: bytes | None) -> Patient:
    file = next((each for each in store.files if each.path == store.root), None)
    if file is None or not file.size:
        raise InvalidInput(f"the store {store.id} holds nothing to try ranges on")
    return Patient(client.url, f"/v1/stores/{store.id}", f"/files/{quote(file.path)}", file.size, content)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])
