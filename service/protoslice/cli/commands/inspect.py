"""The commands `info`, `tree`, `graph` and `chunks`, which show a model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from graphlib import CycleError, TopologicalSorter
from itertools import islice
from typing import Annotated, Any, Final

import typer

from protoslice import _core
from protoslice.cli.models.files import rules_in
from protoslice.cli.models.remote import open_source
from protoslice.cli.models.schema_files import root_type
from protoslice.cli.models.source import ChunkPolicy, ModelSource
from protoslice.cli.options import FileName, Json, MaxChunk, MinChunk, RulesFile, SchemaFile, SplitterName, TypeName
from protoslice.cli.tables import (
    counted,
    escaped,
    exact_size,
    note,
    print_items,
    print_json,
    print_pairs,
    print_table,
    say,
    shape_text,
    shorten,
    utc,
    width,
)
from protoslice.errors import InvalidInput
from protoslice.facts import GraphNode, Neighbourhood, Node, Signature, SignatureTensor, TensorEntry
from protoslice.graphs import MAX_HOPS, MAX_NODES, GraphQuery
from protoslice.library.proto import size_problem
from protoslice.sizes import format_size, parse_size
from protoslice.tensors.listing import natural

_MOST_SIGNATURES: Final = 100
_LARGEST: Final = 10
"""Maximum number of tensors that `info` lists."""
_MOST_OTHERS: Final = 10
"""Maximum number of other graphs that `graph` lists."""
_UNITS: Final = ((10**12, "T"), (10**9, "B"), (10**6, "M"), (10**3, "K"))
_NODE_MEMBERS: Final = ("path", "number", "name", "kind", "type", "count", "size", "deeper", "text")
_FORMS: Final = {
    "serialized": ("serialized proto", ""),
    "chunked": ("chunked proto", "merged"),
    "text": ("text", "serialized"),
}
"""For each form of a file: its name, and a word for the other form whose size `info` shows too."""
_NOT_PARAMETERS: Final = {"optimizer": "of optimizer state", "constant": "constants", "other": "other"}
"""Words for the elements of tensors that are not parameters, by the tensors' role."""


def info(file: FileName, type_name: TypeName = None, schema_file: SchemaFile = None, as_json: Json = False) -> None:
    """Show type, size, tensors, inputs and outputs of a model.

    Example: protoslice info model.onnx
    """
    with open_source(file, root_type(type_name, schema_file), close_look=True) as source:
        facts: dict[str, Any] = source.facts()
        found = list(islice(source.signatures(), _MOST_SIGNATURES + 1))
        facts["signatures"] = found[:_MOST_SIGNATURES]
        facts |= _of_tensors(source)
    if as_json:
        print_json(facts)
    elif "id" in facts:
        _show_store(facts)
    else:
        _show_file(facts)
    named = [each for each in facts["signatures"] if each.method or each.tags]
    if named and not as_json:
        say()
        print_table(["signature", "tags", "inputs", "outputs", "method"], list(map(_signature_row, named)))
    if len(found) > _MOST_SIGNATURES:
        note(f"warning: only the first {_MOST_SIGNATURES} signatures are shown")


def _of_tensors(source: ModelSource) -> dict[str, Any]:
    """Return totals of the tensors, and the largest tensors. For a format without tensors, the totals are None."""
    report = source.summary()
    if report is None:
        return {"tensors": None, "parameters": None, "dtypes": [], "totals": [], "largest": []}
    return {
        "tensors": report.tensors,
        "parameters": sum(total.elements for total in report.totals if total.role == "weight"),
        "dtypes": report.dtypes,
        "totals": report.totals,
        "largest": source.largest(_LARGEST) if report.tensors else [],
    }


def _signature_row(signature: Signature) -> list[str]:
    sides = [", ".join(map(_typed, side)) for side in (signature.inputs, signature.outputs)]
    return [signature.name, ",".join(signature.tags), *sides, signature.method]


def _typed(tensor: SignatureTensor) -> str:
    """Return a tensor of a signature as text, such as `x F32 [?, 3]`; `[…]` means any number of dimensions."""
    shape = tensor.shape
    dims = "…" if shape is None else ", ".join("?" if size is None else str(size) for size in shape)
    return f"{tensor.name} {tensor.dtype or 'object'} [{dims}]"


