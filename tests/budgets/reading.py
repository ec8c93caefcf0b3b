"""The worst reads of a store."""

from __future__ import annotations

import json
from contextlib import ExitStack, suppress
from socket import MSG_PEEK
from typing import Any, Final

from tests.budgets.harness import Wire
from tests.budgets.materials import (
    EMPTY,
    FAR,
    PATHS,
    SHARDS,
    deep,
    empty_tensors,
    far,
    kept,
    large,
    long_paths,
    medium,
    meta_graphs,
    named_nodes,
    nodes,
    nothings,
    of_schema,
    shards,
    small,
    stream,
    versions,
)
from tests.budgets.rows import KIB, MIB, Make, Row, get, request, row

_FACTS: Final = 64 * KIB
"""The bytes that the artifact cache may take for a store of 40 kB; columns of tensors have a similar size."""
_STORE: Final = "/v1/stores/{ref}"
_RANGES: Final = "bytes=" + ",".join(f"{n}-{n}" for n in range(0, 64 * 200_000, 200_000))
_MANY_RANGES: Final = "bytes=" + ",".join(f"{n * 100}-" for n in range(5000))
_MASKS: Final = "&".join(f"fields=graph.node[{n}:12000].name" for n in range(400))
_ROUNDS: Final = 30
"""The requests that are answered one after the other, while an unread answer is sent as far as possible."""
_GLOBS: Final = "&".join(f"name=*a*b*{n:x}" for n in range(400))


def leaves_cpb(wire: Wire, store: str) -> int:
    """Request a file that must be hashed first, five times, and close each connection at once."""
    for _ in range(5):
        with wire.open() as connection:
            wire.send(connection, get(f"/v1/stores/{store}/cpb"))
    return 0


def leaves_file(wire: Wire, store: str) -> int:
    """Request a large file, read a little, and close the connection; five times."""
    for _ in range(5):
        with wire.open() as connection:
            wire.send(connection, get(f"/v1/stores/{store}/files/model.onnx"))
            wire.read(connection, 64 << 10)
    return 0


def stalled(path: str, count: int) -> Any:
    """Return a play (see `Row.play`) that requests `path` over many connections, and reads no answer."""

    def play(wire: Wire, given: Any) -> int:
        with ExitStack() as stack:
            readers = [stack.enter_context(wire.open()) for _ in range(count)]
            for reader in readers:
                wire.send(reader, get(path.format(store=given)))
            for reader in readers:
                reader.recv(1, MSG_PEEK)
            for _ in range(_ROUNDS):
                wire.exchange(get("/livez"))
        return 0

    return play


def pipelined(path: str, count: int) -> Any:
    """Return a play that requests `path` `count` times over one connection, and only then reads the answers."""

    def play(wire: Wire, given: Any) -> int:
        asked = f"GET {path.format(store=given)} HTTP/1.1\r\nhost: localhost\r\n".encode()
        with wire.open() as connection:
            connection.settimeout(3)
            data = (asked + b"\r\n") * count + asked + b"connection: close\r\n\r\n"
            with suppress(TimeoutError):  # the service rightly accepts no more before something is read
                connection.sendall(data)
            wire.sent += len(data)
            return wire.read(connection, 1 << 16)[0]

    return play


def in_ranges(path: str, count: int) -> Any:
    """Return a play that requests `path` byte by byte."""

    def play(wire: Wire, given: Any) -> int:
        asked = (get(path.format(store=given), range=f"bytes={n}-{n}") for n in range(count))
        statuses = {wire.exchange(request)[0] for request in asked}
        return statuses.pop() if len(statuses) == 1 else 0

    return play


def _read(name: str, worst: str, asked: str, given: Make, *, calls: int = 20, **more: Any) -> Row:
    """A row for a GET of a store; `asked` follows the route's name, or replaces it where the name is a template."""
    path = asked if "{" in name else name + asked
    return row(f"GET {_STORE}/{name}", worst, lambda it: get(f"/v1/stores/{it}/{path}"), given, calls=calls, **more)


