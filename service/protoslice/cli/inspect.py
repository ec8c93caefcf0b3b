"""The verbs that look: `info`, `tree`, `chunks`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import asdict
from typing import Annotated

import typer

from protoslice import Node, Proto
from protoslice.cli.files import opened
from protoslice.cli.options import ChunkSize, FileName, Json, TypeName
from protoslice.cli.show import escaped, print_json, print_pairs, print_table, say, shorten, width
from protoslice.library import FLOOR, SMALLEST_FLOOR
from protoslice.sizes import format_size, parse_size

__all__ = ["chunks", "info", "tree"]

BIGGEST = 10
SHOWN_SHARE = 0.001


def info(file: FileName, type_name: TypeName = None, as_json: Json = False) -> None:
    """What a file is: type, size, chunks, biggest parts.

    Example: protoslice info model.onnx
    """
    with opened(file, type_name, floor=_floor(file)) as proto:
        split = proto.split()
        biggest = [part for part in proto.largest(BIGGEST) if part.size >= proto.size * SHOWN_SHARE]
        if as_json:
            print_json(
                {
                    "file": file,
                    "type": proto.type,
                    "why": proto.why,
                    "size": proto.size,
                    "chunked": proto.chunked,
                    "chunks": len(split),
                    "index_size": len(proto.index_bytes),
                    "biggest": [asdict(part) for part in biggest],
                }
            )
            return
        print_pairs(
            [
                ("type", proto.type or "unknown (name it with --type to see names)"),
                ("why", proto.why or ""),
                ("size", f"{format_size(proto.size)} ({proto.size} bytes){', merged' if proto.chunked else ''}"),
                ("form", "chunked proto" if proto.chunked else "serialized proto"),
                ("chunks", f"{len(split)} (of at least 1 MiB each, beside the base)"),
                ("index", format_size(len(proto.index_bytes))),
            ]
        )
        rows = [
            [format_size(part.size), f"{100 * part.size / max(proto.size, 1):.1f} %", _counted(part.path, part.count)]
            for part in biggest
        ]
        if rows:
            say()
            print_table(["size", "share", "biggest parts"], rows, right=(0, 1))


def _floor(file: str) -> int:
    """How small a message may be and still be told apart: the smaller the file, the closer the look."""
    size = os.path.getsize(file) if os.path.isfile(file) else FLOOR
    return min(FLOOR, max(SMALLEST_FLOOR, size // 1000))


def _counted(path: str, count: int | None) -> str:
    return path if count is None else f"{path}  ({count} small ones)"


def tree(
    file: FileName,
    path: Annotated[str, typer.Argument(help="Where to begin, as in graph.node[3].")] = "",
    depth: Annotated[int, typer.Option(help="How many levels to show.", min=1, max=64)] = 1,
    limit: Annotated[int, typer.Option(help="How many lines to show of each level.", min=1)] = 20,
    type_name: TypeName = None,
    as_json: Json = False,
) -> None:
    """The structure below a place, with sizes.

    Example: protoslice tree model.onnx graph --depth 2
    """
    with opened(file, type_name) as proto:
        if as_json:
            print_json(_as_json(proto, path, depth, limit))
            return
        for line in _lines(proto, path, depth, limit, ""):
            say(line)


def _as_json(proto: Proto, path: str, depth: int, limit: int) -> dict[str, object]:
    nodes = []
    for node in proto.tree(path, limit=limit):
        shown: dict[str, object] = asdict(node)
        if node.deeper and depth > 1:
            shown["children"] = _as_json(proto, node.path, depth - 1, limit)
        nodes.append(shown)
    return {"path": path, "total": proto.count(path), "items": nodes}


def _lines(proto: Proto, path: str, depth: int, limit: int, indent: str) -> Iterator[str]:
    nodes = proto.tree(path, limit=limit)
    labels = [escaped(_label(node, path)) for node in nodes]
    column = max((len(label) for label in labels), default=0)
    for node, label in zip(nodes, labels, strict=True):
        start = f"{indent}{label.ljust(column)}  {format_size(node.size):>10}  "
        yield start + shorten(escaped(_facts(node)), max(20, width() - len(start)))
        if node.deeper and depth > 1:
            yield from _lines(proto, node.path, depth - 1, limit, indent + "  ")
    left = proto.count(path) - len(nodes)
    if left > 0:
        yield f"{indent}… {left} more"


def _label(node: Node, path: str) -> str:
    return node.path[len(path) :].removeprefix(".")


def _facts(node: Node) -> str:
    kind = node.type or node.kind or "unknown"
    many = "" if node.count is None else f" × {node.count}"
    return f"{kind}{many}" + (f"  {node.text}" if node.text is not None else "")


def chunks(
    file: FileName,
    min_chunk: ChunkSize = "1MiB",
    max_chunk: ChunkSize = "1GiB",
    type_name: TypeName = None,
    as_json: Json = False,
) -> None:
    """The chunks that a split would give.

    Example: protoslice chunks model.onnx --min-chunk 64KiB
    """
    with opened(file, type_name) as proto:
        split = proto.split(min_chunk=parse_size(min_chunk), max_chunk=parse_size(max_chunk))
        if as_json:
            fields = ("index", "kind", "type", "path", "size")
            print_json([{name: getattr(chunk, name) for name in fields} for chunk in split])
            return
        rows = [
            [str(chunk.index), chunk.kind, format_size(chunk.size), chunk.type or "", chunk.path or "(the base)"]
            for chunk in split
        ]
        print_table(["chunk", "kind", "size", "type", "path"], rows, right=(0, 2))
        sys.stdout.flush()