def _show_file(facts: dict[str, Any]) -> None:
    proto_size = facts["proto_size"]
    is_proto = proto_size is not None
    unknown = "unknown (use --type to see field names)" if is_proto else "none"
    pairs = [("type", facts["type"] or unknown), ("why", facts["why"] or ""), *_sizes(facts)]
    pairs += (
        [("missing", f"{' '.join(facts['missing'])}: tensors in missing files can't be read")]
        if facts["missing"]
        else []
    )
    pairs += [("bundle", _bundle(**facts["bundle"]))] if facts.get("bundle") else []
    if is_proto:
        form, becomes = _FORMS[facts["form"]]
        pairs += [("proto", f"{exact_size(proto_size)}, {becomes}")] if becomes else []
        pairs += [
            ("form", form),
            ("chunks", f"{facts['chunks']} ({_planned(facts)})"),
            ("index", format_size(facts["index_size"])),
        ]
    print_pairs([*pairs, *_totals(facts)])
    has_sizes = any(total.size for total in facts["dtypes"])
    if has_sizes:
        _show_largest(facts)
    elif facts["biggest"] and is_proto:
        say()
        _show_biggest(facts["biggest"], proto_size)


def _totals(facts: dict[str, Any]) -> list[tuple[str, str]]:
    """Return rows about the inputs and outputs, and about the tensors."""
    if not facts["tensors"]:
        return []
    sizes = sum(total.size for total in facts["dtypes"]) or 1
    shares = [f"{each.dtype or 'unknown'} {100 * each.size / sizes:.3g} %" for each in facts["dtypes"][:_LARGEST]]
    # A signature without method and tags only lists the graph's inputs and outputs.
    unnamed = [each for each in facts["signatures"] if not each.method and not each.tags]
    sides = [side for each in unnamed for side in (("inputs", each.inputs), ("outputs", each.outputs))]
    return [
        *((name, ", ".join(map(_typed, tensors))) for name, tensors in sides if tensors),
        ("tensors", f"{facts['tensors']} with {' · '.join(_counts(facts))}: {', '.join(shares)}"),
    ]


def _counts(facts: dict[str, Any]) -> Iterator[str]:
    """Yield texts with the numbers of elements by role, such as `16.9K parameters` or `33.6K of optimizer state`."""
    yield f"{_short(facts['parameters'])} parameters"
    for total in facts["totals"]:
        if words := _NOT_PARAMETERS.get(total.role):
            yield f"{_short(total.elements)} {words}"


def _short(count: int) -> str:
    """Return a number in short form, such as `124M`."""
    if count < 10_000:
        return str(count)
    unit, name = next(each for each in _UNITS if count >= each[0])
    return f"{count / unit:.3g}{name}"


def _show_largest(facts: dict[str, Any]) -> None:
    say()
    sizes = sum(total.size for total in facts["dtypes"]) or 1
    columns: dict[str, Callable[[TensorEntry], object]] = {
        "size": lambda each: format_size(each.size or 0),
        "share": lambda each: f"{100 * (each.size or 0) / sizes:.1f} %",
        "dtype": lambda each: each.dtype or "?",
        "shape": lambda each: shape_text(each.shape),
        "largest tensors": lambda each: each.name or each.address,
    }
    print_items(facts["largest"], columns, as_json=False, right=(0, 1))


def _bundle(shards: int, endianness: str, version: int) -> str:
    return f"{counted(shards, 'shard')}, {endianness}-endian, version {version}"


def _planned(facts: dict[str, Any]) -> str:
    return "as in the chunked file" if facts["own_chunks"] else "the first holds the remainder; others at least 1 MiB"


def _of_store(facts: dict[str, Any]) -> str:
    if facts["planner"] is not None and _core.Plan.is_kept_version(facts["planner"]):
        return "as in the chunked file"
    rules = ", and by split rules (see protoslice chunks --plan)" if facts["rules"] else ""
    sizes = f"{format_size(facts['min_chunk'])} to {format_size(facts['max_chunk'])}"
    return f"the first holds the remainder; others {sizes}{rules}"


def _show_biggest(biggest: list[dict[str, Any]], proto_size: int) -> None:
    rows = [
        [format_size(part["size"]), f"{100 * part['size'] / max(proto_size, 1):.1f} %", _small_parts(**part)]
        for part in biggest
    ]
    print_table(["size", "share", "largest parts"], rows, right=(0, 1))


