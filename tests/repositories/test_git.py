"""Histories in git's form: ids equal git's ids, follow from commits alone, and are stored once."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime

import pytest
from tests.support.repositories import change
from tests.support.stores import opened

from protoslice.errors import NotFound, StorageUnavailable, Unsupported
from protoslice.facts import File
from protoslice.repositories import MAIN, Author, Commit, Ref, Repositories, Repository, git_history
from protoslice.repositories.git_format import attributes_of, blob_id, commit_of, id_of, is_plain, trees_of
from protoslice.repositories.git_history import GitHistory
from protoslice.storage import MemoryStorage

FILES = {
    "README.md": b"# A model\n", "a.txt": b"a", "a/b.json": b"{}", "a.b/c": b"c" * 100, "model.bin": bytes(300),
    "empty.bin": b"", "big.json": b"j" * 70_000, "üß/x y.md": b"x",
}  # fmt: skip
TREE = "b0d0ab919497644d45b0063e4f506787786f97b5"
FIRST = "b011f8040fcc9be71fc29867c6d74f0845858c45"
SECOND = "887c2ec59b084e12f5d0ce9cc31ca7acccd99045"
"""The ids that git 2.39.5 (`git write-tree`, `git commit-tree`) computed for these files and the two commits below."""


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def test_ids_of_trees_and_commits_are_those_of_git() -> None:
    files = {path: File(path, len(data), digest(data)) for path, data in FILES.items()}
    trees = trees_of(files, {digest(data): blob_id(data) for data in FILES.values()})
    assert trees.root == TREE
    author, time = Author("First", "Of two", "Ann B"), datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    first = id_of(commit_of(Commit(author=author, time=time), TREE, ""))
    second = commit_of(Commit(author=Author("Second"), time=time.replace(second=6)), TREE, first)
    assert (first, id_of(second)) == (FIRST, SECOND)


@pytest.mark.parametrize("user", ["<>", "a\n<b>", "", "x\0y"])
def test_an_author_cannot_add_lines_to_a_commit(user: str) -> None:
    made = commit_of(Commit(author=Author("t", "", user)), TREE, FIRST).partition(b"\0")[2]
    assert [line.split(b" ")[0] for line in made.partition(b"\n\n")[0].split(b"\n")] == [
        b"tree", b"parent", b"author", b"committer"
    ]  # fmt: skip
    assert made.count(b"<") == made.count(b">") == 2


@pytest.mark.parametrize("path", [".git/config", "a/.GIT/hooks/x", "git~1/x", ".git ", "x/.git./y"])
def test_paths_that_git_refuses_are_left_out(path: str) -> None:
    files = {each: File(each, 1, digest(b"x")) for each in (path, "a.md")}
    assert list(trees_of(files, {digest(b"x"): blob_id(b"x")}).files.values()) == ["a.md"]


@pytest.mark.parametrize("path", [".gitattributes", ".gitattributes/a.md", "x/.gitattributes", "x/.GitAttributes"])
@pytest.mark.parametrize("other", ["a.md", "a.bin"])
def test_attributes_are_ours_alone(path: str, other: str) -> None:
    files = {each: File(each, 1, digest(b"x")) for each in (path, other)}
    blobs = {digest(b"x"): blob_id(b"x")}
    assert trees_of(files, blobs).root == trees_of({other: files[other]}, blobs).root


def test_large_text_files_are_named() -> None:
    made = attributes_of(["big.json", 'a "b[*]\\.md', "model.bin"]).decode()
    assert made.startswith("#")
    assert made.endswith(
        '"/a \\"b\\\\[\\\\*]\\\\\\\\.md" filter=lfs diff=lfs merge=lfs -text\n'
        "/big.json filter=lfs diff=lfs merge=lfs -text\n"
    )
    assert "model.bin" not in made


@pytest.mark.parametrize(
    ("path", "size", "plain"),
    [("a.md", 65536, True), ("a.md", 65537, False), ("a.MD", 1, False), ("x/LICENSE", 1, True), ("md", 1, False),
     ("model.bin", 1, False), ("model.bin", 0, True), (".gitattributes", 1, True)],
)  # fmt: skip
def test_small_text_files_and_empty_files_are_plain(path: str, size: int, plain: bool) -> None:
    assert is_plain(path, size) is plain


async def checked_out(made: Repository, name: str = MAIN) -> tuple[str, dict[str, bytes], str]:
    """Return a branch's id, the files of its tree as git has them, and the id of its parent; check all ids."""
    git = GitHistory(made)
    refs = dict(await git.refs())

    async def object(id: str, kind: bytes) -> bytes:
        found = await git.object(id)
        assert id_of(found) == id
        head, _, content = found.partition(b"\0")
        assert head == b"%b %d" % (kind, len(content))
        return content

    async def walk(id: str, prefix: str) -> dict[str, bytes]:
        content, files = await object(id, b"tree"), dict[str, bytes]()
        while content:
            entry, _, rest = content.partition(b"\0")
            mode, _, path = entry.partition(b" ")
            below, content = rest[:20].hex(), rest[20:]
            whole = prefix + path.decode()
            files |= await walk(below, whole + "/") if mode == b"40000" else {whole: await object(below, b"blob")}
        return files

    id = refs[f"refs/heads/{name}"]
    lines = dict(line.split(" ", 1) for line in (await object(id, b"commit")).decode().split("\n\n")[0].split("\n"))
    return id, await walk(lines["tree"], ""), lines.get("parent", "")


