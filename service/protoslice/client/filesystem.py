"""The fsspec file system for URLs such as `protoslice://host:port/ref/files/model.onnx`.

A store has three folders: `files`, `chunks` and `tensors`. The stores of a space are below
`protoslice://host:port/spaces/NAME/`. The scheme `protoslices://` connects over TLS. Stores are read-only, and all
bytes are verified.
"""

from __future__ import annotations

import io
from typing import Any, ClassVar, NoReturn
from urllib.parse import quote, unquote

from fsspec.spec import AbstractBufferedFile, AbstractFileSystem

from protoslice.client.client import Client
from protoslice.client.download.remote import Remote
from protoslice.client.options import ClientOptions
from protoslice.errors import InvalidInput, NoRoot, NotFound, check_options
from protoslice.file_names import without_version_control
from protoslice.tensors.listing import TensorList, keys

KINDS = ("chunks", "files", "tensors")
Info = dict[str, Any]
_OF_FSSPEC = (
    "asynchronous", "batch_size", "listings_expiry_time", "loop", "max_paths", "skip_instance_cache",
    "use_listings_cache",
)  # fmt: skip
"""Options that every file system of fsspec accepts."""


class StoreFileSystem(AbstractFileSystem):
    """The file system of stores; the host in a path selects the service.

    `options` are options of `Client`, such as `token` and `timeout_seconds`. Chunks are listed by their numbers.
    Tensors are listed by their percent-encoded names; tensors that share a name are listed by their addresses.
    """

    protocol: ClassVar[tuple[str, ...]] = ("protoslice", "protoslices")
    root_marker = ""

    def __init__(self, *, tls: bool = False, options: Any = None, **more: Any) -> None:
        check_options("StoreFileSystem", more, ("tls", "options", *_OF_FSSPEC))
        check_options("Client", options or {}, ClientOptions.__annotations__)
        super().__init__(**more)
        self._scheme = "https" if tls else "http"
        self._options = dict(options or {})
        self._clients: dict[str, Client] = {}

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(each) for each in path]
        for protocol in ("protoslices", "protoslice"):
            path = path.removeprefix(f"{protocol}://")
        return path.strip("/")

    @staticmethod
    def _get_kwargs_from_urls(path: str) -> dict[str, Any]:
        return {"tls": True} if path.startswith("protoslices://") else {}

    def ls(self, path: str, detail: bool = True, **more: Any) -> list[Any]:
        """Return the entries of a folder; for a file, return its own entry."""
        path = self._strip_protocol(path)
        found = self._listed(path)
        if found is None:
            try:
                found = self.dircache[path] = self._look(path)
            except NotFound as error:
                raise FileNotFoundError(path) from error
        return found if detail else sorted(each["name"] for each in found)

    def info(self, path: str, **more: Any) -> Info:
        """Return the entry of `path`, which has name, size and type."""
        path = self._strip_protocol(path)
        host, ref, kind, rest = _split(path)
        if not rest:
            if ref:
                self.ls(f"{host}/{ref}")  # raises an error if there is no such store
            return _folder(path)
        if kind == "files":
            return _listed_as(path, self.ls(path)) or _folder(path)
        # A cached listing saves a request, but has only one name for each tensor. `_remote` accepts all names.
        listed = self._listed(f"{host}/{ref}/{kind}") or []
        return _listed_as(path, listed) or _file(path, self._remote(path).size)

    def _open(self, path: str, mode: str = "rb", block_size: Any = None, **more: Any) -> StoreFile:
        if mode != "rb":
            self._refuse()
        path = self._strip_protocol(path)
        return StoreFile(self, path, self._remote(path), block_size or 4 << 20, **more)

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **more: Any) -> bytes:
        """Return the bytes of `path` from `start` up to `end`; negative positions count from the end of the file."""
        remote = self._remote(self._strip_protocol(path))
        first, last, _ = slice(start, end).indices(remote.size)
        return remote.read(first, max(0, last - first))

    def created(self, path: str) -> Any:
        """Return the creation time of the store that contains `path`."""
        host, ref, _, _ = _split(self._strip_protocol(path))
        return self._client(host).store(ref, names=False).created

    modified = created

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise InvalidInput("Stores are read-only: create one by Client.push, and remove one by Client.remove")

    mkdir = makedirs = touch = pipe_file = put_file = cp_file = mv = rm = rm_file = rmdir = _rm = _refuse

    def _listed(self, path: str) -> list[Info] | None:
        found: list[Info] | None = self._ls_from_cache(path) if path in self.dircache else None
        return found

    def _client(self, host: str) -> Client:
        if host not in self._clients:
            self._clients[host] = Client(f"{self._scheme}://{host}", **self._options)
        return self._clients[host]

    def _look(self, path: str) -> list[Info]:
        host, ref, kind, rest = _split(path)
        if not host:
            raise InvalidInput("No host in the URL: use protoslice://host:port/…")
        client = self._client(host)
        if not ref:
            refs = {tag.name for tag in client.tags()} | {store.id for store in client.stores()}
            return [_folder(f"{host}/{name}") for name in sorted(refs)]
        if not kind:
            client.store(ref, names=False)
            return [_folder(f"{path}/{each}") for each in KINDS]
        if kind == "files":
            files = {file.path: file.size for file in client.store(ref, names=False).files}
            if rest not in files:  # a copy of a folder on a disk must not contain a repository of version control
                files = dict(without_version_control(files))
            return _children(f"{host}/{ref}/files", rest, files)
        if rest:
            return [self.info(path)]
        try:
            if kind == "chunks":
                return [_file(f"{path}/{chunk.index}", chunk.size) for chunk in client.chunks(ref)]
            listed = list(client.tensors(ref))
            names = keys(TensorList.of(listed))
            return [
                _file(f"{path}/{quote(name, safe='')}", each.size) for name, each in zip(names, listed, strict=True)
            ]
        except NoRoot:
            return []

    def _remote(self, path: str) -> Remote:
        host, ref, kind, rest = _split(path)
        if kind not in KINDS or not rest:
            raise FileNotFoundError(path)
        try:
            view = f"{kind}/{unquote(rest) if kind == 'tensors' else rest}"
            remote = self._client(host).source(ref, view, [("format", "raw")] if kind == "tensors" else ())
            remote.facts  # noqa: B018 - a request, so that a missing file is reported here
        except NotFound as error:
            raise FileNotFoundError(path) from error
        return remote


