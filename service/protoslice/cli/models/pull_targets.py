"""Targets of a pull: what the user names, or a name of the author that can do no harm here."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from protoslice.errors import Conflict, InvalidInput
from protoslice.file_names import is_version_control


def target_of(
    store: Any, ref: str, out: str | None, view: str | None, *, force: bool, folder: bool = False
) -> str | Path:
    """Return the target of a pull: `out`, else a name made from the `store`, in the current directory.

    It is a `folder` for a view of several files.

    A store's author chooses the names of its files. Without `out`, hidden names raise `InvalidInput`, and files that
    exist with other content raise `Conflict`, unless `force` is set. `store` is None if only `out` matters.
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
    """Default target of a pull, in the current directory."""
    stem = (store.root or "").rpartition("/")[2].rpartition(".")[0] or "model"
    if view is not None:
        last = view.rpartition("/")[2]
        made = {"cpb": f"{stem}.cpb", "safetensors": f"{stem}.safetensors", "merge": f"{stem}.pb"}
        return made.get(view, f"chunk-{last}" if view.startswith("chunks/") else last)
    if len(store.files) == 1:
        return str(store.files[0].path.rpartition("/")[2])
    return store.id[:12] if store.id.startswith(ref) else re.sub("[^A-Za-z0-9._-]", "-", ref)


def _checked(name: str, force: bool) -> str:
    """`name`, unless programs would treat a file of this name in a special way."""
    if name in {"", ".", ".."} or "/" in name or "\0" in name or is_version_control(name):
        raise InvalidInput(f"{name!r} is not a usable file name: pass a file name as OUT")
    if not force and (name[0] in ".-~" or not name.isprintable()):
        raise InvalidInput(
            f"The store's file has the unusual name {name!r}: pass a file name as OUT, or keep this name with --force"
        )
    return name


def _keep_others(target: Path, store: Any, view: str | None) -> None:
    """Raise `Conflict` if the pull would change an existing file, or fill a folder of something else."""
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


def _below(folder: Path) -> Any:
    """Paths of everything below `folder` that is no folder."""
    for above, folders, names in os.walk(folder):
        links = [name for name in folders if os.path.islink(os.path.join(above, name))]
        for name in (*names, *links):
            yield Path(above, name).relative_to(folder)


def _is_of(folder: Path, path: Path, files: Mapping[str, Any]) -> bool:
    """True for a file of the store, or what an interrupted pull has left of one."""
    from protoslice.client.download.files import same_file

    file = files.get(path.as_posix())
    if file is not None:
        return same_file(folder / path, file.size, file.sha256)
    part = re.fullmatch(r"\.(.{1,200})\.[0-9a-f]{16}(-[0-9a-f]{8})?\.part", path.name, re.DOTALL)
    return part is not None and any(
        Path(each).name[:200] == part[1] and Path(each).parent == path.parent for each in files
    )