def pointer(data: bytes) -> bytes:
    return f"version https://git-lfs.github.com/spec/v1\noid sha256:{digest(data)}\nsize {len(data)}\n".encode()


def as_in_git(files: Mapping[str, bytes]) -> dict[str, bytes]:
    return {path: data if is_plain(path, len(data)) else pointer(data) for path, data in files.items()}


async def test_a_branch_has_plain_files_and_pointers_and_its_parents(repositories: Repositories) -> None:
    made = await repositories.create("m")
    await change(made, FILES)
    first, files, parent = await checked_out(made)
    del files[".gitattributes"]
    assert (files, parent) == (as_in_git(FILES), "")
    await change(made, {"model.bin": b"new", "sub/x.md": b"new"})
    second, files, parent = await checked_out(made)
    del files[".gitattributes"]
    assert (files, parent) == (as_in_git(FILES | {"model.bin": b"new", "sub/x.md": b"new"}), first)
    await made.create("tags", "v1", "main")
    assert dict(await GitHistory(made).refs()) == {"refs/heads/main": second, "refs/tags/v1": second}
    assert (await made.commit(first)).number == 1
    with pytest.raises(NotFound):
        await GitHistory(made).object("0" * 40)


async def test_large_trees_are_computed_again(repositories: Repositories, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(git_history, "_INLINE", 10)
    made = await repositories.create("m")
    await change(made, FILES)
    assert (await checked_out(made))[1]["README.md"] == FILES["README.md"]


async def test_a_replica_and_a_new_index_have_the_same_ids(repositories: Repositories, storage: MemoryStorage) -> None:
    made = await repositories.create("m")
    for number in range(4):
        await change(made, {"a.bin": b"%d" % number, f"{number}.md": b"x"})
    refs = await GitHistory(made).refs()
    await made.git.clear()
    async with opened(storage, database=made.stores.database) as stores:
        other = await Repositories(stores).get("m")
        assert await GitHistory(other).refs() == refs


async def test_a_long_history_is_prepared_by_several_requests(
    repositories: Repositories, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = await repositories.create("m")
    for number in range(5):
        await change(made, {"a.bin": b"%d" % number})
    whole = await GitHistory(made).refs()
    await made.git.clear()
    monkeypatch.setattr(git_history, "_SECONDS", -1)
    for _ in range(4):
        with pytest.raises(StorageUnavailable):
            await GitHistory(made).refs()
    assert await GitHistory(made).refs() == whole


async def test_commits_whose_stores_were_removed_are_left_out(repositories: Repositories) -> None:
    made = await repositories.create("m")
    first = await change(made, {"a.md": b"1"})
    gone = await change(made, {"a.md": b"2", "only-here.bin": b"x"})
    await change(made, {"a.md": b"3"})
    before, _, _ = await checked_out(made)
    assert gone.store is not None
    await made.stores.delete(gone.store)
    after, files, parent = await checked_out(made)
    assert after != before
    assert (files["a.md"], parent) == (b"3", (await GitHistory(made).refs() and await id_in_git(made, first)))


async def id_in_git(made: Repository, commit: Commit) -> str:
    assert commit.place is not None
    return (await made.git.commits([commit.place]))[commit.place]


async def test_a_name_below_another_is_left_out(repositories: Repositories) -> None:
    made = await repositories.create("m")
    await change(made, {"a.md": b"1"})
    for kind, name in (("heads", "main/x"), ("heads", "a.lock"), ("heads", "b."), ("tags", "main")):
        await made.create(kind, name)  # type: ignore[arg-type]
    assert [name for name, _ in await GitHistory(made).refs()] == ["refs/heads/main", "refs/tags/main"]


@pytest.mark.parametrize(
    ("names", "kept"),
    [
        (["a/b", "a"], ["tags/a/b"]),
        (["a", "a/b"], ["tags/a"]),
        (["a/b/c", "a/b", "a", "ab"], ["tags/a/b/c", "tags/ab"]),
    ],
)
async def test_of_a_ref_and_one_below_it_the_first_is_kept(names: list[str], kept: list[str]) -> None:
    async def refs() -> AsyncIterator[Ref]:
        for name in names:
            yield Ref("tags", name, Commit())

    assert [ref.key async for ref in git_history._nameable(refs())] == kept


async def test_a_commit_of_too_many_folders_is_refused(
    repositories: Repositories, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(git_history, "_FOLDERS", 4)
    made = await repositories.create("m")
    await change(made, {"a/b/c/x.md": b"1", "a/b/d/x.md": b"1"})
    await GitHistory(made).refs()
    await change(made, {"e/x.md": b"1"})
    with pytest.raises(Unsupported, match="more than 4 folders"):
        await GitHistory(made).refs()


async def test_a_text_like_a_pointer_is_not_taken_for_the_file(repositories: Repositories) -> None:
    data = b"weights"
    both = {"model.bin": data, "z.txt": pointer(data)}
    for name, changes in {
        "before": [{"z.txt": pointer(data)}, {"model.bin": data}],
        "beside": [both],
        "after": [{"model.bin": data}, {"z.txt": pointer(data)}],
        "only": [{"z.txt": pointer(data)}],
    }.items():
        made = await repositories.create(name)
        for files in changes:
            await change(made, files)
        _, files, _ = await checked_out(made)
        assert files["z.txt"] == pointer(data)
        places = await GitHistory(made).places([(digest(data), len(data))])
        assert [path for _, path in places.values()] == ([] if name == "only" else ["model.bin"]), name


async def test_refs_whose_ids_are_known_load_no_history(
    repositories: Repositories, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = await repositories.create("m")
    await change(made, {"a.md": b"1"})
    for number in range(3):
        await made.create("heads", f"b{number}")
    before = await GitHistory(made).refs()
    monkeypatch.setattr(type(made.log), "ancestors", None)
    assert (len(before), await GitHistory(made).refs()) == (4, before)


async def test_an_empty_repository_has_no_refs(repositories: Repositories) -> None:
    made = await repositories.create("m")
    assert await GitHistory(made).refs() == []
    await change(made, {"a": b"1"})
    await change(made, {"a": None})
    assert (await checked_out(made))[1] == {}
