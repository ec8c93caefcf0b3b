"""The command `pull`, which downloads the files, a view or parts of a store."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any, Final
from warnings import catch_warnings, simplefilter

import typer

from protoslice.cli.models.output import write_content
from protoslice.cli.models.remote import connect
from protoslice.cli.options import Json, ServiceUrl
from protoslice.cli.progress import Progress
from protoslice.cli.tables import note, print_files, print_json, say
from protoslice.defaults import CONNECTIONS
from protoslice.errors import Conflict, InvalidInput
from protoslice.file_names import is_version_control
from protoslice.references import store_of
from protoslice.sizes import format_size, parse_size

_FILE_NAME: Final = re.compile(r'filename="([^"]{1,200})"')
_ODD: Final = re.compile(r"[^A-Za-z0-9._-]+")
_AT_ONCE: Final = 1000
"""Maximum number of parts in one request."""


def pull(  # noqa: PLR0913 - each is an option
    store: Annotated[
        str,
        typer.Argument(metavar="STORE", help="The store: http://HOST/v1/stores/TAG, or @TAG if PROTOSLICE_URL is set."),
    ],
    out: Annotated[
        str | None,
        typer.Argument(
            metavar="OUT",
            help="Output file or folder; end a new folder's name with /.",
            show_default="named after the file; with several files, a new folder named after the store",
        ),
    ] = None,
    view: Annotated[
        str | None,
        typer.Option(
            metavar="VIEW",
            help="View to pull instead of the files: cpb, onnx, safetensors, chunks/3, files/vocab.txt …",
        ),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only",
            metavar="VIEW",
            help="Write only this view into OUT, such as chunks/3, tensors/NAME or merge?path=graph; repeatable.",
        ),
    ] = None,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Without OUT or with --only: replace files that exist. Allow names that start with '.', '-' or '~'.",
        ),
    ] = False,
    align: Annotated[
        int | None,
        typer.Option(metavar="BYTES", help="Alignment of tensors in the safetensors and onnx views: a power of two."),
    ] = None,
    dtype: Annotated[
        str | None,
        typer.Option(metavar="TYPE", help="Convert floats of the safetensors view: F32, F16, BF16 or F64."),
    ] = None,
    shards: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="Write the safetensors view into a folder, split into files of at most this size.",
        ),
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Fail if the safetensors view leaves out tensors.")] = False,
    cache: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="Keep downloaded data in this folder, so that pulls of later versions transfer less."
        ),
    ] = None,
    parallel: Annotated[
        int, typer.Option(metavar="N", help="Maximum number of parallel requests.", min=1, max=64)
    ] = CONNECTIONS,
    url: ServiceUrl = None,
    as_json: Json = False,
) -> None:
    """Download the files of a store, and verify their checksums.

    To resume an interrupted pull, run it again.

    Example: protoslice pull http://127.0.0.1:8000/v1/stores/resnet50:3 resnet50
    """
    address = store_of(store, url)
    if only:
        if out is None or view is not None:
            raise InvalidInput("--only needs a folder as OUT, and no --view")
        with connect(address.service, cache, parallel) as client:
            print_files(_pull_parts(client, address.ref, only, Path(out), force=force), as_json=as_json)
        return
    with (
        catch_warnings(record=True) as warned,
        connect(address.service, cache, parallel) as client,
        Progress("pulling") as progress,
    ):
        simplefilter("always")
        found = client.store(address.ref, names=False) if out is None or view is not None else None
        try:
            params = _layout(view, align, dtype, shards, strict=strict)
            folder = view == "onnx" or shards is not None
            target = _target_of(found, address.ref, out, view, force=force, folder=folder)
            got = client.download(address.ref, target, view=view, params=params, progress=progress.up_to)
        except BaseException as error:
            if not isinstance(error, Exception):  # Ctrl-C or a signal
                error.add_note("Partial download kept; run the same command again to resume")
            raise
    if as_json:
        print_json([_as_json(each) for each in got])
    for each in got if not as_json else ():
        say(f"{each.path}: {format_size(each.size)}" + ("" if each.fetched else ", unchanged"))
    for warning in warned:
        note(f"warning: {warning.message}")
    for each in got:
        if each.omitted is not None:
            advice = " (use --strict to fail instead)" if each.omitted.what == "tensor" else ""
            note(f"warning: {each.path}: {each.omitted}{advice}")


def _layout(
    view: str | None, align: int | None, dtype: str | None, shards: str | None, *, strict: bool
) -> list[tuple[str, str]]:
    """Return the query parameters of a view; raise `InvalidInput` for an option that the view does not support."""
    given = {"align": align, "dtype": dtype, "shards": None if shards is None else parse_size(shards)}
    wanted = [(name, str(value)) for name, value in given.items() if value is not None]
    known = {"safetensors": set(given), "onnx": {"align"}}.get(view or "", set())
    for name, _ in wanted:
        if name not in known:
            raise InvalidInput(f"--{name} needs --view safetensors{' or onnx' if name == 'align' else ''}")
    return [*wanted, ("strict", "true")] if strict and view == "safetensors" else wanted


def _as_json(got: Any) -> dict[str, object]:
    """Return one download in the form of `pull --json`."""
    found: dict[str, object] = {"path": str(got.path), "size": got.size, "fetched": got.fetched}
    return (
        found if got.omitted is None else found | {"omitted": {"count": got.omitted.count, "names": got.omitted.names}}
    )


def _target_of(
    store: Any, ref: str, out: str | None, view: str | None, *, force: bool, folder: bool = False
) -> str | Path:
    """Return the path to which a pull writes: `out`, or a name in the current directory that is derived from the store.

    `folder` is True for a view of several files, which are written into a folder. `store` is None if `out` alone
    decides the path.

    The author of a store chooses the names of its files. Therefore, without `out`, a hidden name raises `InvalidInput`,
    and an existing file with other content raises `Conflict`. With `force`, both are allowed.
    """
    if out is not None:
        if view is not None and not folder and (out.endswith(os.sep) or os.path.isdir(out)):
            Path(out).mkdir(parents=True, exist_ok=True)
            return Path(out, _checked(_named_after(store, ref, view), force))
        return out
    target = Path(_checked(_named_after(store, ref, view), force))
    if not force:
        _keep_others(target, store, view)
    return target


def _named_after(store: Any, ref: str, view: str | None) -> str:
    """Return the default name for the download of a store or of a view."""
    stem = (store.root or "").rpartition("/")[2].rpartition(".")[0] or "model"
    if view is not None:
        last = view.rpartition("/")[2]
        made = {"cpb": f"{stem}.cpb", "safetensors": f"{stem}.safetensors", "merge": f"{stem}.pb"}
        return made.get(view, f"chunk-{last}" if view.startswith("chunks/") else last)
    if len(store.files) == 1:
        return str(store.files[0].path.rpartition("/")[2])
    return store.id[:12] if store.id.startswith(ref) else re.sub("[^A-Za-z0-9._-]", "-", ref)


def _checked(name: str, force: bool) -> str:
    """Return `name`; raise `InvalidInput` if it is unusable, or if programs treat a file with this name specially.

    With `force`, names that begin with `.`, `-` or `~`, or have unprintable characters, are allowed.
    """
    if name in {"", ".", ".."} or "/" in name or "\0" in name or is_version_control(name):
        raise InvalidInput(f"{name!r} is not a usable file name: pass a file name as OUT")
    if not force and (name[0] in ".-~" or not name.isprintable()):
        raise InvalidInput(
            f"The store's file has the unusual name {name!r}: pass a file name as OUT, or keep this name with --force"
        )
    return name


def _keep_others(target: Path, store: Any, view: str | None) -> None:
    """Raise `Conflict` if the pull would replace an existing file, or write into a folder with other content."""
    from protoslice.client.download.files import same_file

    if not os.path.lexists(target):
        return
    files = {file.path: file for file in store.files}
    if view is None and len(files) > 1:
        if target.is_dir() and not target.is_symlink() and all(_is_of(target, path, files) for path in _below(target)):
            return
        raise Conflict(
            f"{target} already exists and is not part of this store: pass another folder as OUT, or use --force"
        )
    file = next(iter(files.values())) if view is None else files.get(view.removeprefix("files/"))
    if file is None or not same_file(target, file.size, file.sha256):
        raise Conflict(
            f"{target} already exists with different content: pass another file as OUT, or use --force to replace it"
        )


def _below(folder: Path) -> Iterator[Path]:
    """Yield the paths of all entries below `folder` that are not folders; links to folders are included."""
    for above, folders, names in os.walk(folder):
        links = [name for name in folders if os.path.islink(os.path.join(above, name))]
        for name in (*names, *links):
            yield Path(above, name).relative_to(folder)


def _is_of(folder: Path, path: Path, files: Mapping[str, Any]) -> bool:
    """Return True if the file at `path` is a file of the store, or a partial file of an interrupted pull."""
    from protoslice.client.download.files import same_file

    file = files.get(path.as_posix())
    if file is not None:
        return same_file(folder / path, file.size, file.sha256)
    part = re.fullmatch(r"\.(.{1,200})\.[0-9a-f]{16}(-[0-9a-f]{8})?\.part", path.name, re.DOTALL)
    return part is not None and any(
        Path(each).name[:200] == part[1] and Path(each).parent == path.parent for each in files
    )


def _pull_parts(client: Any, ref: str, views: Sequence[str], folder: Path, *, force: bool) -> list[tuple[Path, int]]:
    """Write `views` of a store as files into `folder`, and return the paths and sizes of the files."""
    folder.mkdir(parents=True, exist_ok=True)
    written, taken = list[tuple[Path, int]](), set[str]()
    store = client.store(ref, names=False).id  # a tag may move between two requests
    with Progress("pulling") as progress:
        for at in range(0, len(views), _AT_ONCE):
            with closing(client.parts(store, views[at : at + _AT_ONCE])) as parts:
                for part in parts:
                    name = _unused(part.headers.get("content-disposition", ""), taken)
                    pieces = (memoryview(piece) for piece in part.pieces)
                    write_content(pieces, str(folder / name), progress, force=force, quiet=True)
                    written.append((folder / name, part.size))
    return written


def _unused(disposition: str, taken: set[str]) -> str:
    """Return the file name that the service suggests for a part. If the name is taken, put a number before it."""
    found = _FILE_NAME.search(disposition)
    plain = _ODD.sub("_", found[1] if found else "part").lstrip(".-") or "part"
    name, number = plain, 1
    while name in taken:
        number += 1
        name = f"{number}-{plain}"
    taken.add(name)
    return name
