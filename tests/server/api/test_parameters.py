"""Query parameters that a dataclass declares: names, values and the description for OpenAPI."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import pytest
from fastapi import Depends
from fastapi import Query as Parameter
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from tests.support.calls import RULES

from protoslice.errors import InvalidInput
from protoslice.server.api.parameters import CLIENT, SIZE, Parameters
from protoslice.server.api.views import VIEWS


@dataclass(frozen=True, slots=True)
class _Query:
    text: Annotated[str | None, Parameter(description="A text.", examples=["a"])] = None
    form: Annotated[str, Parameter(description="A form.", examples=["b"], json_schema_extra={"enum": ["a", "b"]})] = "a"
    many: Annotated[tuple[str, ...], Parameter(description="Texts; repeatable.", examples=[["a"]])] = ()
    flag: Annotated[bool, Parameter(description="A flag.", examples=[True])] = False
    number: Annotated[int, Parameter(description="A number.", examples=[1])] = 7
    size: Annotated[int | None, SIZE, Parameter(description="A size.", examples=["64KiB"])] = None
    client: Annotated[str, CLIENT] = ""


PARAMETERS = Parameters(_Query)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (b"", _Query()),
        (b"text=", _Query(text="", client="me")),
        (b"text=a%20b&form=b", _Query(text="a b", form="b", client="me")),
        (b"form=", _Query(client="me")),
        (b"many=a&many=b,c", _Query(many=("a", "b,c"), client="me")),
        (b"flag=true&number=12", _Query(flag=True, number=12, client="me")),
        (b"size=64KiB", _Query(size=65536, client="me")),
    ],
)
def test_parameters_read_values_by_their_annotations(query: bytes, expected: _Query) -> None:
    assert PARAMETERS.read(query, "me") == expected


@pytest.mark.parametrize(
    ("query", "detail"),
    [
        (b"txt=a", "did you mean 'text'"),
        (b"client=you", "Unknown query parameter 'client'"),
        (b"text=a&text=b", "may be given only once"),
        (b"flag=yes", "use true or false"),
        (b"number=-1", "Invalid number"),
        (b"size=big", "big"),
    ],
)
def test_parameters_refuse_unknown_repeated_and_invalid_ones(query: bytes, detail: str) -> None:
    with pytest.raises(InvalidInput, match=detail):
        PARAMETERS.read(query)


async def _handler(query: Annotated[_Query, Depends()]) -> None: ...


def test_parameters_are_described_by_fastapi() -> None:
    described = get_openapi(title="", version="", routes=[APIRoute("/", _handler)])["paths"]["/"]["get"]["parameters"]
    schemas = {each["name"]: each["schema"] for each in described}
    assert schemas.keys() == {"text", "form", "many", "flag", "number", "size"}
    assert not any(each["required"] for each in described)
    assert schemas["text"]["anyOf"] == [{"type": "string"}, {"type": "null"}]
    assert (schemas["form"]["enum"], schemas["form"]["default"]) == (["a", "b"], "a")
    assert schemas["many"]["items"] == {"type": "string"}
    assert (schemas["flag"]["type"], schemas["number"]["type"]) == ("boolean", "integer")
    assert schemas["size"]["type"] == "string"


def test_parameters_want_a_description_and_an_example() -> None:
    @dataclass(frozen=True)
    class Undescribed:
        text: Annotated[str | None, Parameter(description="A text.")] = None

    with pytest.raises(RuntimeError, match="give an example"):
        Parameters(Undescribed)


def test_views_are_described_and_have_a_rule() -> None:
    assert all(view.summary and view.description and RULES[f"GET {view.path}"] is view.rule for view in VIEWS)
