"""Downloads: whole or in pieces, resumed, in parallel, and with errors for wrong bytes.

Stores of several files: they are fetched in parallel with reports of progress, and nothing is requested twice. The
cache: it keeps its size, removes the oldest content first, and is always verified.
"""

from __future__ import annotations

import base64
import hashlib
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from tests.support.serve import LiveServer
from tests.support.wire import Fault, FaultyProxy, in_a_thread

from protoslice.client import Cache, Client, Downloaded
from protoslice.client.download import remote
from protoslice.client.download.files import same_file
from protoslice.client.download.partial import PartialFile
from protoslice.client.download.stores import SMALL_FILE, each_file
from protoslice.client.http.digests import digest_of
from protoslice.client.http.ranges import ObjectInfo, check_range
from protoslice.client.threads import in_order
from protoslice.errors import (
    Conflict,
    IntegrityError,
    InvalidInput,
    NotFound,
    StorageDenied,
    StorageError,
    StorageUnavailable,
)
from protoslice.facts import File, Store

GRAPH = "tensorflow.GraphDef"
MIB = 1 << 20


@pytest.fixture(scope="module")
def stores(client: Client, versions: Any) -> tuple[Store, Store]:
    """Push both versions, and return their stores."""
    old = client.push(versions.old_path, type=GRAPH, tags=["down:1"]).store
    return old, client.push(versions.new_path, type=GRAPH, tags=["down:2"]).store


@pytest.fixture
def ours(proxy: FaultyProxy) -> Any:
    with Client(proxy.url, timeout_seconds=1.0, attempts=3, backoff_seconds=0.001) as client:
        yield client


def part_files(folder: Path) -> list[Path]:
    return sorted(folder.glob(".*.part"))


def parts(length: int) -> Iterator[int]:
    """Return the lengths of the requests for `length` bytes over several connections, except the first request."""
    yield min(length, MIB)
    for at in range(MIB, length, remote.PART):
        yield min(remote.PART, length - at)


def longer_ones(length: int) -> Iterator[int]:
    """Return the lengths of the requests for `length` bytes over one connection: they double up to 4 MiB."""
    wanted = MIB
    while length:
        yield min(wanted, length)
        length, wanted = length - min(wanted, length), min(2 * wanted, 4 * MIB)


@pytest.mark.parametrize(("fast", "lengths"), [(1 << 60, parts), (1, longer_ones)], ids=["slow", "fast"])
def test_a_file_comes_by_as_many_connections_as_it_needs(
    ours: Client,
    proxy: FaultyProxy,
    stores: tuple[Store, Store],
    versions: Any,
    tmp_path: Path,
    fast: int,
    lengths: Any,
) -> None:
    proxy.done.clear()
    seen: list[tuple[int, int | None]] = []
    judging = patch.object(remote, "check_range", wraps=check_range)
    with (
        patch.object(remote, "SINGLE_STREAM_RATE", fast),
        patch.object(remote, "SINGLE_STREAM_STEPS", (MIB, 4 * MIB)),
        judging as validated,
    ):
        (done,) = ours.download("down:1", tmp_path / "a", progress=lambda *now: seen.append(now))
    assert done == Downloaded(tmp_path / "a", len(versions.old), len(versions.old))
    assert (tmp_path / "a").read_bytes() == versions.old
    assert not any("/pieces" in path for _, path, _ in proxy.done), "no cache needs them"
    asked = [end - start for _, _, start, end, _ in (call.args for call in validated.call_args_list)]
    assert sorted(asked) == sorted([remote.DIGESTED, *lengths(len(versions.old) - remote.DIGESTED)])
    assert [at for at, _ in seen] == sorted(at for at, _ in seen)
    assert seen[-1] == (len(versions.old), len(versions.old))
    assert part_files(tmp_path) == []


def test_what_has_arrived_is_what_there_was_when_it_was_asked_for(tmp_path: Path) -> None:
    """Pieces are hashed in a thread while more pieces are written."""
    with PartialFile(tmp_path / "a", ObjectInfo(size=10, etag='"a"', sha256=None, headers={})) as partial:
        partial.write(b"12345")
        pieces = partial.pieces()
        partial.write(b"67890")
        assert b"".join(pieces) == b"12345"


