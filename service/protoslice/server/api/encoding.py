"""Encodes facts (the library's dataclasses) as JSON, and makes their JSON Schemas."""

from __future__ import annotations

import ast
import inspect
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, asdict, fields
from datetime import UTC, datetime
from functools import cache, partial
from itertools import pairwise
from operator import eq
from typing import Any, Final, get_args, get_type_hints

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import PydanticSerializationError, SchemaSerializer, core_schema

from protoslice.facts import LOCAL, OMITTED, SECRET, Node, RecordsSummary, Store
from protoslice.json_text import encode_json

Json = dict[str, Any]

_FILE_WEIGHT: Final = 120
"""The approximate length of a file's JSON without the path, in bytes."""
_REF: Final = "#/components/schemas/{model}"


def format_time(time: datetime) -> str:
    """Return a time in UTC with a precision of seconds, such as `2026-11-21T10:00:00Z`."""
    return time.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def encode_fact(fact: Any, kind: type | None = None) -> bytes:
    """Encode a fact as compact JSON in UTF-8. Lone surrogates in old records and file names are escaped.

    If `kind`, a base class of the fact, is passed, encode only the members of `kind`.
    """
    serializer = _serializer(kind or type(fact))
    try:
        return serializer.to_json(fact)
    except PydanticSerializationError:  # a lone surrogate
        return encode_json(serializer.to_python(fact, mode="json"))


def encode_items(facts: Iterable[Any], kind: type | None = None) -> bytes:
    """Encode facts as the items of a JSON list, separated by commas. `encode_fact` encodes each item."""
    return b",".join(encode_fact(fact, kind) for fact in facts)


def prepare_encoding(kind: Any) -> None:
    """Make the encoder of a fact's class, or of a page's items, before the first request.

    Making an encoder takes 1 ms.
    """
    (item,) = get_args(kind) or (kind,)
    _serializer(item)


@cache
def has_secret(kind: Any) -> bool:
    """Return True if `kind`, or a dataclass that it contains, has a member that is marked with `SECRET`."""
    return any(
        SECRET in getattr(hint, "__metadata__", ())
        for each in _walk(TypeAdapter(kind).core_schema)
        if each.get("type") == "dataclass"
        for hint in get_type_hints(each["cls"], include_extras=True).values()
    )


def store_weight(store: Store) -> int:
    """Return the approximate size of a store's JSON in bytes."""
    texts = sum(len(file.path) for file in store.files) + len(store.why or "") + len(store.records_file or "")
    texts += 2 * sum(map(len, store.tags)) + sum(map(len, store.rules)) + sum(len(each.name) for each in store.names)
    return _FILE_WEIGHT * (1 + len(store.files)) + texts


def records_summary_text(summary: RecordsSummary) -> bytes:
    """Encode a summary of records. `RECORDS` in `protoslice.versions` is the version of this JSON form."""
    return json.dumps(asdict(summary)).encode()


def json_schemas(kinds: Iterable[Any]) -> tuple[Mapping[Any, Json], Json]:
    """Return the JSON Schema of each class of facts, and the definitions to which the schemas refer."""
    inputs = [(kind, "serialization", _marked(TypeAdapter(kind))) for kind in kinds]
    found, definitions = _Schemas(ref_template=_REF).generate_definitions(inputs)  # type: ignore[arg-type]  # any key does
    for name, each in definitions.items():
        each["title"] = name
    return {kind: schema for (kind, _), schema in found.items()}, {
        str(name): each for name, each in definitions.items()
    }


class _Schemas(GenerateJsonSchema):
    """A generator of schemas for JSON that the service sends.

    Members with a default are always sent, unless they are marked with `OMITTED`.
    """

    def dataclass_schema(self, schema: core_schema.DataclassSchema) -> Json:
        """Return the schema of a dataclass. The docstring of each member becomes the member's description."""
        found, described = super().dataclass_schema(schema), descriptions(schema["cls"])
        for name, member in found["properties"].items():
            if name in described:
                member["description"] = described[name]
        return found

    def field_is_required(self, field: Any, total: bool) -> bool:
        if field["type"] == "dataclass-field":
            return "serialization_exclude_if" not in field
        return super().field_is_required(field, total)

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> Json:
        return self.generate_inner(schema["schema"])


def descriptions(kind: type) -> dict[str, str]:
    """Return the docstrings of a dataclass's members, including inherited members. The word `None` becomes `null`."""
    found = {}
    for each in reversed(kind.__mro__):
        for name, text in _docstrings(each.__module__).get(each.__name__, {}).items():
            text = re.sub(r"\bNone\b", "null", " ".join(text.split()))
            found[name] = text[0].upper() + text[1:] if text.startswith("null") else text
    return found


@cache
def _docstrings(module: str) -> Mapping[str, Mapping[str, str]]:
    """Return the attribute docstrings in a module, keyed by class and then by attribute."""
    tree = ast.parse(inspect.getsource(sys.modules[module])) if module != "builtins" else ast.Module([], [])
    return {
        each.name: {
            member.target.id: str(said.value.value)
            for member, said in pairwise(each.body)
            if isinstance(member, ast.AnnAssign)
            and isinstance(member.target, ast.Name)
            and isinstance(said, ast.Expr)
            and isinstance(said.value, ast.Constant)
        }
        for each in tree.body
        if isinstance(each, ast.ClassDef)
    }


@cache
def _serializer(kind: Any) -> SchemaSerializer:
    schema = _marked(TypeAdapter(kind))
    for each in _walk(schema):
        if each.get("type") == "datetime":
            each["serialization"] = core_schema.plain_serializer_function_ser_schema(format_time)
        elif each.get("type") == "dataclass" and each["cls"] is Node:
            each["serialization"] = core_schema.wrap_serializer_function_ser_schema(_node)
    return SchemaSerializer(schema)


def _node(node: Node, encode: Callable[[Node], Json]) -> Json:
    """Return a node as JSON.

    If the node's children were requested, `children` and `more` are present even when empty.
    """
    shown = encode(node)
    if node.more is not None and not node.children:
        shown |= {"children": [], "more": shown.pop("more")}
    return shown


def _marked(adapter: TypeAdapter[Any]) -> Any:
    """Return the core schema of `adapter`.

    The schema leaves out members that are marked with `LOCAL`. It leaves out members that are marked with `OMITTED` if
    they have their default.
    """
    for each in _walk(schema := adapter.core_schema):
        if each.get("type") == "dataclass":
            hints, defaults = get_type_hints(each["cls"], include_extras=True), _defaults(each["cls"])
            for field in each["schema"]["fields"]:
                marks = getattr(hints.get(field["name"]), "__metadata__", ())
                if OMITTED in marks:
                    field["serialization_exclude_if"] = partial(eq, defaults[field["name"]])
                if LOCAL in marks:
                    field["serialization_exclude"] = True
    return schema


def _defaults(kind: Any) -> dict[str, Any]:
    return {field.name: field.default for field in fields(kind) if field.default is not MISSING}


def _walk(schema: Any) -> Iterator[Any]:
    """Yield all dictionaries within a core schema."""
    if isinstance(schema, dict):
        yield schema
        for each in list(schema.values()):
            yield from _walk(each)
    elif isinstance(schema, list):
        for each in schema:
            yield from _walk(each)
