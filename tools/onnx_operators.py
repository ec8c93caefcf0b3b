"""Write the table with the element types of ONNX operators from `onnx.defs`: `python -m tools.onnx_operators`.

For each domain and operator, the table has `[since_version, rules]` for each version whose rules differ from the
version before. `rules` has one rule for each output, separated by blanks; `*` marks a rule that also holds for all
further outputs. A rule has alternatives, separated by `|`. The first alternative that gives a type counts:

- `t7`: the type 7 of `TensorProto.DataType`
- `i0,2+`: the type of input 0, or of the inputs from 2 on
- `@dtype`: the type whose number is the attribute `dtype`
- `c`: the type of the value of a Constant or ConstantOfShape
- `g1`: the type of an inner graph's output; output 0 of the operator takes the graph's output 1, and so on
- `?`: unknown, or no tensor
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import onnx
from onnx import defs

TABLE: Final = Path(__file__).parents[1] / "service/protoslice/formats/onnx_operators.json"
_VARIADIC: Final = defs.OpSchema.FormalParameterOption.Variadic
_ATTRIBUTES: Final = ("to", "dtype", "output_datatype", "output_dtype", "stash_type")
"""Attributes whose value is the type number of an output."""
_OTHERWISE: Final = {
    **dict.fromkeys(("EyeLike", "Bernoulli", "RandomNormalLike", "RandomUniformLike"), "i0"),
    "DequantizeLinear": "i1",
}
"""The rule for an operator whose attribute is missing and has no default."""
_WITHOUT_INPUT: Final = {"QuantizeLinear": "t2"}
"""The rule for an operator whose optional input is missing, where the output has this input's type."""
_INNER: Final = {"If": "g0*", "Loop": "g1*", "Scan": "g0*"}
_CONSTANTS: Final = {"Constant": "c", "ConstantOfShape": "c|t1"}


def table() -> dict[str, Any]:
    """Return the table for the installed version of `onnx`."""
    operators: dict[str, dict[str, list[list[Any]]]] = {}
    for each in sorted(
        defs.get_all_schemas_with_history(), key=lambda each: (each.domain, each.name, each.since_version)
    ):
        versions = operators.setdefault(each.domain, {}).setdefault(each.name, [])
        rules = " ".join(_rules(each))
        if not versions or versions[-1][1] != rules:
            versions.append([each.since_version, rules])
    opsets = {domain: _newest(domain) for domain in operators}
    return {"onnx": onnx.__version__, "opsets": opsets, "operators": operators}


def _newest(domain: str) -> int:
    return max(each.since_version for each in defs.get_all_schemas_with_history() if each.domain == domain)


def _rules(operator: defs.OpSchema) -> Iterator[str]:
    if operator.name in _INNER:
        yield _INNER[operator.name]
        return
    for output in operator.outputs:
        many = output.option == _VARIADIC
        yield ("?" if many and not output.is_homogeneous else _rule(operator, output.type_str)) + "*" * many


def _rule(operator: defs.OpSchema, kind: str) -> str:
    """Return the rule of an output; `kind` is its formal type, which is a type parameter's name or a type."""
    if operator.name in _CONSTANTS:
        return _CONSTANTS[operator.name]
    allowed = next(
        ([*each.allowed_type_strs] for each in operator.type_constraints if each.type_param_str == kind), [kind]
    )
    if not any(each.startswith("tensor(") for each in allowed):
        return "?"
    alternatives = []
    inputs = [
        f"{number}{'+' * (each.option == _VARIADIC)}"
        for number, each in enumerate(operator.inputs)
        if each.type_str == kind and each.is_homogeneous
    ]
    if len(allowed) == 1:
        return f"t{_number(allowed[0])}"
    if inputs:
        alternatives.append("i" + ",".join(inputs))
    for name in _ATTRIBUTES:
        attribute = operator.attributes.get(name)
        if attribute is not None and attribute.type == defs.OpSchema.AttrType.INT and _is_type_of(operator, kind, name):
            alternatives.append(f"@{name}")
            default = attribute.default_value.i
            alternatives += [f"t{default}"] if default else []
            if not inputs and not default and operator.name in _OTHERWISE:
                alternatives.append(_OTHERWISE[operator.name])
    if inputs and operator.name in _WITHOUT_INPUT:
        alternatives.append(_WITHOUT_INPUT[operator.name])
    return "|".join(alternatives) or "?"


def _is_type_of(operator: defs.OpSchema, kind: str, name: str) -> bool:
    """Return True if the attribute sets the output type `kind`: no required input of the operator has this type."""
    required = any(
        each.type_str == kind and each.option != defs.OpSchema.FormalParameterOption.Optional
        for each in operator.inputs
    )
    return not required and (name != "output_dtype" or operator.name in {"QuantizeLinear", "DequantizeLinear"})


def _number(name: str) -> int:
    return int(onnx.TensorProto.DataType.Value(name.removeprefix("tensor(").removesuffix(")").upper()))


def text() -> str:
    """Return the table as the file's text, with one operator on each line."""
    made = table()
    lines = [f'"onnx": {json.dumps(made["onnx"])}', f'"opsets": {json.dumps(made["opsets"])}']
    domains = [
        f"{json.dumps(domain)}: {{\n"
        + ",\n".join(f"{json.dumps(n)}: {json.dumps(v)}" for n, v in operators.items())
        + "\n}"
        for domain, operators in made["operators"].items()
    ]
    return "{\n" + ",\n".join([*lines, '"operators": {\n' + ",\n".join(domains) + "\n}"]) + "\n}\n"


if __name__ == "__main__":
    TABLE.write_text(text())
