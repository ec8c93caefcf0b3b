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
from tests.budgets.rows import KIB, MIB, Budget, Row, get, request

_FACTS: Final = 64 * KIB
"""Bytes that the artifact cache may take for a store of 40 kB: columns of tensors, of a similar size."""
_STORE: Final = "/v1/stores/{ref}"
_RANGES: Final = "bytes=" + ",".join(f"{n}-{n}" for n in range(0, 64 * 200_000, 200_000))
_MANY_RANGES: Final = "bytes=" + ",".join(f"{n * 100}-" for n in range(5000))
_MASKS: Final = "&".join(f"fields=graph.node[{n}:12000].name" for n in range(400))
_ROUNDS: Final = 30
"""Requests answered in sequence, during which an answer that nobody reads gets as far as it can."""
_GLOBS: Final = "&".join(f"name=*a*b*{n:x}" for n in range(400))


def leaves_cpb(wire: Wire, store: str) -> int:
    """Asks five times for a file that has to be hashed first, and leaves."""
    for _ in range(5):
        with wire.open() as connection:
            wire.send(connection, get(f"/v1/stores/{store}/cpb"))
    return 0


def leaves_file(wire: Wire, store: str) -> int:
    """Asks for a large file, takes a little and leaves."""
    for _ in range(5):
        with wire.open() as connection:
            wire.send(connection, get(f"/v1/stores/{store}/files/model.onnx"))
            wire.read(connection, 64 << 10)
    return 0


def stalled(path: str, count: int) -> Any:
    """A play that asks for `path` over many connections, and reads nothing of any answer."""

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
    """Exchange that asks for `path` `count` times over one connection, and reads only after sending all."""

    def play(wire: Wire, given: Any) -> int:
        asked = f"GET {path.format(store=given)} HTTP/1.1\r\nhost: localhost\r\n".encode()
        with wire.open() as connection:
            connection.settimeout(3)
            data = (asked + b"\r\n") * count + asked + b"connection: close\r\n\r\n"
            with suppress(TimeoutError):  # the service takes no more before something is read, as it should
                connection.sendall(data)
            wire.sent += len(data)
            return wire.read(connection, 1 << 16)[0]

    return play


def in_ranges(path: str, count: int) -> Any:
    """A play that asks for `path` byte by byte."""

    def play(wire: Wire, given: Any) -> int:
        asked = (get(path.format(store=given), range=f"bytes={n}-{n}") for n in range(count))
        statuses = {wire.exchange(request)[0] for request in asked}
        return statuses.pop() if len(statuses) == 1 else 0

    return play


def _view(name: str, worst: str, query: str, **more: Any) -> Row:
    """A row for a view whose whole path is in its template."""
    return Row(
        route=f"GET {_STORE}/{name}", worst=worst, ask=lambda store: get(f"/v1/stores/{store}/{name}{query}"), **more
    )


def _asked(store: str, view: str, body: object) -> bytes:
    """A POST of JSON to a view of a store."""
    return request("POST", f"/v1/stores/{store}/{view}", json.dumps(body).encode(), content_type="application/json")