def _asked(store: str, view: str, body: object) -> bytes:
    """A POST of JSON to a view of a store."""
    return request("POST", f"/v1/stores/{store}/{view}", json.dumps(body).encode(), content_type="application/json")


READING: Final = (
    row(
        f"GET {_STORE}/files/{{path:path}}", "64 ranges far apart",
        lambda store: get(f"/v1/stores/{store}/files/model.onnx", range=_RANGES), far, status=206, calls=64 + 20,
    ),
    row(
        f"GET {_STORE}/files/{{path:path}}", "five thousand ranges are ignored",
        lambda store: get(f"/v1/stores/{store}/files/model.onnx", range=_MANY_RANGES), small, calls=20,
    ),
    row(
        f"GET {_STORE}/files/{{path:path}}", "a file is asked for five times, and nobody waits for it", given=large,
        status=0, play=leaves_file, calls=40,
    ),
    row(
        f"GET {_STORE}/files/{{path:path}}", "ten thousand requests in a row and a reader that waits", given=small,
        play=pipelined("/v1/stores/{store}/files/model.onnx", 10_000), near=True, held=10_000, calls=20,
    ),
    row(
        f"GET {_STORE}/files/{{path:path}}", "a condition of 60 kB",
        lambda store: get(f"/v1/stores/{store}/files/model.onnx", if_none_match=",".join(['"a"'] * 15_000)), small,
        calls=20,
    ),
    _read(
        "files/{path:path}", "the index of a folder, of which thousands of paths of 900 tell", "files/", long_paths,
        held=20_000, work=600 * PATHS,
    ),
    _read(
        "archive.tar", "thousands of files of no bytes, with paths of 900", "", long_paths, held=12 * PATHS,
        got=3 * MIB, work=600 * PATHS,
    ),
    _read("metadata", "a plan of chunks in their hundreds", "", far),
    # small reads are recorded in the store's facts
    _read(
        "metadata", "thousands of chunks planned anew, by sizes", "?plan=policy", kept, work=50 * 5000,
        written_room=180 * KIB,
    ),
    _read("metadata", "two bytes of a type with 10 000 fields are opened", "", of_schema),
    row(
        f"GET {_STORE}/chunks/{{n}}", "a chunk shown as JSON",
        lambda store: get(f"/v1/stores/{store}/chunks/0", accept="application/json"), nodes, calls=20,
    ),
    _read("merge", "400 masks over 12 000 elements", f"?{_MASKS}", nodes, status=(200, 413, 422), held=20_000),
    # Each name is read with its block, and blocks of a distant storage stay in the cache.
    _read(
        "merge", f"the names of {FAR} tensors far apart", "?fields=graph.initializer[*].name", far, held=18_000,
        calls=FAR + 20, memory_room=40 * MIB,
    ),
    row(
        f"GET {_STORE}/merge", f"one mask over {FAR} tensors far apart, byte by byte", given=far, status=206,
        play=in_ranges("/v1/stores/{store}/merge?fields=graph.initializer[*].name", 64), calls=FAR + 64 + 20,
        work=60_000,
    ),
    row(
        f"GET {_STORE}/merge", "everything as JSON",
        lambda store: get(f"/v1/stores/{store}/merge", accept="application/json"), empty_tensors(9), calls=20,
        memory=32,
    ),
    *(
        row(
            f"GET {_STORE}/merge", f"{count} readers that read nothing", given=large, status=0,
            play=stalled("/v1/stores/{store}/merge", count), near=True, memory_room=2 * MIB + count * 256 * KIB,
            loop=200_000 + count * 10_000, calls=40 + count,
        )
        for count in (16, 400)
    ),
    # one waiting client causes 360 calls; five clients that wait separately cause 1 300
    row(
        f"GET {_STORE}/cpb", "asked for five times, and nobody waits for it", given=large, status=0, play=leaves_cpb,
        calls=450, loop=900_000, work=180_000,
    ),
    _read(
        "cpb", "chunks in their hundreds", "", far, held=13_000, calls=2 * FAR + 20, got=256 * MIB, loop=3900 * FAR,
        work=600 * FAR,
    ),
    _read(
        "records", "a hundred thousand records of changing length, framed anew", "?format=u32le", stream, got=2 * MIB,
        written_room=4 * _FACTS,
    ),
    _read(
        "records", "a value that a third of a hundred thousand records have at a path", "?key=1&value=1", stream,
        fresh=True, work=3_600_000, written_room=4 * _FACTS,
    ),
    _read(
        "records", "ten thousand records drawn at random, framed anew", "?sample=10000&format=tfrecord", stream,
        fresh=True, work=800_000, written_room=4 * _FACTS,
    ),
    _read(
        "records", "a field of each of a hundred thousand records", "?path=1", stream, fresh=True,
        written_room=4 * _FACTS,
    ),
    _read(
        "records", "a record of each of two hundred shards, of which nobody has asked for any", "", shards, fresh=True,
        held=14_000, calls=2 * SHARDS + 20, loop=2800 * SHARDS, work=1600 * SHARDS, written_room=120 * SHARDS,
    ),
    _read(
        "records/{n}", "the last of a hundred thousand records, of which nobody has asked for any", "records/99999",
        stream, fresh=True, written_room=4 * _FACTS,
    ),
    _read("tensors", "the first of 20 000 empty tensors", "?limit=1", empty_tensors(10), written_room=_FACTS),
    _read(
        "tensors", "a glob of many stars over 20 000 tensors", "?limit=1&name=" + "*a" * 400, empty_tensors(14),
        work=50 * 20_000, written_room=_FACTS,
    ),
    _read(
        "tensors/{name:path}", "every other element of a dimension, far apart", "tensors/weight-0?slice=::200000",
        medium, calls=100,
    ),
    _read("tensors/{name:path}", "every other element", "tensors/weight-0?slice=::2", medium, calls=30, got=9 * MIB),
    _read(
        "tensors/{name:path}", "statistics of every other element of 16 MiB", "tensors/weight-0/stats?slice=::2",
        medium, calls=60,
    ),
    # more work than is counted, so 2 000 tensors show the cost of one tensor
    _read(
        "safetensors", "20 000 empty tensors", "", empty_tensors(11), status=(200, 413, 422), got=3 * MIB, work=None,
        written_room=_FACTS,
    ),
    _read("safetensors", "2 000 empty tensors, counted step by step", "", empty_tensors(15, 2000), work=400 * 2000),
    _read("references.json", "2 000 empty tensors, counted step by step", "", empty_tensors(16, 2000), work=150 * 2000),
    _read(
        "safetensors", "400 globs over hundreds of tensors", "?" + _GLOBS, far, status=400, held=20_000, calls=FAR + 20,
        loop=1200 * FAR, work=600 * FAR, written_room=_FACTS,
    ),
    _read(
        "safetensors/{shard}", "2 000 empty tensors, counted step by step", "safetensors/model.safetensors?shards=1",
        empty_tensors(18, 2000), status=(200, 404), work=400 * 2000,
    ),
    row(
        f"POST {_STORE}/parts", "a thousand parts, the last of which is missing",
        lambda store: _asked(store, "parts", {"parts": [*[{"view": "tensors/weight-0"}] * 999, {"view": "chunks/9"}]}),
        medium, status=404, calls=60, work=1000 * 2000, loop=900 * 1000,
    ),
    row(
        f"POST {_STORE}/merge", "ten thousand fields",
        lambda store: _asked(store, "merge", {"fields": [f"graph.initializer[{n}].name" for n in range(10_000)]}), far,
        status=(200, 413), held=40_000, calls=60, work=1000 * 2000,
    ),
    _read("onnx/{file}", "2 000 empty tensors", "onnx/model.onnx", empty_tensors(17, 2000), work=400 * 2000),
    # each node is visited once for all parts
    _read(
        "onnx/{file}", "part of a graph of thousands of nodes", "onnx/single.onnx?outputs=none", nodes, status=404,
        work=800_000,
    ),
    _read(
        "references.json", "20 000 empty tensors", "", empty_tensors(12), status=(200, 413, 422), work=160 * EMPTY,
        written_room=_FACTS,
    ),
    _read("chunks", "with their digests", "?limit=1000", far, calls=4 * FAR + 20, loop=1500 * FAR),
    _read("signatures", "the last of 20 000 meta graphs, by its tags", "?tags=last", meta_graphs, calls=60),
    _read("signatures", "a page of 20 000 meta graphs that have none", "?limit=1000", meta_graphs, calls=60),
    *(
        _read("treemap", worst, "?depth=16&min_share=0", given, calls=100, work=150_000)
        for worst, given in (("16 levels", deep), ("12 000 nodes", nodes))
    ),
    _read(
        "graph", "500 of 12 000 nodes without links, searched for", "?limit=500&search=n", nodes, calls=100,
        work=500 * 600, written_room=160 * KIB,
    ),
    _read(
        "graph/blocks", "12 000 nodes without links", "?block=0", nodes, calls=100, work=150_000,
        written_room=160 * KIB,
    ),
    _read(
        "graph/between", "all of 12 000 nodes",
        "?start=graph.node[0]&start_nodes=12000&end=graph.node[0]&end_nodes=12000", nodes, calls=100, work=300_000,
        written_room=64 * KIB,
    ),
    _read("summary", "20 000 empty tensors", "", empty_tensors(17), work=240 * EMPTY, written_room=_FACTS),
    _read(
        "tensors", "2 000 empty tensors in the order of their names, backwards", "?sort=-name&search=a+b+c+d&limit=1",
        empty_tensors(18, 2000), work=300 * 2000, written_room=_FACTS,
    ),
    _read(
        "tensors", "a costly expression in the names of 2 000 empty tensors",
        "?regex=(e|em|emp)%2B%5Ba-z%5D%7B40%7D$&limit=1", empty_tensors(24, 2000), work=300 * 2000, written_room=_FACTS,
    ),
    _read(
        "tensortree", "2 000 empty tensors, as many nodes as may be", "?limit=4000", empty_tensors(26, 2000),
        work=800 * 2000, written_room=_FACTS,
    ),
    *(
        row(
            f"GET {_STORE}/diff", worst, lambda stores: get(f"/v1/stores/{stores[1]}/diff?before={stores[0]}"),
            versions(*models), calls=200, work=None, memory_room=40 * MIB, written_room=4 * _FACTS,
        )
        for worst, models in (
            ("12 000 nodes, all called otherwise", (named_nodes(b"n"), named_nodes(b"m"))),
            ("20 000 tensors without a name, and one more", (nothings(EMPTY, 21), nothings(EMPTY + 1, 21))),
        )
    ),
    row(
        f"GET {_STORE}/diff/{{name:path}}", "the last of 20 000 empty tensors",
        lambda stores: get(f"/v1/stores/{stores[1]}/diff/path:graph.initializer[19999]?before={stores[0]}&sample=0"),
        versions(nothings(EMPTY, 22), nothings(EMPTY, 23)), status=(200, 422), calls=40, work=170 * EMPTY,
        written_room=2 * _FACTS,
    ),
    row(
        f"GET {_STORE}/moves", "a page of 20 000 empty tensors, all called otherwise",
        lambda stores: get(f"/v1/stores/{stores[1]}/moves?before={stores[0]}&limit=1000"),
        versions(nothings(EMPTY, 27), nothings(EMPTY + 1, 27)), calls=60, work=170 * EMPTY, written_room=4 * _FACTS,
    ),
    _read("tree", "16 levels", "?depth=16&limit=1000", deep, calls=100),
    _read("tree", "a page of 12 000 nodes", "?path=graph.node&depth=16&limit=1000", nodes, calls=60),
    _read(
        "pieces", "extents in their hundreds", "?limit=1000", far, calls=4 * FAR + 20, loop=1600 * FAR,
        memory_room=40 * MIB, written_room=256 * KIB,
    ),
    # the weight of a thousand files is computed when their store is opened
    _read("pieces", "a thousand files", "?limit=1000", long_paths, held=14_000),
)  # fmt: skip
