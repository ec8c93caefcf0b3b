"""The HTML page that lists all operations of the OpenAPI document, without scripts or content from other hosts."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html import escape
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote

from protoslice.server.pages.html import MARK, page, rich, template

_READS: Final = "get"
_ORIGIN: Final = "\N{SYMBOL FOR SUBSTITUTE}"
_ROOT: Final = "\N{SYMBOL FOR SUBSTITUTE FORM TWO}"
_UNSAID: Final = "Successful Response"  # the framework's text for a response without a description
_PLACES: Final = ("path", "query", "header")
_REFERENCE: Final = template("reference.html")
_CALL: Final = template("call.html")
_MODEL: Final = template("model.html")


@dataclass(frozen=True, slots=True)
class _Call:
    """One operation: its methods, its URL, and its entry in the document. A view has HEAD as well as GET."""

    methods: tuple[str, ...]
    path: str
    said: Mapping[str, Any]

    @property
    def id(self) -> str:
        """The stable id of the operation."""
        return str(self.said["operationId"])


class ApiPage:
    """The page of one document, rendered once. The address in its examples is inserted for each reader."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._text = _whole(document, _ORIGIN)

    def show(self, origin: str, root: str = "") -> str:
        """Return the page with `origin` in its examples, and with links that begin with `root`."""
        return self._text.replace(_ROOT, root).replace(_ORIGIN, escape(origin))


def _whole(document: Mapping[str, Any], origin: str) -> str:
    """Return HTML with all operations of `document`, their parameters, responses and problems.

    Examples use `origin`.
    """
    calls = list(_calls(document))
    groups = [(tag, [call for call in calls if tag["name"] == call.said["tags"][0]]) for tag in document["tags"]]
    sections = "".join(_section(tag, members, document, origin) for tag, members in groups)
    contents = "".join(map(_contents, groups))
    info = document["info"]
    title, lead = escape(info["title"]), rich(info["description"])
    body = _REFERENCE.substitute(
        mark=MARK, root=_ROOT, contents=contents, title=title, lead=lead, sections=sections, models=_models(document)
    )
    return page(f"{info['title']}: API reference", body)


def _calls(document: Mapping[str, Any]) -> Iterator[_Call]:
    for path, operations in document["paths"].items():
        found: dict[tuple[str, bool], list[str]] = {}
        for method, said in operations.items():
            same = str(said["summary"]).partition(":")[0], "x-deprecated" in said
            found.setdefault(same, []).append(method)
        for methods in found.values():
            yield _Call(tuple(methods), path, operations[methods[0]])


def _contents(group: tuple[Mapping[str, Any], list[_Call]]) -> str:
    tag, calls = group
    links = "".join(f'<li><a href="#{call.id}">{rich(call.said["summary"])}</a></li>' for call in calls)
    name = escape(str(tag["name"]))
    return f'<b><a href="#{name}">{name.capitalize()}</a></b><ol>{links}</ol>'


def _section(tag: Mapping[str, Any], calls: list[_Call], document: Mapping[str, Any], origin: str) -> str:
    shown = "".join(_call(call, document, origin) for call in calls)
    name = escape(str(tag["name"]))
    return f'<h2 id="{name}">{name.capitalize()}</h2><p>{rich(tag["description"])}</p>{shown}'


def _call(call: _Call, document: Mapping[str, Any], origin: str) -> str:
    methods = " ".join(f'<span class="method {method}">{method.upper()}</span>' for method in call.methods)
    details = (_parameters(call), _body(call), _answers(call), _problems(call, document))
    return _CALL.substitute(
        id=call.id,
        summary=rich(call.said["summary"]),
        methods=methods + "".join(f' <span class="soft">{mark}</span>' for mark in _marks(call)),
        path=escape(call.path),
        description=rich(call.said.get("description", "")),
        example=escape(_example(call, origin)),
        details="".join(details),
    )


def _marks(call: _Call) -> Iterator[str]:
    """Yield `experimental` for an operation that may change. For a deprecated operation, yield its successor."""
    if stability := call.said.get("x-stability"):
        yield escape(str(stability))
    if old := call.said.get("x-deprecated"):
        yield f"deprecated: use {escape(str(old['successor']))}"


def _example(call: _Call, origin: str) -> str:
    """Return a command that calls the operation."""
    path = call.path
    for parameter in call.said.get("parameters", ()):
        if parameter["in"] == "path":
            path = path.replace(f"{{{parameter['name']}}}", quote(str(_value(parameter)), safe=":/"))
    body = call.said.get("requestBody", {}).get("content", {})
    given = ""
    if "application/octet-stream" in body:
        given = " -T FILE" if "put" in call.methods or "post" in call.methods else ""
        path += "?filename=FILE" if call.path == "/v1/stores" else ""
    elif "application/json" in body:
        given = " -H 'Content-Type: application/json' -d @request.json"
    by_default = "put" if given.startswith(" -T") else _READS
    method = "" if call.methods[0] == by_default else f" -X {call.methods[0].upper()}"
    return f"curl{method} '{origin}{path}'{given}"


