"""Every way to create a store by HTTP, for tests that apply to all of them."""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx
from tests.support.tus import BODY, metadata

from protoslice.recipes import MEDIA_TYPE, RecipeWriter

Files = Mapping[str, bytes]
TUS: Final = {"tus-resumable": "1.0.0", "content-type": BODY}


class Site(NamedTuple):
    """A service, and a folder whose files may be registered."""

    client: httpx.Client
    folder: Path


Way = Callable[..., httpx.Response]
"""A function that sends files with the options of a new store, named as in JSON; it returns the last response."""


def query(**options: Any) -> dict[str, Any]:
    """Return options as parameters of a query; there is one parameter for each tag and rule."""
    return {{"tags": "tag", "rules": "rule"}.get(name, name): value for name, value in options.items()}


def raw(site: Site, files: Files, **options: Any) -> httpx.Response:
    ((path, data),) = files.items()
    return site.client.put("/v1/stores", params=query(filename=path, **options), content=data)


def form(site: Site, files: Files, **options: Any) -> httpx.Response:
    return site.client.post("/v1/stores", params=query(**options), files=[("file", each) for each in files.items()])


def tar_of(files: Files) -> bytes:
    """Return a tar archive of files."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for path, data in files.items():
            entry = tarfile.TarInfo(path)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return out.getvalue()


def tar(site: Site, files: Files, **options: Any) -> httpx.Response:
    headers = {"content-type": "application/x-tar"}
    return site.client.post("/v1/stores", params=query(**options), content=tar_of(files), headers=headers)


def recipe_of(files: Files) -> bytes:
    """Return a recipe that contains all bytes of files."""
    writer, body = RecipeWriter(), b""
    for path, data in files.items():
        body += writer.file(path) + (writer.literal(len(data)) + data if data else b"")
        body += writer.end(len(data), hashlib.sha256(data).hexdigest())
    return body + writer.done()


def recipe(site: Site, files: Files, **options: Any) -> httpx.Response:
    headers = {"content-type": MEDIA_TYPE}
    return site.client.post("/v1/stores", params=query(**options), content=recipe_of(files), headers=headers)


def registered(site: Site, files: Files, **options: Any) -> httpx.Response:
    places = {}
    for path, data in files.items():
        place = site.folder / hashlib.sha256(data).hexdigest()
        place.write_bytes(data)
        places[path] = place.as_uri()
    return site.client.post("/v1/stores/register", json={"files": places, **options})


def tus(site: Site, files: Files, **options: Any) -> httpx.Response:
    """Upload a file with its options in Upload-Metadata; the response has only headers."""
    ((path, data),) = files.items()
    joined = {"tags": " ", "rules": "\n"}
    words = {
        name: joined[name].join(value) if name in joined else str(value).lower() if isinstance(value, bool) else value
        for name, value in options.items()
    }
    headers = {"upload-length": str(len(data)), "upload-metadata": metadata(**query(filename=path, **words))}
    return site.client.post("/v1/uploads", content=data, headers=TUS | headers)


def tus_by_query(site: Site, files: Files, **options: Any) -> httpx.Response:
    ((path, data),) = files.items()
    headers = TUS | {"upload-length": str(len(data))}
    return site.client.post("/v1/uploads", params=query(filename=path, **options), content=data, headers=headers)


def part_of(site: Site, data: bytes) -> str:
    """Return the URL of a finished upload for `assemble`."""
    headers = TUS | {"upload-length": str(len(data)), "upload-concat": "partial"}
    return site.client.post("/v1/uploads", content=data, headers=headers).raise_for_status().headers["location"]


def assembled(site: Site, files: Files, **options: Any) -> httpx.Response:
    uploads = {path: part_of(site, data) for path, data in files.items()}
    return site.client.post("/v1/stores/assemble", json={"uploads": uploads, **options})


def assembled_recipe(site: Site, files: Files, **options: Any) -> httpx.Response:
    return site.client.post("/v1/stores/assemble", json={"recipe": part_of(site, recipe_of(files)), **options})


def assembled_archive(site: Site, files: Files, **options: Any) -> httpx.Response:
    return site.client.post("/v1/stores/assemble", json={"archive": part_of(site, tar_of(files)), **options})


OF_SEVERAL: Final = (form, tar, recipe, registered, assembled, assembled_recipe, assembled_archive)
WAYS: Final = (raw, tus, tus_by_query, *OF_SEVERAL)


def store_of(site: Site, answer: httpx.Response) -> dict[str, Any]:
    """Return the store that a response names; raise an error if it names none."""
    assert answer.is_success, answer.text
    place = f"/v1/stores/{answer.headers.get('protoslice-store') or answer.json()['id']}"
    found: dict[str, Any] = site.client.get(place).raise_for_status().json()
    return found
