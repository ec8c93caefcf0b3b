"""File systems of fsspec: opened by name and options, and read by range. Calls block."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any, Final

from fsspec.registry import get_filesystem_class
from fsspec.spec import AbstractFileSystem

from protoslice.errors import InvalidInput, Unsupported

WEBDAV: Final = frozenset({"webdav", "dav"})
"""Names of the file system of webdav4."""
_LOCAL: Final = frozenset({"file", "local"})


def file_system(protocol: str, authority: str, options: Mapping[str, str]) -> Callable[[], AbstractFileSystem]:
    """Function that opens a file system, which may connect.

    `InvalidInput` for an unknown file system, `Unsupported` for one that is not installed.
    """
    if protocol in _LOCAL:
        raise InvalidInput("Use file:// for files on this machine (symbolic links are not followed)")
    given = {name: _value(name, text) for name, text in options.items()}
    try:
        made_by = get_filesystem_class(protocol)
    except ValueError:
        raise InvalidInput(f"fsspec has no file system {protocol!r}") from None
    except ImportError as error:
        raise Unsupported(f"The file system {protocol!r} of fsspec is not installed: {error}") from None
    if protocol in WEBDAV:
        named: dict[str, Any] = {"base_url": f"{given.pop('scheme', 'https')}://{authority}"}
        if "username" in given:
            named["auth"] = (given.pop("username"), given.pop("password", ""))
    else:
        named = made_by._get_kwargs_from_urls(f"{protocol}://{authority}/")
    return lambda: made_by(**(named | given), skip_instance_cache=True)


def read_range(fs: AbstractFileSystem, path: str, start: int, end: int) -> bytes:
    """Bytes of a file from `start` to `end`, or fewer where the file ends before. Blocks."""
    if not WEBDAV.isdisjoint((fs.protocol,) if isinstance(fs.protocol, str) else fs.protocol):
        return _read_webdav(fs, path, start, end)
    if fs.async_impl or type(fs).cat_file is not AbstractFileSystem.cat_file:
        return bytes(fs.cat_file(path, start=start, end=end))
    # Without a cache, which would read megabytes ahead of each range.
    with fs.open(path, "rb", cache_type="none") as file:
        file.seek(start)
        return bytes(file.read(end - start))


def _read_webdav(fs: AbstractFileSystem, path: str, start: int, end: int) -> bytes:
    # Files of webdav4 ask for all that follows the start, and hang up.
    client = fs.client
    headers = {"Range": f"bytes={start}-{end - 1}", "Accept-Encoding": "identity"}
    with client.http.stream("GET", client.join_url(path), headers=headers, follow_redirects=False) as answer:
        if answer.status_code == HTTPStatus.NOT_FOUND:
            raise FileNotFoundError
        if answer.status_code in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
            raise PermissionError
        if answer.status_code == HTTPStatus.OK and answer.headers.get("content-length") != "0":
            raise Unsupported("the WebDAV server does not support ranges")
        if not answer.headers.get("content-range", "").startswith(f"bytes {start}-"):
            return b""
        data = bytearray()
        for piece in answer.iter_raw():
            data += piece
            if len(data) > end - start:
                raise OSError("the WebDAV server sent more bytes than requested")
        return bytes(data)


def _value(name: str, text: str) -> Any:
    if name in {"port", "timeout"}:
        try:
            return int(text) if name == "port" else float(text)
        except ValueError:
            raise InvalidInput(f"The option {name} must be a number") from None
    return {"true": True, "false": False}.get(text, text)