def _sizes(facts: dict[str, Any]) -> list[tuple[str, str]]:
    """Return rows for the size of all files; for several files, also rows for the root and the folder."""
    count = len(facts["files"])
    rows = [("size", f"{exact_size(facts['size'])}{'' if count == 1 else f' in {count} files'}")]
    if count > 1 and facts["root"] is not None:
        rows.append(("root", f"{facts['root']}: {exact_size(facts['root_size'])}"))
    if (folder := facts.get("folder")) and folder["files"] > count:
        rows.append(("folder", f"{exact_size(folder['size'])} in {folder['files']} files"))
    return rows


def _show_store(facts: dict[str, Any]) -> None:
    print_pairs(
        [
            ("store", facts["id"]),
            ("names", " ".join(dict.fromkeys((*facts["tags"], *(each["name"] for each in facts["names"])))) or "none"),
            ("type", facts["type"] or f"none: {facts['why']}"),
            *_sizes(facts),
            ("chunks", f"{facts['chunks']} ({_of_store(facts)})"),
            ("created", f"{utc(facts['created'])} by {facts['source']}"),
            *([("about", facts["description"])] if facts["description"] else []),
            *_totals(facts),
        ]
    )
    say()
    rows = [[format_size(file["size"]), (file["sha256"] or "")[:12], file["path"]] for file in facts["files"]]
    print_table(["size", "sha-256", "file"], rows, right=(0,))
    if facts["tensors"]:
        _show_largest(facts)


def _small_parts(path: str, count: int | None, size: int) -> str:
    return path if count is None else f"{path} ({count} small elements)"


def tree(
    file: FileName,
    path: Annotated[str, typer.Argument(metavar="PATH", help="Path to start at, such as graph.node[3].")] = "",
    depth: Annotated[int, typer.Option(metavar="N", help="Number of levels to show.", min=1, max=64)] = 1,
    limit: Annotated[int, typer.Option(metavar="N", help="Maximum number of lines below each node.", min=1)] = 20,
    type_name: TypeName = None,
    schema_file: SchemaFile = None,
    as_json: Json = False,
) -> None:
    """Show the structure below a path, with sizes.

    Example: protoslice tree model.onnx graph --depth 2
    """
    with open_source(file, root_type(type_name, schema_file)) as source:
        if as_json:
            print_json(_as_json(source, path, depth, limit))
            return
        for line in _lines(source, path, depth, limit, ""):
            say(line)


def _as_json(source: ModelSource, path: str, depth: int, limit: int) -> dict[str, object]:
    listing = source.tree(path, limit)
    items = []
    for line in listing.lines:
        shown: dict[str, object] = {name: getattr(line, name) for name in _NODE_MEMBERS}
        if line.deeper and depth > 1:
            shown["children"] = _as_json(source, line.path, depth - 1, limit)
        items.append(shown)
    return {"path": path, "total": listing.total, "items": items}


def _lines(source: ModelSource, path: str, depth: int, limit: int, indent: str) -> Iterator[str]:
    listing = source.tree(path, limit)
    labels = [escaped(_label(line, path)) for line in listing.lines]
    column = max((len(label) for label in labels), default=0)
    for line, label in zip(listing.lines, labels, strict=True):
        start = f"{indent}{label.ljust(column)}  {format_size(line.size):>10}  "
        yield start + shorten(escaped(_facts(line)), width() - len(start))
        if line.deeper and depth > 1:
            yield from _lines(source, line.path, depth - 1, limit, indent + "  ")
    if listing.total is None:
        yield f"{indent}… more"
    elif listing.total > len(listing.lines):
        yield f"{indent}… {listing.total - len(listing.lines)} more"


def _label(node: Node, path: str) -> str:
    return node.path[len(path) :].removeprefix(".")


def _facts(node: Node) -> str:
    kind = node.type or node.kind or "unknown"
    many = "" if node.count is None else f" × {node.count}"
    return f"{kind}{many}" + (f"  {node.text}" if node.text is not None else "")