READING: Final = (
    Row(
        route=f"GET {_STORE}/files/{{path:path}}",
        worst="64 ranges far apart",
        ask=lambda store: get(f"/v1/stores/{store}/files/model.onnx", range=_RANGES),
        given=far,
        status=206,
        budget=Budget(calls=64 + 20),
    ),
    Row(
        route=f"GET {_STORE}/files/{{path:path}}",
        worst="five thousand ranges are ignored",
        ask=lambda store: get(f"/v1/stores/{store}/files/model.onnx", range=_MANY_RANGES),
        given=small,
        status=200,
        budget=Budget(calls=20),
    ),
    Row(
        route=f"GET {_STORE}/files/{{path:path}}",
        worst="a file is asked for five times, and nobody waits for it",
        play=leaves_file,
        given=large,
        status=0,
        budget=Budget(calls=40),
    ),
    Row(
        route=f"GET {_STORE}/files/{{path:path}}",
        worst="ten thousand requests in a row and a reader that waits",
        play=pipelined("/v1/stores/{store}/files/model.onnx", 10_000),
        given=small,
        near=True,
        status=200,
        budget=Budget(held=10_000, calls=20),
    ),
    Row(
        route=f"GET {_STORE}/files/{{path:path}}",
        worst="a condition of 60 kB",
        ask=lambda store: get(f"/v1/stores/{store}/files/model.onnx", if_none_match=",".join(['"a"'] * 15_000)),
        given=small,
        status=200,
        budget=Budget(calls=20),
    ),
    Row(
        route=f"GET {_STORE}/files/{{path:path}}",
        worst="the index of a folder, of which thousands of paths of 900 tell",
        ask=lambda store: get(f"/v1/stores/{store}/files/"),
        given=long_paths,
        status=200,
        budget=Budget(held=20_000, calls=20, work=600 * PATHS),
    ),
    _view(
        "archive.tar",
        "thousands of files of no bytes, with paths of 900",
        "",
        given=long_paths,
        status=200,
        budget=Budget(held=12 * PATHS, calls=20, got=3 * MIB, work=600 * PATHS),
    ),
    _view("metadata", "a plan of chunks in their hundreds", "", given=far, status=200, budget=Budget(calls=20)),
    _view(
        "metadata",
        "thousands of chunks planned anew, by sizes",
        "?plan=policy",
        given=kept,
        status=200,
        budget=Budget(calls=20, work=50 * 5000, written_room=180 * KIB),  # small reads are noted beside the store
    ),
    Row(
        route=f"GET {_STORE}/metadata",
        worst="two bytes of a type with 10 000 fields are opened",
        ask=lambda store: get(f"/v1/stores/{store}/metadata"),
        given=of_schema,
        status=200,
        budget=Budget(calls=20),
    ),
    Row(
        route=f"GET {_STORE}/chunks/{{n}}",
        worst="a chunk shown as JSON",
        ask=lambda store: get(f"/v1/stores/{store}/chunks/0", accept="application/json"),
        given=nodes,
        status=200,
        budget=Budget(calls=20),
    ),
    Row(
        route=f"GET {_STORE}/merge",
        worst="400 masks over 12 000 elements",
        ask=lambda store: get(f"/v1/stores/{store}/merge?{_MASKS}"),
        given=nodes,
        status=(200, 413, 422),
        budget=Budget(held=20_000, calls=20),
    ),
    _view(
        "merge",
        f"the names of {FAR} tensors far apart",
        "?fields=graph.initializer[*].name",
        given=far,
        status=200,
        # Each name is read with its block, and blocks of a distant storage stay in the cache.
        budget=Budget(held=18_000, calls=FAR + 20, memory_room=40 * MIB),
    ),
    Row(
        route=f"GET {_STORE}/merge",
        worst=f"one mask over {FAR} tensors far apart, byte by byte",
        play=in_ranges("/v1/stores/{store}/merge?fields=graph.initializer[*].name", 64),
        given=far,
        status=206,
        budget=Budget(calls=FAR + 64 + 20, work=60_000),
    ),
    Row(
        route=f"GET {_STORE}/merge",
        worst="everything as JSON",
        ask=lambda store: get(f"/v1/stores/{store}/merge", accept="application/json"),
        given=empty_tensors(9),
        status=200,
        budget=Budget(calls=20, memory=32),
    ),
    *(
        Row(
            route=f"GET {_STORE}/merge",
            worst=f"{count} readers that read nothing",
            play=stalled("/v1/stores/{store}/merge", count),
            given=large,
            near=True,
            status=0,
            budget=Budget(memory_room=2 * MIB + count * 256 * KIB, loop=200_000 + count * 10_000, calls=40 + count),
        )
        for count in (16, 400)
    ),
    Row(
        route=f"GET {_STORE}/cpb",
        worst="asked for five times, and nobody waits for it",
        play=leaves_cpb,
        given=large,
        status=0,
        budget=Budget(
            calls=450, loop=900_000, work=180_000
        ),  # one who waits makes 360 calls, five each for himself 1 300
    ),
    _view(
        "cpb",
        "chunks in their hundreds",
        "",
        given=far,
        status=200,
        budget=Budget(held=13_000, calls=2 * FAR + 20, got=256 * MIB, loop=3900 * FAR, work=600 * FAR),
    ),
    _view(
        "records",
        "a hundred thousand records of changing length, framed anew",
        "?format=u32le",
        given=stream,
        status=200,
        budget=Budget(calls=20, got=2 * MIB, written_room=4 * _FACTS),
    ),
    _view(
        "records",
        "a value that a third of a hundred thousand records have at a path",
        "?key=1&value=1",
        given=stream,
        status=200,
        fresh=True,
        budget=Budget(calls=20, work=3_600_000, written_room=4 * _FACTS),
    ),
    _view(
        "records",
        "ten thousand records drawn at random, framed anew",
        "?sample=10000&format=tfrecord",
        given=stream,
        status=200,
        fresh=True,
        budget=Budget(calls=20, work=800_000, written_room=4 * _FACTS),
    ),
    _view(
        "records",
        "a field of each of a hundred thousand records",
        "?path=1",
        given=stream,
        status=200,
        fresh=True,
        budget=Budget(calls=20, written_room=4 * _FACTS),
    ),
    _view(
        "records",
        "a record of each of two hundred shards, of which nobody has asked for any",
        "",
        given=shards,
        status=200,
        fresh=True,
        budget=Budget(
            held=14_000, calls=2 * SHARDS + 20, loop=2800 * SHARDS, work=1600 * SHARDS, written_room=120 * SHARDS
        ),
    ),
    Row(
        route=f"GET {_STORE}/records/{{n}}",
        worst="the last of a hundred thousand records, of which nobody has asked for any",
        ask=lambda store: get(f"/v1/stores/{store}/records/99999"),
        given=stream,
        status=200,
        fresh=True,
        budget=Budget(calls=20, written_room=4 * _FACTS),
    ),
    _view(
        "tensors",
        "the first of 20 000 empty tensors",
        "?limit=1",
        given=empty_tensors(10),
        status=200,
        budget=Budget(calls=20, written_room=_FACTS),
    ),
    _view(
        "tensors",
        "a glob of many stars over 20 000 tensors",
        "?limit=1&name=" + "*a" * 400,
        given=empty_tensors(14),
        status=200,
        budget=Budget(calls=20, work=50 * 20_000, written_room=_FACTS),
    ),
    Row(
        route=f"GET {_STORE}/tensors/{{name:path}}",
        worst="every other element of a dimension, far apart",
        ask=lambda store: get(f"/v1/stores/{store}/tensors/weight-0?slice=::200000"),
        given=medium,
        status=200,
        budget=Budget(calls=100),
    ),
    Row(
        route=f"GET {_STORE}/tensors/{{name:path}}",
        worst="every other element",
        ask=lambda store: get(f"/v1/stores/{store}/tensors/weight-0?slice=::2"),
        given=medium,
        status=200,
        budget=Budget(calls=30, got=9 * MIB),
    ),
    Row(
        route=f"GET {_STORE}/tensors/{{name:path}}",
        worst="statistics of every other element of 16 MiB",
        ask=lambda store: get(f"/v1/stores/{store}/tensors/weight-0/stats?slice=::2"),
        given=medium,
        status=200,
        budget=Budget(calls=60),
    ),
    _view(
        "safetensors",
        "20 000 empty tensors",  # more work than is counted: 2 000 tensors tell the cost of one
        "",
        given=empty_tensors(11),
        status=(200, 413, 422),
        budget=Budget(calls=20, got=3 * MIB, work=None, written_room=_FACTS),
    ),
    _view(
        "safetensors",
        "2 000 empty tensors, counted step by step",
        "",
        given=empty_tensors(15, 2000),
        status=200,
        budget=Budget(calls=20, work=400 * 2000),
    ),
    _view(
        "references.json",
        "2 000 empty tensors, counted step by step",
        "",
        given=empty_tensors(16, 2000),
        status=200,
        budget=Budget(calls=20, work=150 * 2000),
    ),
    _view(
        "safetensors",
        "400 globs over hundreds of tensors",
        "?" + _GLOBS,
        given=far,
        status=400,
        budget=Budget(held=20_000, calls=FAR + 20, loop=1200 * FAR, work=600 * FAR, written_room=_FACTS),
    ),
    Row(
        route=f"GET {_STORE}/safetensors/{{shard}}",
        worst="2 000 empty tensors, counted step by step",
        ask=lambda store: get(f"/v1/stores/{store}/safetensors/model.safetensors?shards=1"),
        given=empty_tensors(18, 2000),
        status=(200, 404),
        budget=Budget(calls=20, work=400 * 2000),
    ),
    Row(
        route=f"POST {_STORE}/parts",
        worst="a thousand parts, the last of which is missing",
        ask=lambda store: _asked(
            store, "parts", {"parts": [*[{"view": "tensors/weight-0"}] * 999, {"view": "chunks/9"}]}
        ),
        given=medium,
        status=404,
        budget=Budget(calls=60, work=1000 * 2000, loop=900 * 1000),
    ),
    Row(
        route=f"POST {_STORE}/merge",
        worst="ten thousand fields",
        ask=lambda store: _asked(store, "merge", {"fields": [f"graph.initializer[{n}].name" for n in range(10_000)]}),
        given=far,
        status=(200, 413),
        budget=Budget(held=40_000, calls=60, work=1000 * 2000),
    ),
    Row(
        route=f"GET {_STORE}/onnx/{{file}}",
        worst="2 000 empty tensors",
        ask=lambda store: get(f"/v1/stores/{store}/onnx/model.onnx"),
        given=empty_tensors(17, 2000),
        status=200,
        budget=Budget(calls=20, work=400 * 2000),
    ),
    Row(
        route=f"GET {_STORE}/onnx/{{file}}",
        worst="part of a graph of thousands of nodes",
        ask=lambda store: get(f"/v1/stores/{store}/onnx/single.onnx?outputs=none"),
        given=nodes,
        status=404,
        budget=Budget(calls=20, work=800_000),  # each node is looked at, once for all parts
    ),
    _view(
        "references.json",
        "20 000 empty tensors",
        "",
        given=empty_tensors(12),
        status=(200, 413, 422),
        budget=Budget(calls=20, work=160 * EMPTY, written_room=_FACTS),
    ),
    _view(
        "chunks",
        "with their digests",
        "?limit=1000",
        given=far,
        status=200,
        budget=Budget(calls=4 * FAR + 20, loop=1500 * FAR),
    ),
    _view(
        "signatures",
        "the last of 20 000 meta graphs, by its tags",
        "?tags=last",
        given=meta_graphs,
        status=200,
        budget=Budget(calls=60),
    ),
    _view(
        "signatures",
        "a page of 20 000 meta graphs that have none",
        "?limit=1000",
        given=meta_graphs,
        status=200,
        budget=Budget(calls=60),
    ),
    *(
        _view(
            "treemap", worst, "?depth=16&min_share=0", given=given, status=200, budget=Budget(calls=100, work=150_000)
        )
        for worst, given in (("16 levels", deep), ("12 000 nodes", nodes))
    ),
    _view(
        "graph",
        "500 of 12 000 nodes without links, searched for",
        "?limit=500&search=n",
        given=nodes,
        status=200,
        budget=Budget(calls=100, work=500 * 600, written_room=160 * KIB),
    ),
    _view(
        "graph/blocks",
        "12 000 nodes without links",
        "?block=0",
        given=nodes,
        status=200,
        budget=Budget(calls=100, work=150_000, written_room=160 * KIB),
    ),
    _view(
        "graph/between",
        "all of 12 000 nodes",
        "?start=graph.node[0]&start_nodes=12000&end=graph.node[0]&end_nodes=12000",
        given=nodes,
        status=200,
        budget=Budget(calls=100, work=300_000, written_room=64 * KIB),
    ),
    _view(
        "summary",
        "20 000 empty tensors",
        "",
        given=empty_tensors(17),
        status=200,
        budget=Budget(calls=20, work=240 * EMPTY, written_room=_FACTS),
    ),
    _view(
        "tensors",
        "2 000 empty tensors in the order of their names, backwards",
        "?sort=-name&search=a+b+c+d&limit=1",
        given=empty_tensors(18, 2000),
        status=200,
        budget=Budget(calls=20, work=300 * 2000, written_room=_FACTS),
    ),
    _view(
        "tensors",
        "a costly expression in the names of 2 000 empty tensors",
        "?regex=(e|em|emp)%2B%5Ba-z%5D%7B40%7D$&limit=1",
        given=empty_tensors(24, 2000),
        status=200,
        budget=Budget(calls=20, work=300 * 2000, written_room=_FACTS),
    ),
    _view(
        "tensortree",
        "2 000 empty tensors, as many nodes as may be",
        "?limit=4000",
        given=empty_tensors(26, 2000),
        status=200,
        budget=Budget(calls=20, work=800 * 2000, written_room=_FACTS),
    ),
    *(
        Row(
            route=f"GET {_STORE}/diff",
            worst=worst,
            ask=lambda stores: get(f"/v1/stores/{stores[1]}/diff?before={stores[0]}"),
            given=versions(*models),
            status=200,
            budget=Budget(calls=200, work=None, memory_room=40 * MIB, written_room=4 * _FACTS),
        )
        for worst, models in (
            ("12 000 nodes, all called otherwise", (named_nodes(b"n"), named_nodes(b"m"))),
            ("20 000 tensors without a name, and one more", (nothings(EMPTY, 21), nothings(EMPTY + 1, 21))),
        )
    ),
    Row(
        route=f"GET {_STORE}/diff/{{name:path}}",
        worst="the last of 20 000 empty tensors",
        ask=lambda stores: get(
            f"/v1/stores/{stores[1]}/diff/path:graph.initializer[19999]?before={stores[0]}&sample=0"
        ),
        given=versions(nothings(EMPTY, 22), nothings(EMPTY, 23)),
        status=(200, 422),
        budget=Budget(calls=40, work=170 * EMPTY, written_room=2 * _FACTS),
    ),
    Row(
        route=f"GET {_STORE}/moves",
        worst="a page of 20 000 empty tensors, all called otherwise",
        ask=lambda stores: get(f"/v1/stores/{stores[1]}/moves?before={stores[0]}&limit=1000"),
        given=versions(nothings(EMPTY, 27), nothings(EMPTY + 1, 27)),
        status=200,
        budget=Budget(calls=60, work=170 * EMPTY, written_room=4 * _FACTS),
    ),
    _view("tree", "16 levels", "?depth=16&limit=1000", given=deep, status=200, budget=Budget(calls=100)),
    _view(
        "tree",
        "a page of 12 000 nodes",
        "?path=graph.node&depth=16&limit=1000",
        given=nodes,
        status=200,
        budget=Budget(calls=60),
    ),
    _view(
        "pieces",
        "extents in their hundreds",
        "?limit=1000",
        given=far,
        status=200,
        budget=Budget(calls=4 * FAR + 20, loop=1600 * FAR, memory_room=40 * MIB, written_room=256 * KIB),
    ),
    _view(  # the weight of a thousand files is taken when their store is opened
        "pieces", "a thousand files", "?limit=1000", given=long_paths, status=200, budget=Budget(held=14_000, calls=20)
    ),
)