def _value(parameter: Mapping[str, Any]) -> object:
    schema = parameter.get("schema", {})
    return parameter.get("example") or next(iter(schema.get("examples", ())), parameter["name"].upper())


def _parameters(call: _Call) -> str:
    parameters = call.said.get("parameters", ())
    shown = "".join(_parameter(each) for place in _PLACES[:2] for each in parameters if each["in"] == place)
    headers = "".join(_parameter(each) for each in parameters if each["in"] == "header")
    out = f"<h4>Parameters</h4><dl>{shown}</dl>" if shown else ""
    return out + (f"<details><summary>Request headers</summary><dl>{headers}</dl></details>" if headers else "")


def _parameter(parameter: Mapping[str, Any]) -> str:
    schema = parameter.get("schema", {})
    notes = [_type(schema), *(["in the path"] if parameter["in"] == "path" else [])]
    default = schema.get("default")
    if default not in (None, []):
        notes.append(f"default {default}")
    said = rich(parameter.get("description", ""))
    return (
        f'<dt><code>{escape(parameter["name"])}</code></dt><dd>{said} <span class="soft">{", ".join(notes)}</span></dd>'
    )


def _type(schema: Mapping[str, Any]) -> str:
    """Return short HTML that describes the values of a schema."""
    if "$ref" in schema:
        name = str(schema["$ref"]).rpartition("/")[2]
        return f'<a href="#{escape(name)}">{escape(_plain(name))}</a>'
    if "anyOf" in schema:
        return " or ".join(_type(each) for each in schema["anyOf"] if each.get("type") != "null")
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    if "const" in schema:
        return f"<code>{escape(json.dumps(schema['const']))}</code>"
    return escape(str("bytes" if schema.get("format") == "binary" else schema.get("type", "any JSON")))


def _plain(name: str) -> str:
    """Return the name of a model in plain words."""
    inner = name.removeprefix("PageModel_").removesuffix("_").removesuffix("Model")
    return f"page of {inner}" if name.startswith("PageModel_") else inner


def _body(call: _Call) -> str:
    body = call.said.get("requestBody")
    if not body:
        return ""
    return f"<h4>Body</h4><p>{rich(body.get('description', ''))}</p>{_content(body['content'])}"


def _content(content: Mapping[str, Any]) -> str:
    rows = (
        f"<dt><code>{escape(media)}</code></dt><dd>{_type(said.get('schema', {}))}</dd>"
        for media, said in content.items()
    )
    return f"<dl>{''.join(rows)}</dl>" if content else ""


def _answers(call: _Call) -> str:
    answers = ((status, said) for status, said in call.said["responses"].items() if "$ref" not in said)
    return "<h4>Answers</h4>" + "".join(_answer(status, said) for status, said in answers)


def _answer(status: str, said: Mapping[str, Any]) -> str:
    headers = "".join(
        f"<dt><code>{escape(name)}</code></dt><dd>{rich(header['description'])}</dd>"
        for name, header in said.get("headers", {}).items()
    )
    more = f"<details><summary>Headers of {status}</summary><dl>{headers}</dl></details>" if headers else ""
    means = said["description"] if said["description"] != _UNSAID else HTTPStatus(int(status)).phrase
    return f"<p><b>{status}</b> {rich(means)}</p>{_content(said.get('content', {}))}{more}"


def _problems(call: _Call, document: Mapping[str, Any]) -> str:
    """Return links to the pages about the operation's possible problems."""
    rows = []
    for status, said in call.said["responses"].items():
        if "$ref" not in said:
            continue
        known = document["components"]["responses"][str(said["$ref"]).rpartition("/")[2]]
        examples = known["content"]["application/problem+json"]["examples"]
        links = ", ".join(
            f'<a href="{_ROOT}/problems/{escape(slug)}">{rich(each["value"]["title"])}</a>'
            for slug, each in examples.items()
        )
        rows.append(f"<dt>{status}</dt><dd>{links}</dd>")
    return f"<details><summary>Problems</summary><dl>{''.join(rows)}</dl></details>" if rows else ""


def _models(document: Mapping[str, Any]) -> str:
    shown = "".join(_model(name, schema) for name, schema in document["components"]["schemas"].items())
    return f'<h2 id="models">Models</h2>{shown}'


def _model(name: str, schema: Mapping[str, Any]) -> str:
    fields = "".join(
        f"<dt><code>{escape(field)}</code></dt><dd>{rich(said.get('description', ''))} "
        f'<span class="soft">{_type(said)}</span></dd>'
        for field, said in schema.get("properties", {}).items()
    )
    examples = "".join(
        f"<pre><code>{escape(json.dumps(example, indent=2, ensure_ascii=False))}</code></pre>"
        for example in schema.get("examples", ())
    )
    more = f"<details><summary>Example</summary>{examples}</details>" if examples else ""
    title, description = escape(_plain(name).capitalize()), rich(schema.get("description", ""))
    return _MODEL.substitute(id=escape(name), title=title, description=description, fields=fields, more=more)