def graph(
    file: FileName,
    around: Annotated[
        str | None,
        typer.Argument(
            metavar="NODE",
            help="Node to show, by name or path, with the nodes around it; default: the graph's first nodes.",
        ),
    ] = None,
    hops: Annotated[
        int,
        typer.Option(metavar="N", help="Show nodes at most this many links away from NODE.", min=0, max=MAX_HOPS),
    ] = 2,
    of: Annotated[
        str | None, typer.Option("--graph", metavar="PATH", help="Graph to show, if not the main one.")
    ] = None,
    search: Annotated[str | None, typer.Option(metavar="WORDS", help="Words to search for in node names.")] = None,
    limit: Annotated[int, typer.Option(metavar="N", help="Maximum number of nodes.", min=1, max=MAX_NODES)] = 30,
    type_name: TypeName = None,
    as_json: Json = False,
) -> None:
    """Show a node of a graph, and the nodes linked to it.

    Example: protoslice graph model.onnx conv1 --hops 1
    """
    if around is None and search is None:
        search = ""  # matches all nodes, of which the first are shown
    query = GraphQuery(graph=of, around=around, hops=hops, search=search, limit=limit)
    with open_source(file, root_type(type_name, None)) as source:
        found = source.graph(query)
    if as_json:
        print_json(found)
    else:
        _show_graph(found)


def _show_graph(found: Neighbourhood) -> None:
    rows = [_node_row(found, node) for node in _in_order(found)]
    titles = ["hops", "node", "op", "inputs", "weights", "not shown", "path"]
    # Leave out empty columns: `hops` if no node is in the middle, and `not shown` if all links are shown.
    kept = [at for at, title in enumerate(titles) if at or found.around]
    kept = [at for at in kept if titles[at] != "not shown" or any(row[at] for row in rows)]
    print_table(
        [titles[at] for at in kept], [[row[at] for at in kept] for row in rows], right=(0,) if found.around else ()
    )
    others = [entry for entry in found.graphs if entry.path != found.graph]
    if found.more:
        say()
        say(f"… only {len(found.nodes)} nodes are shown (--limit shows more)")
    if others and found.around is None:
        say()
        rows = [[str(each.nodes), each.name, each.path] for each in others[:_MOST_OTHERS]]
        print_table(["nodes", "other graphs", "--graph"], rows, right=(0,))


def _in_order(found: Neighbourhood) -> list[GraphNode]:
    """Return the nodes in order from inputs to outputs. If the graph has cycles, return the nodes in path order."""
    nodes = {node.path: node for node in sorted(found.nodes, key=lambda node: natural(node.path))}
    order = TopologicalSorter[str]({path: () for path in nodes})
    for edge in found.edges:
        order.add(edge.target, edge.source)
    try:
        return [nodes[path] for path in order.static_order()]
    except CycleError:
        return list(nodes.values())


def _node_row(found: Neighbourhood, node: GraphNode) -> list[str]:
    names = {each.path: each.name or each.path.rpartition(".")[2] for each in found.nodes}
    sources = ", ".join(dict.fromkeys(names[edge.source] for edge in found.edges if edge.target == node.path))
    more = counted(node.more, "link") if node.more else ""
    return [str(node.hops), names[node.path], node.op, sources, ", ".join(node.weights), more, node.path]


def chunks(  # noqa: PLR0913 - each is an option
    file: FileName,
    min_chunk: MinChunk = None,
    max_chunk: MaxChunk = None,
    rules: RulesFile = None,
    splitter: SplitterName = None,
    plan: Annotated[bool, typer.Option("--plan", help="Print the split rules, in the format of --rules.")] = False,
    type_name: TypeName = None,
    schema_file: SchemaFile = None,
    as_json: Json = False,
) -> None:
    """List the chunks of a store, or of the split of a file.

    Example: protoslice chunks model.onnx --min-chunk 64KiB
    """
    if plan and splitter is not None:
        raise InvalidInput(
            "--plan prints the rules given by --rules; the rules of a splitter depend on the model and "
            "cannot be printed"
        )
    policy = ChunkPolicy(_size(min_chunk), _size(max_chunk), rules_in(rules), splitter)
    with open_source(file, root_type(type_name, schema_file)) as source:
        found: list[dict[str, Any]] = list(source.chunks(policy))
        by = source.rules(policy) if plan else ()
    for chunk in found:
        if (problem := size_problem(chunk["path"], chunk["size"])) is not None:
            note(f"note: {problem}")
    if plan:
        print("\n".join(["# each rule takes precedence over those above it, and over chunk sizes", *by]))
        return
    columns: dict[str, Callable[[dict[str, Any]], object]] = {
        "chunk": lambda chunk: chunk["index"],
        "kind": lambda chunk: chunk["kind"],
        "size": lambda chunk: format_size(chunk["size"]),
        "type": lambda chunk: chunk["type"],
        "path": lambda chunk: chunk["path"] or "(remainder)",
    }
    print_items(found, columns, as_json=as_json, right=(0, 2))


def _size(text: str | None) -> int | None:
    return None if text is None else parse_size(text)