@pytest.mark.parametrize("parallel", [1, 3])
def test_source_reads_by_as_many_requests_as_its_client_has(
    parallel: int, service: LiveServer, stores: tuple[Store, Store], versions: Any
) -> None:
    with (
        Client(service.url, parallel=parallel) as client,
        patch.object(remote, "in_order", wraps=in_order) as used,
    ):
        assert client.source("down:1", "merge").read(1, 3 * MIB) == versions.old[1 : 1 + 3 * MIB]
    assert [call.args[1] for call in used.call_args_list] == [parallel]


def test_what_is_there_is_not_fetched(ours: Client, stores: tuple[Store, Store], tmp_path: Path) -> None:
    ours.download("down:1", tmp_path / "a")
    (done,) = ours.download("down:1", tmp_path / "a")
    assert done.fetched == 0
    assert same_file(tmp_path / "a", stores[0].size, stores[0].files[0].sha256)
    assert not same_file(tmp_path / "a", stores[1].size, stores[1].files[0].sha256)


def test_what_broke_off_goes_on_where_it_was(
    ours: Client, proxy: FaultyProxy, stores: tuple[Store, Store], versions: Any, tmp_path: Path
) -> None:
    proxy.script[:] = [Fault(), Fault(), Fault(), *[Fault("reset")] * 40]
    with pytest.raises(StorageUnavailable):
        ours.download("down:1", tmp_path / "a")
    assert not (tmp_path / "a").exists()
    (part,) = part_files(tmp_path)
    kept = part.stat().st_size
    assert part.read_bytes() == versions.old[:kept]
    proxy.script.clear()
    (done,) = ours.download("down:1", tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == versions.old
    assert done.fetched <= len(versions.old) - kept + (1 << 20)


def test_what_another_version_left_is_not_gone_on_with(
    ours: Client, proxy: FaultyProxy, stores: tuple[Store, Store], versions: Any, tmp_path: Path
) -> None:
    proxy.script[:] = [Fault(), Fault(), Fault(), *[Fault("reset")] * 40]
    with pytest.raises(StorageUnavailable):
        ours.download("down:1", tmp_path / "a")
    proxy.script.clear()
    ours.download("down:2", tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == versions.new


def test_what_was_left_may_have_been_damaged(
    ours: Client, proxy: FaultyProxy, stores: tuple[Store, Store], versions: Any, tmp_path: Path
) -> None:
    """A damaged file is downloaded again."""
    proxy.script[:] = [Fault(), Fault(), Fault(), *[Fault("reset")] * 40]
    with pytest.raises(StorageUnavailable):
        ours.download("down:1", tmp_path / "a")
    proxy.script.clear()
    (part,) = part_files(tmp_path)
    kept = bytearray(part.read_bytes())
    kept[1000] ^= 1
    part.write_bytes(kept)
    (done,) = ours.download("down:1", tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == versions.old
    assert done.fetched == len(versions.old)
    assert part_files(tmp_path) == []


def test_a_proxy_that_knows_no_ranges(
    ours: Client, proxy: FaultyProxy, stores: tuple[Store, Store], versions: Any, tmp_path: Path
) -> None:
    """Every answer has the whole file; a resumed download skips the bytes it has."""
    proxy.script[:] = [Fault(), Fault("whole"), Fault("cut", 0.7), *[Fault("whole")] * 40]
    ours.download("down:1", tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == versions.old
    proxy.script[:] = [Fault("whole")] * 40
    with pytest.raises(IntegrityError, match="drops the Range header"):
        ours.merge("down:1", "node[1]")
    proxy.script.clear()


def test_a_service_that_never_gives_the_right_bytes(
    ours: Client, proxy: FaultyProxy, stores: tuple[Store, Store], tmp_path: Path
) -> None:
    proxy.script[:] = [Fault(), *[Fault("flip")] * 400]
    with pytest.raises(IntegrityError):
        ours.download("down:1", tmp_path / "a")
    proxy.script.clear()
    assert list(tmp_path.iterdir()) == []


def test_the_cache_spares_what_is_the_same(
    proxy: FaultyProxy, stores: tuple[Store, Store], versions: Any, tmp_path: Path
) -> None:
    with Client(proxy.url, cache=tmp_path / "cache") as ours:
        ours.download("down:1", tmp_path / "a")
        before = proxy.sent_up + proxy.sent_down
        (done,) = ours.download("down:2", tmp_path / "b")
        moved = proxy.sent_up + proxy.sent_down - before
        assert (tmp_path / "b").read_bytes() == versions.new
        assert done.fetched <= moved < 1.1 * len(versions.changed)
        for path in (tmp_path / "cache").rglob("*"):
            if path.is_file():
                path.write_bytes(b"damage" + path.read_bytes()[6:])
        ours.download("down:2", tmp_path / "c")
        assert (tmp_path / "c").read_bytes() == versions.new


def test_the_cache_and_a_download_that_broke_off(
    proxy: FaultyProxy, stores: tuple[Store, Store], versions: Any, tmp_path: Path
) -> None:
    """The download continues in the middle of a piece."""
    with Client(proxy.url, cache=tmp_path / "cache", attempts=2, backoff_seconds=0.001) as ours:
        facts = ObjectInfo(stores[0].size, f'"sha256-{stores[0].files[0].sha256}"', None, {})
        with PartialFile(tmp_path / "a", facts) as partial:
            partial.write(versions.old[:1_000_001])
        ours.download("down:1", tmp_path / "a")
        assert (tmp_path / "a").read_bytes() == versions.old


def test_chunks_come_from_the_cache(
    client: Client, proxy: FaultyProxy, stores: tuple[Store, Store], tmp_path: Path
) -> None:
    with Client(proxy.url, cache=Cache(tmp_path / "cache")) as ours:
        chunks = list(ours.chunks("down:1"))
        first = [ours.chunk("down:1", chunk) for chunk in chunks]
        proxy.done.clear()
        assert [ours.chunk("down:1", chunk) for chunk in chunks] == first
        assert proxy.done == []
        assert [client.chunk("down:1", n) for n in range(len(chunks))] == first
        assert [hashlib.sha256(data).hexdigest() for data in first] == [chunk.sha256 for chunk in chunks]


def test_a_view_is_downloaded_too(ours: Client, stores: tuple[Store, Store], tmp_path: Path) -> None:
    """The digest of this view is not known before; it comes in answers that have their own digests."""
    with patch.object(remote, "DIGESTED", 200_000):
        (done,) = ours.download("down:1", tmp_path / "m.cpb", view="cpb")
    import protoslice

    with protoslice.open(tmp_path / "m.cpb") as proto:
        assert hashlib.sha256(bytes(proto.merge())).hexdigest() == stores[0].files[0].sha256
    assert done.size == (tmp_path / "m.cpb").stat().st_size


def test_where_files_go(client: Client, stores: tuple[Store, Store], tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    assert client.download("down:1", tmp_path / "there")[0].path == tmp_path / "there" / "graph.pb"
    assert client.download("down:1", tmp_path / "new" / "name")[0].path == tmp_path / "new" / "name"
    with pytest.raises(NotFound):
        client.download("nothing", tmp_path / "x")
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StorageError):
        client.download("down:1", tmp_path / "file" / "below")


def test_a_folder_that_may_not_be_written(client: Client, stores: tuple[Store, Store], tmp_path: Path) -> None:
    with patch("os.open", side_effect=PermissionError(13, "Permission denied")), pytest.raises(StorageDenied):
        client.download("down:1", tmp_path / "x")


@pytest.mark.parametrize("path", ["../up", "/abs", "a//b", "a/../../b", "", ".", "a\\b", "a\0b"])
def test_a_service_cannot_write_elsewhere(path: str, tmp_path: Path) -> None:
    from protoslice.client.download.stores import paths_in

    with pytest.raises(IntegrityError):
        paths_in(tmp_path, [path])


def test_parts_of_one_entity_tag_and_two_digests_are_not_combined() -> None:
    """A service, or a cache in front of it, returns another file under the old entity tag."""
    data, digests = bytes(3 * MIB), [b"a", b"a", b"b"]

    class Changing(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            begin, end = (int(each) for each in self.headers["range"].removeprefix("bytes=").split("-"))
            part, whole = data[begin : end + 1], hashlib.sha256(digests.pop(0)).digest()
            self.send_response(206)
            self.send_header("content-length", str(len(part)))
            self.send_header("content-range", f"bytes {begin}-{end}/{len(data)}")
            self.send_header("etag", '"same"')
            self.send_header("repr-digest", f"sha-256=:{base64.b64encode(whole).decode()}:")
            self.send_header("content-digest", digest_of(part))
            self.end_headers()
            self.wfile.write(part)

        def log_message(self, *_: Any) -> None:
            pass

    with (
        in_a_thread(ThreadingHTTPServer(("127.0.0.1", 0), Changing)) as place,
        Client(f"http://{place}", attempts=1) as client,
    ):
        source = client.source("a" * 64, "files/a")
        assert source.read(MIB, 10) == bytes(10)
        with pytest.raises(Conflict, match="changed on the service"):
            source.read(2 * MIB, 10)


def test_two_downloads_of_the_same_at_once(tmp_path: Path) -> None:
    facts = ObjectInfo(4, '"tag"', None, {})
    with PartialFile(tmp_path / "a", facts) as first, PartialFile(tmp_path / "a", facts) as second:
        first.write(b"1234")
        second.write(b"1234")
        first.finish()
        second.finish()
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a").read_bytes() == b"1234"


def test_more_than_there_should_be_is_begun_anew(tmp_path: Path) -> None:
    with PartialFile(tmp_path / "a", ObjectInfo(4, '"tag"', None, {})) as first:
        first.write(b"123456")
    with PartialFile(tmp_path / "a", ObjectInfo(4, '"tag"', None, {})) as second:
        assert second.size == 0


SIZES = [10, SMALL_FILE, SMALL_FILE + 1, 20, SMALL_FILE + 2, 0]


def files(sizes: list[int]) -> list[File]:
    return [File(path=f"f{number}", size=size, sha256=None) for number, size in enumerate(sizes)]


def test_small_files_come_side_by_side_and_large_ones_alone() -> None:
    together = threading.Barrier(4)

    def fetch(file: File, progress: object) -> str:
        if file.size <= SMALL_FILE:
            together.wait(60)
        else:
            assert threading.current_thread() is threading.main_thread()
        return file.path

    assert each_file(files(SIZES), fetch, 4, None) == [f"f{number}" for number in range(6)]


def test_progress_is_told_of_all_together() -> None:
    seen: list[tuple[int, int | None]] = []

    def fetch(file: File, progress: object) -> None:
        assert callable(progress)
        for done in (file.size // 2, file.size // 4, file.size):  # a new download, not a continued one
            progress(done, file.size)

    each_file(files(SIZES), fetch, 4, lambda *now: seen.append(now))
    assert {total for _, total in seen} == {sum(SIZES)}
    assert seen[-1][0] == sum(SIZES)
    assert len(seen) == 3 * len(SIZES)


def test_the_first_that_fails_ends_the_others() -> None:
    begun: list[str] = []
    told = threading.Event()

    def fetch(file: File, progress: object) -> None:
        begun.append(file.path)
        if file.path == "f0":
            raise StorageUnavailable(file.path)
        told.wait(60)

    with pytest.raises(StorageUnavailable, match="f0"):
        each_file(files([1] * 1000), fetch, 2, None)
    told.set()
    for thread in threading.enumerate():
        if thread.name == "protoslice-file":
            thread.join(60)
    assert len(begun) <= 3


def test_a_folder_comes_back_and_its_pieces_are_asked_for_once(
    client: Client, proxy: FaultyProxy, service: LiveServer, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    (source / "ünder").mkdir(parents=True)
    contents = {"a.pb": b"\x0a\x01a", "large": os.urandom(5 << 20), **{f"ünder/{n}": os.urandom(n) for n in range(40)}}
    for name, content in contents.items():
        (source / name).write_bytes(content)
    store = client.push(source, root="a.pb").store
    seen: list[int] = []
    for again, name in enumerate(("one", "two")):
        proxy.done.clear()
        with Client(proxy.url, cache=Cache(tmp_path / "cache")) as ours:
            got = ours.download(store.id, tmp_path / name, progress=lambda done, total: seen.append(done))
        assert {str(each.path.relative_to(tmp_path / name)): each.path.read_bytes() for each in got} == contents
        assert sum("/pieces" in path for _, path, _ in proxy.done) == 1
        assert [each.path.name for each in got] == [file.path.rpartition("/")[2] for file in store.files]
        assert sum(each.fetched for each in got) == (0 if again else store.size)
    assert seen[-1] == store.size


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def put(cache: Cache, number: int, used_at: float | None = None) -> str:
    data = b"%05d" % number * 200
    cache.put(sha(data), data)
    if used_at is not None:
        os.utime(cache.folder / sha(data)[:2] / sha(data), (used_at, used_at))
    return sha(data)


def test_what_is_put_is_got(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    name = put(cache, 1)
    assert cache.has(name, 1000)
    assert cache.get(name, 1000) == b"00001" * 200
    assert cache.get(name, 999) is None
    assert not cache.has(sha(b""), 0)
    assert cache.get(sha(b""), 0) is None


def test_damage_is_noticed_and_removed(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    name = put(cache, 1)
    (tmp_path / name[:2] / name).write_bytes(b"x" * 1000)
    assert cache.get(name, 1000) is None
    assert not cache.has(name, 1000)


def test_the_least_recently_used_go_first(tmp_path: Path) -> None:
    cache = Cache(tmp_path, max_bytes=3000)
    names = [put(cache, number, used_at=1000.0 + number) for number in range(3)]
    assert cache.get(names[0], 1000) is not None
    put(cache, 3)
    cache.shrink()
    assert [cache.has(name, 1000) for name in names] == [True, False, True]
    assert size_of(tmp_path) <= 3000


def test_it_stays_within_its_size(tmp_path: Path) -> None:
    cache = Cache(tmp_path, max_bytes=20_000)
    for number in range(100):
        put(cache, number)
        assert size_of(tmp_path) <= 20_000 + 20_000 // 16 + 1000


def test_what_is_larger_than_all_of_it_is_not_kept(tmp_path: Path) -> None:
    cache = Cache(tmp_path, max_bytes=999)
    put(cache, 1)
    assert list(tmp_path.rglob("*")) == []


def test_what_a_dead_process_left_goes_first(tmp_path: Path) -> None:
    cache = Cache(tmp_path, max_bytes=2000)
    name = put(cache, 1)
    (tmp_path / name[:2] / ".new-dead").write_bytes(bytes(1500))
    cache.shrink()
    assert cache.has(name, 1000)
    assert size_of(tmp_path) == 1000
    cache.clear()
    assert size_of(tmp_path) == 0


def test_a_folder_that_cannot_be_written_costs_nothing_but_the_cache(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    cache = Cache(tmp_path / "file")
    name = put(cache, 1)
    assert cache.get(name, 1000) is None
    with pytest.raises(StorageError):
        cache.shrink()


@pytest.mark.parametrize("name", ["../../etc", "", "A" * 64, "0" * 63])
def test_names_that_are_no_digests(name: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput):
        Cache(tmp_path).get(name, 1)
    with pytest.raises(InvalidInput):
        Cache(tmp_path, max_bytes=-1)


WORK = """
import hashlib, sys
from protoslice.client import Cache
cache = Cache(sys.argv[1], max_bytes=50_000)
wrong = 0
for number in range(400):
    data = b"%05d" % (number % 90) * 200
    name = hashlib.sha256(data).hexdigest()
    cache.put(name, data)
    for other in range(number % 90 - 5, number % 90):
        there = b"%05d" % other * 200
        wrong += cache.get(hashlib.sha256(there).hexdigest(), 1000) not in (None, there)
print(wrong)
"""


def test_processes_share_it(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WORK, str(tmp_path)]
    workers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    assert [worker.communicate(timeout=120)[0] for worker in workers] == ["0\n"] * 3
    assert [worker.returncode for worker in workers] == [0, 0, 0]
    assert size_of(tmp_path) <= 50_000 + 3 * (50_000 // 16 + 1000)
