"""Calls of huggingface_hub.

`HF_ENDPOINT` names the service. Downloaded bytes are compared with the sent bytes.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import huggingface_hub as hub
from huggingface_hub import CommitOperationAdd, CommitOperationCopy, CommitOperationDelete, HfApi, HfFileSystem
from huggingface_hub.utils import (
    EntryNotFoundError,
    HfHubHTTPError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from safetensors import safe_open

FILES = {
    "README.md": b"---\nlicense: mit\n---\n# A model\n",
    "a/hello 100%25.txt": b"hello",
    "empty": b"",
    "sub/deep/x.bin": bytes(range(256)) * 2000,
}
LARGE = 11 << 20
MANY = 300
MODELS = Path(__file__).resolve().parents[2] / "golden/models"
GOLDEN = ("onnx_types_raw", "tf_sm_variables", "paddle_combined")
NUMPY = {"F64", "F32", "F16", "I64", "I32", "I16", "I8", "U64", "U32", "U16", "U8", "BOOL"}
"""The types that NumPy knows; the golden files have other bytes for the others."""


class Calls:
    """Calls of one version of the client on one repository."""

    def __init__(self, folder: Path) -> None:
        self.api = HfApi()
        self.name = f"Ann/m-{hub.__version__}"
        self.folder = folder
        self.count = 0

    def holds(self, what: str, told: object) -> None:
        """Note that the check `what` holds; end the program if it does not."""
        if not told:
            sys.exit(f"{hub.__version__}: {what}")
        self.count += 1

    @contextmanager
    def raises(self, kind: type[Exception]) -> Iterator[None]:
        """Expect an error of `kind` in the block."""
        try:
            yield
        except kind:
            self.count += 1
            return
        sys.exit(f"{hub.__version__}: {kind.__name__} was due")

    def read(self, path: str, revision: str | None = None) -> bytes:
        """Return the bytes of a file, downloaded into the client's cache."""
        return Path(hub.hf_hub_download(self.name, path, revision=revision)).read_bytes()

    def paths(self) -> list[str]:
        """Return the paths of the files on `main`."""
        return sorted(self.api.list_repo_files(self.name))

    def create(self) -> None:
        """Check that a created repository is empty and readable."""
        with self.raises(RepositoryNotFoundError):
            self.api.model_info(self.name)
        self.holds("there is none", not self.api.repo_exists(self.name))
        self.holds("its URL", str(self.api.create_repo(self.name)).endswith(self.name))
        self.api.create_repo(self.name, exist_ok=True)
        with self.raises(HfHubHTTPError):
            self.api.create_repo(self.name)
        self.holds("it is empty", self.paths() == [])
        self.holds("it has a commit", len(self.api.model_info(self.name).sha) == 40)
        self.holds("an owner is given", self.api.create_repo(f"own-{hub.__version__}").repo_id.startswith("default/"))
        self.holds("a user", self.api.whoami(token="hf_any")["name"] == "default")

    def push(self) -> None:
        """Check that files are uploaded one by one and as a folder, and downloaded unchanged."""
        told = self.api.upload_file(
            path_or_fileobj=b"hello", path_in_repo="a/hello 100%25.txt", repo_id=self.name, commit_message="first"
        )
        for path, data in FILES.items():
            (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / path).write_bytes(data)
        self.api.upload_folder(folder_path=self.folder, repo_id=self.name)
        self.holds("the folder is there", self.paths() == sorted(FILES))
        for path, data in FILES.items():
            self.holds(path, self.read(path) == data)
        self.holds("an old commit", self.read("a/hello 100%25.txt", told.oid) == b"hello")
        snapshot = Path(hub.snapshot_download(self.name))
        self.holds("a snapshot", all((snapshot / path).read_bytes() == data for path, data in FILES.items()))
        history = self.api.list_repo_commits(self.name)
        self.holds("history", (history[-1].title, history[-1].commit_id) == ("first", told.oid))

    def miss(self) -> None:
        """Check that unknown names raise the errors that callers catch."""
        missing: list[tuple[type[Exception], Callable[[], object]]] = [
            (EntryNotFoundError, lambda: self.read("none")),
            (RevisionNotFoundError, lambda: self.read("empty", "none")),
            (RepositoryNotFoundError, lambda: hub.hf_hub_download(f"{self.name}x", "empty")),
            (HfHubHTTPError, lambda: self.api.delete_file("none", self.name)),
        ]
        for kind, call in missing:
            with self.raises(kind):
                call()
        self.holds("file_exists", self.api.file_exists(self.name, "empty"))
        self.holds("no file_exists", not self.api.file_exists(self.name, "none"))
        self.holds("revision_exists", self.api.revision_exists(self.name, "main"))
        self.holds("no revision_exists", not self.api.revision_exists(self.name, "none"))

    def look(self) -> None:
        """Check trees, paths and the file system."""
        tree = {entry.path for entry in self.api.list_repo_tree(self.name, "sub")}
        self.holds("a folder", tree == {"sub/deep"})
        whole = {entry.path for entry in self.api.list_repo_tree(self.name, recursive=True)}
        self.holds("the whole tree", whole == {*FILES, "a", "sub", "sub/deep"})
        found = {entry.path for entry in self.api.get_paths_info(self.name, ["sub", "empty", "none"])}
        self.holds("paths", found == {"sub", "empty"})
        files = HfFileSystem()
        self.holds("ls", {each["name"] for each in files.ls(f"{self.name}/sub")} == {f"{self.name}/sub/deep"})
        with files.open(f"{self.name}/sub/deep/x.bin", "rb", block_size=4096) as file:
            file.seek(300_000)
            self.holds("a range", file.read(9) == FILES["sub/deep/x.bin"][300_000:300_009])
        self.holds("glob", files.glob(f"{self.name}/**/*.bin") == [f"{self.name}/sub/deep/x.bin"])

    def refer(self) -> None:
        """Check branches with slashes in their names, and tags."""
        self.api.create_branch(self.name, branch="feat/x")
        with self.raises(HfHubHTTPError):
            self.api.create_branch(self.name, branch="feat/x")
        self.api.create_tag(self.name, tag="v1")
        self.api.upload_file(path_or_fileobj=b"b", path_in_repo="b", repo_id=self.name, revision="feat/x")
        self.holds("a branch", self.read("b", "feat/x") == b"b")
        refs = self.api.list_repo_refs(self.name)
        self.holds("branches", [ref.name for ref in refs.branches] == ["feat/x", "main"])
        self.holds("tags", [ref.name for ref in refs.tags] == ["v1"])
        self.api.delete_branch(self.name, branch="feat/x")
        self.api.delete_tag(self.name, tag="v1")
        self.holds("they are gone", len(self.api.list_repo_refs(self.name).branches) == 1)

    def change(self) -> None:
        """Check deletions, copies and additions in one commit, on condition of the parent."""
        head = self.api.model_info(self.name).sha
        edits = [
            CommitOperationDelete("sub/"),
            CommitOperationDelete("empty"),
            CommitOperationCopy("README.md", "docs/README.md"),
            CommitOperationAdd("new", b"new"),
        ]
        self.api.create_commit(self.name, edits, commit_message="edits", parent_commit=head)
        self.holds("edits", self.paths() == ["README.md", "a/hello 100%25.txt", "docs/README.md", "new"])
        self.holds("a copy", self.read("docs/README.md") == FILES["README.md"])
        with self.raises(HfHubHTTPError):
            self.api.create_commit(self.name, [CommitOperationAdd("x", b"x")], commit_message="x", parent_commit=head)

    def push_much(self) -> None:
        """Check many files, and a large file that LFS stores."""
        many = self.folder / "many"
        many.mkdir()
        for number in range(MANY):
            (many / f"{number}.txt").write_text(str(number))
        self.api.upload_folder(folder_path=many, repo_id=self.name, path_in_repo="many")
        self.holds("many files", len(self.paths()) == 4 + MANY)
        self.api.delete_folder("many", self.name)
        self.holds("a folder is deleted", len(self.paths()) == 4)
        data = os.urandom(LARGE)
        (self.folder / "large.bin").write_bytes(data)
        for path in ("large.bin", "again.bin"):
            self.api.upload_file(path_or_fileobj=self.folder / "large.bin", path_in_repo=path, repo_id=self.name)
            self.holds(path, self.read(path) == data)
        (self.folder / "parts.bin").write_bytes(data * 7)  # in parts, where LFS takes it
        self.api.upload_file(path_or_fileobj=self.folder / "parts.bin", path_in_repo="parts.bin", repo_id=self.name)
        self.holds("parts.bin", self.read("parts.bin") == data * 7)
        self.api.create_commit(self.name, [CommitOperationCopy("large.bin", "copy.bin")], commit_message="copy")
        self.holds("a large copy", self.read("copy.bin") == data)

    def view(self) -> None:
        """Check that models of other formats open as safetensors, by views of revisions."""
        for case in GOLDEN:
            name = f"{self.name}-{case}"
            self.api.create_repo(name)
            self.api.upload_folder(
                folder_path=MODELS / case, repo_id=name, ignore_patterns=["expected.json", "how.txt"]
            )
            with self.raises(EntryNotFoundError):
                hub.hf_hub_download(name, "model.safetensors")
            path = hub.hf_hub_download(name, "model.safetensors", revision="views/main")
            expected = {
                each["name"]: each for each in json.loads((MODELS / case / "expected.json").read_text())["tensors"]
            }
            with safe_open(path, "numpy") as file:
                held = {tensor: file.get_tensor(tensor) for tensor in file.keys() if _is_numpy(file, tensor)}  # noqa: SIM118
            wrong = [
                tensor for tensor, array in held.items()
                if hashlib.sha256(array.tobytes()).hexdigest() != expected[tensor]["sha256"]
            ]  # fmt: skip
            self.holds(f"{case}: every element", held and not wrong)
            snapshot = Path(hub.snapshot_download(name, revision="views/main"))
            self.holds(f"{case}: a snapshot", (snapshot / "model.safetensors").read_bytes() == Path(path).read_bytes())
            told = self.api.get_safetensors_metadata(name, revision="views/main")
            self.holds(
                f"{case}: the head alone", held.keys() <= told.files_metadata["model.safetensors"].tensors.keys()
            )
            self.api.delete_repo(name)

    def keep_data(self) -> None:
        """Check that a dataset of the same name is another repository."""
        self.api.create_repo(self.name, repo_type="dataset")
        self.api.upload_file(path_or_fileobj=b"1,2\n", path_in_repo="t.csv", repo_id=self.name, repo_type="dataset")
        got = Path(hub.hf_hub_download(self.name, "t.csv", repo_type="dataset")).read_bytes()
        self.holds("a dataset", got == b"1,2\n")
        self.api.delete_repo(self.name, repo_type="dataset")
        self.holds("the model stays", self.api.repo_exists(self.name))
        self.api.delete_repo(self.name)
        self.holds("it is gone", not self.api.repo_exists(self.name))


def _is_numpy(file: safe_open, tensor: str) -> bool:
    return file.get_slice(tensor).get_dtype() in NUMPY  # type: ignore[no-untyped-call]


def main() -> None:
    """Make all calls and print their number."""
    with TemporaryDirectory() as folder:
        calls = Calls(Path(folder))
        parts = [
            calls.create,
            calls.push,
            calls.miss,
            calls.look,
            calls.refer,
            calls.change,
            calls.push_much,
            calls.view,
        ]
        for part in (*parts, calls.keep_data):
            part()
        print(f"huggingface_hub {hub.__version__}: {calls.count} checks hold")


if __name__ == "__main__":
    main()
