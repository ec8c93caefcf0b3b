"""Git objects: blobs, pointers of git-lfs, `.gitattributes`, trees and commits.

An object has the form that git hashes: its type and length, a NUL byte, then the content.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from protoslice.catalog.histories import Commit
from protoslice.facts import File
from protoslice.file_names import without_version_control

PLAIN_BYTES: Final = 64 << 10
"""Largest size in bytes of a file that is stored in git itself."""
_SUFFIXES: Final = (
    "cfg", "csv", "html", "ini", "jinja", "json", "jsonl", "md", "pbtxt", "prototxt", "py", "rst", "sh", "toml", "tsv",
    "txt", "xml", "yaml", "yml",
)  # fmt: skip
_NAMES: Final = (".gitattributes", ".gitignore", "LICENSE", "Makefile", "NOTICE", "README")
ATTRIBUTES: Final = ".gitattributes"
_LFS: Final = "filter=lfs diff=lfs merge=lfs -text"
_IN_GIT: Final = "!filter !diff !merge !text"
_HEAD: Final = "# Small text files are in git, all others in git-lfs.\n"
_ATTRIBUTES: Final = re.compile(r"(?i)(^|/)(\.gitattributes|gitatt~1)[ .]*(/|:|$)")
"""Paths that would override the generated `.gitattributes`."""
_UNNAMEABLE: Final = re.compile(r"[<>\x00-\x1f]")
_ANONYMOUS: Final = "anonymous"
_HOST: Final = "localhost"
"""The host in the e-mail addresses of authors, of whom only names are known."""


def with_header(kind: bytes, content: bytes) -> bytes:
    """Return the object with this type and content."""
    return b"%b %d\0" % (kind, len(content)) + content


def id_of(git_object: bytes) -> str:
    """Return the hexadecimal id of an object."""
    return hashlib.sha1(git_object, usedforsecurity=False).hexdigest()


def blob_id(content: bytes) -> str:
    """Return the hexadecimal id of a blob."""
    return id_of(with_header(b"blob", content))


def pointer_of(sha256: str, size: int) -> bytes:
    """Return the content of a pointer, the small file that git has in place of a git-lfs file."""
    return b"version https://git-lfs.github.com/spec/v1\noid sha256:%b\nsize %d\n" % (sha256.encode(), size)


@dataclass(frozen=True, slots=True)
class GitTrees:
    """The trees of a commit, and the blobs that they name."""

    root: str
    """The id of the tree of all files."""
    made: Mapping[str, bytes]
    """The trees, pointers and attributes by id."""
    files: Mapping[str, str]
    """The path of a file for each blob id; a blob is either a pointer, which is in `made`, or the file itself."""


@dataclass(slots=True)
class _Folder:
    folders: dict[str, _Folder] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)

    def put(self, path: str, id: str) -> None:
        *above, name = path.split("/")
        folder = self
        for each in above:
            folder = folder.folders.setdefault(each, _Folder())
        folder.files[name] = id

    def write(self, made: dict[str, bytes]) -> str:
        """Add the trees of this folder and of all folders below it to `made`; return this folder's tree id."""
        # Git sorts a folder as if its name ended with a slash.
        entries = [(name.encode(), b"100644", id) for name, id in self.files.items()]
        entries += [(name.encode() + b"/", b"40000", below.write(made)) for name, below in self.folders.items()]
        content = b"".join(
            b"%b %b\0" % (mode, name.removesuffix(b"/")) + bytes.fromhex(id) for name, mode, id in sorted(entries)
        )
        tree = with_header(b"tree", content)
        id = id_of(tree)
        made[id] = tree
        return id


def has_more_folders(paths: Iterable[str], most: int) -> bool:
    """Return True if the paths have more than `most` folders."""
    found = set[str]()
    for path in paths:
        folder = path.rpartition("/")[0]
        while folder and folder not in found:
            found.add(folder)
            if len(found) > most:
                return True
            folder = folder.rpartition("/")[0]
    return False


def trees_of(files: Mapping[str, File], blobs: Mapping[str, str]) -> GitTrees:
    """Return the trees of files; `blobs` has the ids of plain files by SHA-256.

    A user's file named `.gitattributes` is left out, because the generated file must separate pointers from plain
    files. Files of version control are left out too, because git refuses commits that contain them.
    """
    made, paths, root = dict[str, bytes](), dict[str, str](), _Folder()
    shown = [item for item in without_version_control(files).items() if not _ATTRIBUTES.search(item[0])]
    pointers = [path for path, file in shown if not is_plain(path, file.size)]
    for path, file in shown:
        assert file.sha256 is not None, "files of commits have digests"
        if is_plain(path, file.size):
            id = blobs[file.sha256]
            paths.setdefault(id, path)
        else:
            pointer = with_header(b"blob", pointer_of(file.sha256, file.size))
            id = id_of(pointer)
            made[id] = pointer
            paths[id] = path
        root.put(path, id)
    if pointers:
        own = with_header(b"blob", attributes_of(pointers))
        made[id_of(own)] = own
        root.put(ATTRIBUTES, id_of(own))
    return GitTrees(root.write(made), made, paths)


def commit_of(commit: Commit, tree: str, parent: str) -> bytes:
    """Return the object of a commit; `parent` is empty for the first commit."""
    user = _UNNAMEABLE.sub("", commit.author.user).strip() or _ANONYMOUS
    who = f"{user} <{user.replace(' ', '.')}@{_HOST}> {int(commit.time.timestamp())} +0000"
    message = "\n\n".join(filter(None, (commit.author.title.strip(), commit.author.message.strip())))
    before = f"parent {parent}\n" if parent else ""
    text = f"tree {tree}\n{before}author {who}\ncommitter {who}\n\n{message}\n"
    return with_header(b"commit", text.encode("utf-8", "replace"))


def is_text(path: str) -> bool:
    """Return True for the name of a text file."""
    name = path.rpartition("/")[2]
    return name in _NAMES or (name.rpartition(".")[2] in _SUFFIXES and "." in name)


def is_plain(path: str, size: int) -> bool:
    """Return True for small text files, and for empty files, because git-lfs has no empty files."""
    return size == 0 or (size <= PLAIN_BYTES and is_text(path))


def attributes_of(pointers: Iterable[str]) -> bytes:
    """Return the `.gitattributes` of a commit whose git-lfs files are `pointers`."""
    lines = [f"* {_LFS}", *(f"*.{suffix} {_IN_GIT}" for suffix in _SUFFIXES), *(f"{name} {_IN_GIT}" for name in _NAMES)]
    lines += [f"{_pattern(path)} {_LFS}" for path in sorted(pointers) if is_text(path)]
    return (_HEAD + "\n".join(lines) + "\n").encode()


def _pattern(path: str) -> str:
    """Return the pattern that only matches `path`; it is quoted like a C string if needed."""
    pattern = "/" + re.sub(r"([*?\[\\])", r"\\\1", path)
    if not re.search(r'[\s"]', pattern):
        return pattern
    return '"' + pattern.replace("\\", "\\\\").replace('"', '\\"') + '"'
