"""Element types of values in ONNX graphs, by the operators that make them; shapes are not worked out.

`operators.json` has the rules of the operators; `tools/onnx_operators.py` derives it from `onnx.defs` and explains it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, cached_property
from importlib.resources import files
from itertools import chain
from typing import Any, Final, Protocol

_FLOAT, _INT64, _STRING = 1, 7, 8
_CONSTANTS: Final[Mapping[str, int]] = {
    "value_float": _FLOAT, "value_floats": _FLOAT, "value_int": _INT64, "value_ints": _INT64,
    "value_string": _STRING, "value_strings": _STRING,
}  # fmt: skip
_TENSOR_TYPES: Final = 1 << 16
"""Above every number of `TensorProto.DataType`."""
STANDARD: Final = frozenset({"", "ai.onnx"})
"""Both names of the domain of the operators of the standard."""


class Maker(Protocol):
    """A node of a graph."""

    @property
    def domain(self) -> str:
        """Domain of its operator."""

    @property
    def operator(self) -> str:
        """Name of its operator."""

    @property
    def inputs(self) -> Sequence[str]:
        """Values that it takes."""

    @property
    def attributes(self) -> Mapping[str, int]:
        """Integers of its attributes by name; 0 for those of other types."""

    @property
    def outputs(self) -> Sequence[str]:
        """Values that it makes."""

    @property
    def constant(self) -> int:
        """Element type of its tensor attribute, or 0."""

    @property
    def inner(self) -> Sequence[int]:
        """Element types of the outputs of its inner graph, 0 where unknown."""


class ElementTypes:
    """Element types of the values of a graph, worked out on first use."""

    def __init__(
        self,
        nodes: Sequence[Maker],
        declared: Mapping[str, int],
        opsets: Mapping[str, int],
        own: Iterable[tuple[str, str]],
    ) -> None:
        """Take the types that the model declares, and has of initializers, and the opsets that it imports by domain.

        `nodes` are in the order of the graph; `own` are domains and names of operators that the model defines.
        """
        self._nodes = nodes
        self._declared = declared
        self._opsets = {_domain(name): version for name, version in opsets.items()}
        self._own = frozenset((_domain(domain), name) for domain, name in own)

    def of(self, name: str) -> int:
        """Element type of the value `name`, as `TensorProto.DataType` numbers it; 0 if unknown."""
        return self._declared.get(name) or self._made.get(name, 0)

    def reason(self, name: str) -> str:
        """Say why the type of the value `name` is unknown."""
        for node in self._nodes:
            if name in node.outputs:
                operator = f"{node.domain or 'ai.onnx'}.{node.operator}"[:200]
                known = "may have several types" if self._rules(node) else "is not known here"
                return f"the operator {operator} that makes it {known}"
        return "no operator makes it"

    @cached_property
    def _made(self) -> Mapping[str, int]:
        """Types of the values that nodes make."""
        found = dict[str, int]()

        def known(name: str) -> int:
            return self._declared.get(name) or found.get(name, 0)

        for node in self._nodes:
            rules = self._rules(node)
            for number, name in enumerate(node.outputs):
                if name and rules:
                    found[name] = _by_rule(rules, number, node, known)
        return found

    def _rules(self, node: Maker) -> Sequence[str]:
        """Return the rules of the outputs of a node; none for an operator that is not in the table."""
        domain = _domain(node.domain)
        opset = self._opsets.get(domain, 0)
        if (domain, node.operator) in self._own or not opset or opset > _table()["opsets"].get(domain, 0):
            return ()
        versions = _table()["operators"][domain].get(node.operator, ())
        return next((rules.split() for since, rules in reversed(versions) if since <= opset), ())


@cache
def _table() -> Any:
    return json.loads((files(__package__) / "operators.json").read_text("ascii"))


def _domain(name: str) -> str:
    return "" if name in STANDARD else name


def _by_rule(rules: Sequence[str], output: int, node: Maker, known: Callable[[str], int]) -> int:
    """Element type of an output of a node; 0 if unknown."""
    if output >= len(rules) and not rules[-1].endswith("*"):
        return 0
    alternatives = rules[min(output, len(rules) - 1)].removesuffix("*").split("|")
    return next(filter(None, (_by_alternative(each, output, node, known) for each in alternatives)), 0)


def _by_alternative(rule: str, output: int, node: Maker, known: Callable[[str], int]) -> int:
    kind, value = rule[0], rule[1:]
    if kind == "t":
        return int(value)
    if kind == "i":
        return next(filter(None, map(known, filter(None, _inputs(value, node.inputs)))), 0)
    if kind == "g":
        place = output + int(value)
        return node.inner[place] if place < len(node.inner) else 0
    if kind == "c":
        return node.constant or next((number for name, number in _CONSTANTS.items() if name in node.attributes), 0)
    stated = node.attributes.get(value, 0) if kind == "@" else 0
    return stated if 0 <= stated < _TENSOR_TYPES else 0


def _inputs(places: str, names: Sequence[str]) -> Iterable[str]:
    """Return the inputs at `places`, such as `0,2` or `1+`."""
    parts = ((int(each.rstrip("+")), each.endswith("+")) for each in places.split(","))
    return chain.from_iterable(names[first : None if many else first + 1] for first, many in parts)