class StoreFile(AbstractBufferedFile):
    """An open view, which is read with fsspec's read-ahead."""

    def __init__(self, fs: StoreFileSystem, path: str, remote: Remote, block_size: int, **more: Any) -> None:
        self._remote = remote
        super().__init__(fs, path, "rb", block_size, size=remote.size, **more)

    def _fetch_range(self, start: int, end: int) -> bytes:
        end = min(end, self.size)
        return self._remote.read(start, end - start) if start < end else b""

    def _upload_chunk(self, final: bool = False) -> bool:
        raise io.UnsupportedOperation("Stores are read-only")


def _split(path: str) -> tuple[str, str, str, str]:
    """Split a path into the host (with its space), the ref of the store, the kind, and the rest."""
    host, _, path = path.partition("/")
    below, _, inside = path.partition("/")
    space, _, behind = inside.partition("/")
    if below == "spaces" and space and space not in KINDS:  # otherwise, `spaces` is a tag
        host, path = f"{host}/spaces/{space}", behind
    ref, _, path = path.partition("/")
    kind, _, rest = path.partition("/")
    if kind and kind not in KINDS:
        raise FileNotFoundError(
            f"Invalid URL {host}/{ref}/{kind}: the part after the store must be one of {', '.join(KINDS)}"
        )
    return host, ref, kind, rest


def _folder(name: str) -> Info:
    return {"name": name, "size": 0, "type": "directory"}


def _file(name: str, size: int | None) -> Info:
    return {"name": name, "size": size, "type": "file"}


def _listed_as(path: str, listed: list[Info]) -> Info | None:
    """Return the entry of `path` in the listing `listed`, or None."""
    return next((each for each in listed if each["name"] == path), None)


def _children(root: str, folder: str, files: dict[str, int]) -> list[Info]:
    """Return the entries directly in `folder`. If `folder` is the path of a file, return the entry of that file."""
    if folder in files:
        return [_file(f"{root}/{folder}", files[folder])]
    prefix = f"{folder}/" if folder else ""
    found: dict[str, Info] = {}
    for path, size in files.items():
        if path.startswith(prefix):
            step, slash, _ = path.removeprefix(prefix).partition("/")
            name = f"{root}/{prefix}{step}"
            found[name] = _folder(name) if slash else _file(name, size)
    if not found and folder:
        raise FileNotFoundError(f"{root}/{folder}")
    return [found[name] for name in sorted(found)]
