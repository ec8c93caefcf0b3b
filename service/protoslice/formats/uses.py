"""What tensors are for: the role of each in its model, and the kind of layer that uses it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache, cached_property, lru_cache
from itertools import islice, pairwise
from typing import Any, Final, NamedTuple

from protoslice import schema
from protoslice.errors import OF_MODELS, CorruptModel
from protoslice.facts import Kind, Role
from protoslice.formats.messages import parsed
from protoslice.tensors.dtypes import Dtype
from protoslice.tensors.listing import Tensors
from protoslice.tensors.model import RootProto, Tensor, Use

_MOST_NODES: Final = 50_000
"""Operators of a graph that are looked at; in a larger one, kinds are taken from names."""
_SMALL: Final = 4096
"""Bytes of the largest field of an operator that is looked at."""
_MOST_INPUTS: Final = 64
_MOST_TAKERS: Final = 4
_MOST_FORMS: Final = 16
"""Operators that change the form of one stored value."""
_MOST_LOOKS: Final = 64
"""Operators between a tensor and the one that uses it, and around that, that are looked at."""

_WORD: Final = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+")
_NUMBER: Final = re.compile(r"[0-9]+")
_INDEX: Final = re.compile(r"(?<=[./_])[0-9]+")
_SUFFIX: Final = re.compile(
    r"(?:/\.ATTRIBUTES/VARIABLE_VALUE|(?:/Read)?/ReadVariableOp(?:/resource)?|:[0-9]+|(?<=\w)_quant(?:ized)?)$"
)
"""Ends of names that formats and quantizers add."""

_WORDS_OF: Final[Mapping[Kind, str]] = {
    "normalization": "norm norms layernorm batchnorm groupnorm instancenorm rmsnorm layernormalization bn ln gn "
    "batchnormalization normalization normalisation gamma beta lnorm rms normalize lrn",
    "quantization": "quant quantize quantized quantizer dequantize fakequant qzeros scales absmax lut palette "
    "zeropoint quantization dequantizelinear quantizelinear",
    "recurrent": "lstm gru rnn recurrent blstm bilstm hh ih lstmcell grucell simplernn",
    "embedding": "embed embeds embedding embeddings embedder embedders embd emb wte wpe vocab lookup codebook",
    "attention": "attention attentions attn attns att selfattention selfattn crossattention crossattn query key "
    "value queries keys values qkv kv mha multihead rotary relative wq wk wv wqkv mhsa rope",
    "convolution": "conv convs convolution convolutions convolutional depthwise pointwise downsample deconv "
    "upsample dw pw dwconv convtranspose convbn convnorm conds stem patch convlayer convblock kernelpredictor",
    "linear": "linear linears dense fc fcs mlp mlps ffn feedforward intermediate proj projection projector gemm "
    "matmul head heads classifier classification logits pooler score lm ffw ff moe experts expert fullyconnected "
    "innerproduct up gate down wi wo lora predictions",
}
_WORDS: Final = {kind: frozenset(words.split()) for kind, words in _WORDS_OF.items()}
_PAIRS: Final[Mapping[Kind, frozenset[tuple[str, str]]]] = {
    "normalization": frozenset(
        (first, last) for first in ("running", "moving") for last in ("mean", "var", "variance", "std")
    ),
    "quantization": frozenset({("zero", "point"), ("weight", "scale"), ("input", "scale"), ("g", "idx")}),
    "embedding": frozenset({("cls", "token"), ("mask", "token"), ("token", "type"), ("class", "token")}),
    "linear": frozenset({("feed", "forward")}),
}
_QUERY: Final = re.compile(r"(?:^|[./_])[qkv](?:_(?:proj|lin|linear|dense|bias))?(?=[./]|$)")
"""A step that names a query, a key or a value."""
_CONTAINER: Final = re.compile(r"(?:attn|attention|conv|linear|dense)_?(?:layer|block)s(?=[._/])|^\w+/[mv]/(?=\w+/)")
"""Steps that hold layers of all kinds, and those that an optimizer puts before a name."""
_ABOVE_SHAPES: Final = frozenset({"normalization", "quantization", "recurrent", "embedding"})
"""Kinds by words that count even for tensors with the shape of a convolution's."""
_SLOPES: Final = frozenset({"prelu", "alpha"})
"""Words of numbers that an activation learned."""
_DENSE: Final = frozenset({"linear", "dense", "project"})
"""Words of a layer that follows an embedding, or is inside a recurrent block."""
_FORWARD: Final = frozenset({"ff", "mlp", "ffn", "feedforward"})
"""Words of a layer that follows attention within a block of that name."""
_FOLDED: Final = re.compile(r"(?:^|/)Constant(?:_[0-9]+)?(?:_output_[0-9]+)?$")
"""Names of constants of nodes, as optimizers move them among the weights."""
_LEARNED: Final = [["weight"], ["bias"], ["gamma"], ["beta"], ["alpha"], ["scale"], ["w"], ["b"]]
"""Last words of names of single factors that are learned."""
_STATISTICS: Final = ("running_mean", "moving_mean", "running_var", "moving_variance")

_OPERATORS: Final[Sequence[tuple[Kind, re.Pattern[str]]]] = (
    ("attention", re.compile(r"attention|^mha")),
    ("embedding", re.compile(r"^embed(?!layer)|lookuptable|^(resource)?gather(v2)?$")),
    ("normalization", re.compile(r"norm|^scale$|^lrn$")),
    ("recurrent", re.compile(r"lstm|gru|rnn|recurrent")),
    ("convolution", re.compile(r"conv(?!ert)")),
    ("linear", re.compile(r"matmul|gemm|innerproduct|^linear|^fc$|dense$|fullyconnected|^dot(general)?$|^einsum$")),
)
_SCALES: Final[Mapping[str, Sequence[int]]] = {
    "quantizelinear": (1, 2),
    "dequantizelinear": (1, 2),
    "qlinearconv": (1, 2, 4, 5, 6, 7),
    "qlinearmatmul": (1, 2, 4, 5, 6, 7),
    "convinteger": (2, 3),
    "matmulinteger": (2, 3),
    "matmulnbits": (2, 3, 4),
    "dynamicquantizelstm": (8, 9, 10, 11),
}
"""Inputs that scale quantized numbers."""
_PASSING: Final = re.compile(
    r"(identity|cast|(re)?shape|transpose|(un)?squeeze|expanddims|broadcast|split|(strided)?slice|(de|dynamic)?quantize(linear)?|enter|assign|"
    r"readvariableop|flatten|floor|round|constexpr\w+|fakequant\w+|convertlayout)2?"
)
"""Operators that only change the form of their first input."""
_CUTTING: Final = re.compile("slice|split")
_SETTING: Final = re.compile(
    r"resize\w*|upsample\w*|pad\w*|clip\w*|range|expand|tile|constantofshape|fill|topk|nonmaxsuppression|where|pow|compare|"
    r"equal|greater\w*|less\w*|max\w*|min\w*"
)
"""Operators whose constants say how to compute, and are no weights."""
_ADDING: Final = frozenset(["add", "biasadd", "elementwiseadd", "sum", "sub", "elementwisesub"])
_SCALING: Final = frozenset(["mul", "multiply", "elementwisemul", "div", "realdiv", "elementwisediv"])
_DIVISIONS: Final = frozenset({"div", "realdiv", "elementwisediv"})
_PRODUCTS: Final = {"matmul": (0, 1), "batchmatmul": (0, 1), "matmulinteger": (0, 1), "qlinearmatmul": (0, 3)}
"""Operators that multiply matrices, and the slots of their sides."""
_LAYERS: Final = {*_PRODUCTS, "gemm"}


class Operator(NamedTuple):
    """An operator in a graph; the names of its inputs stand in their slots."""

    name: str
    op: str
    inputs: Sequence[str]
    outputs: Sequence[str]

    @classmethod
    def of(cls, name: str, op: str, inputs: Iterable[str], outputs: Iterable[str]) -> Operator:
        """Return an operator with its first inputs and outputs; others are not needed."""
        return cls(name, op, tuple(islice(inputs, _MOST_INPUTS)), tuple(islice(outputs, _MOST_INPUTS)))


Look = Callable[[Tensor], Use]
"""Says what a tensor is for."""


def words_of(name: str) -> list[str]:
    """Return the words of a name, in lower case and without its numbers and the suffix of its format."""
    while (plain := _SUFFIX.sub("", name)) != name:
        name = plain
    return [word.lower() for word in _WORD.findall(name)]


def kind_named(name: str, rank: int | None = None) -> Kind:
    """Return the kind by whole words of `name`, or else by the number of dimensions; `other` without either."""
    return _kind_named(_NUMBER.sub("0", name), rank)


def _kinds_said(name: str, words: Sequence[str]) -> set[Kind]:
    """Return the kinds that the words of a name say."""
    found = {kind for kind, known in _WORDS.items() if not known.isdisjoint(words)}
    found |= {kind for kind, pairs in _PAIRS.items() if not pairs.isdisjoint(pairwise(words))}
    if _QUERY.search(name):
        found.add("attention")
    if "recurrent" in found:
        last = max(at for at, word in enumerate(words) if word in _WORDS["recurrent"])
        if not _DENSE.isdisjoint(words[last:]):
            found.discard("recurrent")
    return found


@lru_cache(1 << 14)
def _kind_named(name: str, rank: int | None) -> Kind:
    name = _CONTAINER.sub("", name)
    words = words_of(name)
    found = _kinds_said(name, words)
    if "normalization" not in found and not _SLOPES.isdisjoint(words[-2:]):
        return "other"
    large = rank is not None and rank > 3
    if "embedding" in found and ("convolution" in found or (large and "proj" in words)):
        found.discard("embedding")
        found.add("convolution")
    if "embedding" in found and not _DENSE.isdisjoint(words):
        return "linear"
    if "attention" in found and not _FORWARD.isdisjoint(words[-4:]) and _WORDS["attention"].isdisjoint(words[-4:]):
        return "linear"
    if large and found.isdisjoint(_ABOVE_SHAPES):
        return "convolution"
    for kind in _WORDS:
        if kind in found:
            return kind
    return "linear" if rank == 2 else "other"


def kinds_in(proto: RootProto | None, type_name: str, node_of: Callable[[Any, str], Operator]) -> Kinds:
    """Return the kinds of the values that no operator computes, as far as operators or names show them.

    `node_of` makes an operator of a message of the type `type_name`, and of its path.
    """
    found = proto.document.find([type_name], small=_SMALL) if proto is not None else ()
    if len(found) > _MOST_NODES:
        return Kinds({}, {})
    graph, message = _Graph(), schema.bundled().message_class(type_name)
    for each in found:
        with suppress(CorruptModel):  # a damaged operator is ignored
            graph.add(node_of(parsed(message, each), each.path), each.path)
    return Kinds(graph.kinds(), graph.constants)


class Kinds:
    """Kinds of the values that no operator computes; `other` for settings of operators."""

    def __init__(self, values: Mapping[str, Kind], constants: Mapping[str, str]) -> None:
        """Take kinds of values, and `constants`: the values of operators without inputs, by their paths."""
        self._values = values
        self._constants = constants

    def of(self, value: str) -> Kind | None:
        """Return the kind of a value; None if unknown."""
        return self._values.get(value)

    def at(self, path: str) -> Kind | None:
        """Return the kind of the value of the constant at `path`; None if unknown."""
        return self._values.get(self._constants.get(path, ""))


class _Graph:
    """Operators, and who takes and makes each value."""

    def __init__(self) -> None:
        # Columns, of strings and numbers alone: a row for each operator would be work for the garbage collector.
        self._ops: list[str] = []
        self._names: list[str] = []
        self._inputs: list[Sequence[str]] = []
        self._outputs: list[Sequence[str]] = []
        self._takers: dict[str, tuple[int, ...]] = {}
        """Who takes a value: numbers of operators times the most inputs, plus the slot."""
        self._makers: dict[str, int] = {}
        self._said: dict[str, Kind] = {}
        """Kinds by names, as far as they were needed."""
        self._kept: dict[int, bool] = {}
        """Whether operators make values that are kept, as far as it is known."""
        self._room = 0
        self.constants: dict[str, str] = {}

    def add(self, node: Operator, path: str) -> None:
        """Add an operator."""
        number, takers = len(self._ops), self._takers
        self._ops.append(_plain(node.op))
        self._names.append(node.name)
        self._inputs.append(node.inputs)
        self._outputs.append(node.outputs)
        for taker, value in enumerate(node.inputs, number * _MOST_INPUTS):
            known = takers.get(value, ())
            if len(known) < _MOST_TAKERS:
                takers[value] = (*known, taker)
        for value in node.outputs:
            self._makers.setdefault(value, number)
        if not node.inputs and node.outputs:
            self.constants[path] = node.outputs[0]

    def kinds(self) -> Mapping[str, Kind]:
        """Return the known kinds of all values that no operator computes; `other` for settings of operators."""
        found = dict[str, Kind]()
        plain = [_plain_kind(op) for op in self._ops]
        for value, takers in self._takers.items():
            maker = self._makers.get(value)
            if value and (maker is None or not any(self._inputs[maker])):
                self._room = _MOST_LOOKS
                kind = plain[takers[0] // _MOST_INPUTS] or self._taken(value)
                if kind == "linear":
                    kind = self._product(value, takers)
                if kind is not None:
                    found[value] = kind
        return found

    def _product(self, value: str, takers: Sequence[int]) -> Kind:
        """Return the kind of a layer that is a product: names, and other products around it, distinguish three."""
        said = {self._named(value)}
        for number in (taker // _MOST_INPUTS for taker in takers):
            said.add("attention" if number in self._attending else self._named(self._names[number]))
        return "recurrent" if "recurrent" in said else "attention" if "attention" in said else "linear"

    def _named(self, name: str) -> Kind:
        """Return the kind by a name, which a layer and its numbers often share."""
        layer, _, last = name.rpartition(".")
        name = layer if last in {"weight", "bias"} else name
        known = self._said.get(name)
        if known is None:
            known = self._said[name] = kind_named(name)
        return known

    def _taken(self, value: str) -> Kind | None:
        """Return the kind of the operators that take a value."""
        for taker in self._takers.get(value, ()):
            self._room -= 1
            kind = self._used(*divmod(taker, _MOST_INPUTS)) if self._room > 0 else None
            if kind is not None:
                return kind
        return None

    def _used(self, number: int, slot: int) -> Kind | None:
        """Return the kind of what an operator does with the input in `slot`."""
        op, inputs, outputs = self._ops[number], self._inputs[number], self._outputs[number]
        if slot in _SCALES.get(op, ()):
            return "quantization"
        if op == "embedlayernormalization" and 2 <= slot <= 4:
            return "embedding"
        kind = _kind_of(op)
        if kind is not None:
            return None if kind == "embedding" and slot else kind
        if _SETTING.fullmatch(op):
            return "other"
        if op in _DIVISIONS and not slot and outputs:  # a bias, as integers of the scale that comes second
            return self._taken(outputs[0])
        if op in _ADDING or op in _SCALING:
            others = [each for at, each in enumerate(inputs) if at != slot]
            if any(self._ops[self._makers.get(each, number)] == "dynamicquantizelinear" for each in others):
                return "quantization"
            if self._is_affine(number, others):
                return "normalization"
            return next(filter(None, (self._made(each, op in _ADDING) for each in others)), None)
        passes = op == "concat" and all(map(self._is_kept, inputs))
        if outputs and (passes or (not slot and _is_passing(op))):
            return self._taken(outputs[0])
        return None

    def _made(self, value: str, adding: bool) -> Kind | None:
        """Return the kind of the operator of which `value`, a result, is scaled or shifted."""
        number = self._makers.get(value)
        self._room -= 1
        if number is None or self._room <= 0:
            return None
        op, taken = self._ops[number], self._inputs[number]
        if op in {"rsqrt", "reciprocal"} or (op in _DIVISIONS and self._is_root(taken[1:])):
            return "normalization"
        kind = _kind_of(op)
        if kind is not None:
            # Behind a whole normalization, numbers are those of an activation.
            return kind if adding and kind != "normalization" else None
        if adding and _CUTTING.search(op):  # biases are added to whole results
            return None
        passes, inputs = _is_passing(op), taken[:2]
        if passes or op in _SCALING:
            for each, other in zip(inputs, inputs[::-1], strict=True):
                kind = self._made(each, adding)
                if kind == "normalization" or (kind and (passes or self._is_factor(other))):
                    return kind
        return None

    def _is_affine(self, number: int, others: Sequence[str]) -> bool:
        """True for an operator that scales, or then shifts, by stored numbers: a normalization without its statistics.

        `others` are the values that it takes besides the stored one.
        """
        if self._ops[number] in _ADDING:
            return any(self._scales_layer(self._makers.get(each)) for each in others)
        takers = self._takers.get(next(iter(self._outputs[number]), ""), ())
        return self._scales_layer(number) and any(
            self._ops[taker] in _ADDING
            and all(self._is_kept(each) for at, each in enumerate(self._inputs[taker]) if at != slot)
            for taker, slot in (divmod(each, _MOST_INPUTS) for each in takers)
        )

    def _scales_layer(self, number: int | None) -> bool:
        """True for the product of stored numbers with the result of convolutions, or with a sum of such."""
        if number is None or self._ops[number] not in _SCALING - _DIVISIONS:
            return False
        computed = [each for each in self._inputs[number] if not self._is_kept(each)]
        maker = self._makers.get(computed[0]) if len(computed) == 1 < len(self._inputs[number]) else None
        return maker is not None and (self._ops[maker] in _ADDING or _kind_of(self._ops[maker]) == "convolution")

    def _is_factor(self, value: str) -> bool:
        """True for stored numbers, and for those by which integers are scaled back."""
        maker = self._makers.get(value)
        if maker is not None and self._ops[maker] in _SCALING:
            makers = (self._makers.get(each, maker) for each in self._inputs[maker])
            return any(self._ops[each] == "dynamicquantizelinear" for each in makers)
        return self._is_kept(value)

    def _is_kept(self, value: str, forms: int = _MOST_FORMS) -> bool:
        """True for a value that comes from no operator but those that change its form, or put such together."""
        maker = self._makers.get(value)
        if maker is None or not any(self._inputs[maker]):
            return True
        known = self._kept.get(maker)
        if known is not None or not forms:
            return bool(known)
        op, inputs = self._ops[maker], self._inputs[maker]
        parts = inputs if op == "concat" else inputs[:1] if _is_passing(op) else ()
        kept = self._kept[maker] = bool(parts) and all(self._is_kept(each, forms - 1) for each in parts)
        return kept

    @cached_property
    def _attending(self) -> frozenset[int]:
        """Return the operators that make the sides of attention's products, or that take their results."""
        found = set[int]()
        for number, op in enumerate(self._ops):
            sides = self._sides(number) if op in _PRODUCTS else ()
            if len(sides) > 1 and not any(map(self._is_kept, sides)):
                self._mark(sides, found, ahead=False)
                self._mark(self._outputs[number][:1], found, ahead=True)
        return frozenset(found)

    def _mark(self, values: Iterable[str], found: set[int], *, ahead: bool) -> None:
        """Add the operators between `values` and the next layer, with that layer."""
        ways = [(value, False) for value in values]
        while ways:
            value, past = ways.pop()
            makers = (self._makers[value],) if value in self._makers else ()
            for number in (taker // _MOST_INPUTS for taker in self._takers.get(value, ())) if ahead else makers:
                op = self._ops[number]
                inputs, is_layer = self._sides(number), op in _LAYERS
                kept = list(filter(self._is_kept, inputs))
                if op in _SCALING and (scales := [each for each in inputs if self._is_factor(each)]):
                    kept = scales  # numbers that scale integers back are computed
                joins = _is_passing(op) or ((is_layer or op in _ADDING or op in _SCALING) and kept)
                if number in found or not joins or (past and is_layer):
                    continue
                found.add(number)
                if ahead:
                    ways += ((each, past or is_layer) for each in self._outputs[number][:1])
                    self._mark(kept, found, ahead=False)
                else:
                    computed = [each for each in inputs if each not in kept]
                    ways += ((each, False) for each in (kept if is_layer or not computed else computed))

    def _sides(self, number: int) -> Sequence[str]:
        """Return what an operator multiplies, adds or passes."""
        op, inputs = self._ops[number], self._inputs[number]
        if _is_passing(op):
            return inputs[:1]
        return [inputs[slot] for slot in _PRODUCTS.get(op, (0, 1)) if slot < len(inputs)]

    def _is_root(self, values: Sequence[str]) -> bool:
        """Return True where a value is a square root, as a deviation is."""
        makers = (self._makers.get(value) for value in values)
        return any(maker is not None and self._ops[maker] in {"sqrt", "pow"} for maker in makers)


@lru_cache(1 << 12)
def _plain(op: str) -> str:
    return re.sub(r"[^a-z0-9]|v[0-9]$", "", op.lower())


@lru_cache(1 << 12)
def _is_passing(op: str) -> bool:
    return _PASSING.fullmatch(op) is not None


@lru_cache(1 << 12)
def _kind_of(op: str) -> Kind | None:
    return next((kind for kind, means in _OPERATORS if means.search(op)), None)


@lru_cache(1 << 12)
def _plain_kind(op: str) -> Kind | None:
    """Return the kind of an operator that has it in common with all its stored inputs."""
    return None if op in _SCALES or op == "embedlayernormalization" or _kind_of(op) == "embedding" else _kind_of(op)


def kind_of(op: str) -> Kind | None:
    """Return the kind of an operator; None for those of no layer."""
    return _kind_of(_plain(op))


@lru_cache
def _is_number(dtype: Dtype | None) -> bool:
    """Return True for elements that a model computes with: floats, quantized ones, and integers of a byte or less."""
    return dtype is not None and (
        dtype.block is not None or "F" in dtype.name or (0 < dtype.bits <= 8 and dtype.name != "BOOL")
    )


_LAYERED: Final = {kind: Use("weight", kind) for kind in _WORDS if kind not in {"quantization", "embedding"}}
"""Uses of what the model keeps for a layer."""


def by_graph(kind: Kind | None, tensor: Tensor, *, weight: bool) -> Use:
    """Return the use of a tensor, with the `kind` that its graph gives it, if any.

    `weight` says that the model keeps it among its weights: it is one unless its numbers are those of a shape, an index
    or a single factor that is not learned. Any other is one only as the weights of a layer.
    """
    if weight and kind in _LAYERED and tensor.shape and _is_number(tensor.dtype):
        return _LAYERED[kind]
    if (not tensor.rank and kind != "quantization") or (
        kind == "embedding" and (tensor.rank != 2 or not _is_number(tensor.dtype))
    ):
        kind = None
    single = tensor.shape is not None and all(length == 1 for length in tensor.shape)
    is_sum = weight and kind in {"linear", "convolution"} and tensor.dtype is not None and tensor.dtype.name == "I32"
    counts = (_is_number(tensor.dtype) or is_sum) and kind != "quantization"  # biases of quantized layers are sums
    is_layer = kind not in {None, "other", "quantization"}
    kept = weight and not _FOLDED.search(tensor.name) and (not single or words_of(tensor.name)[-1:] in _LEARNED)
    is_weight = counts and (is_layer or (kept and kind is None))
    if kind is None:
        kind = kind_named(tensor.name, 0)
    if is_weight:
        return Use("weight", kind)
    return Use("constant", kind if kind == "quantization" else "other")


@lru_cache(1 << 14)
def _use_named(name: str, dtype: Dtype | None, rank: int | None) -> Use:
    role, kind = role_named(name, dtype), _kind_named(name, rank)
    return Use(role, kind if role != "constant" or kind == "quantization" else "other")


class NamedUses:
    """Uses of tensors by their names alone."""

    def __init__(self, found: Tensors) -> None:
        self._found = found

    def __call__(self, tensor: Tensor) -> Use:
        """Return the use of a tensor of `found`."""
        name, rank = tensor.name, tensor.rank
        use = _use_named(_NUMBER.sub("0", name), tensor.dtype, rank)
        if rank != 1 or use.kind == "normalization":
            return use
        module, dot, _ = name.rpartition(".")
        if dot and module in self._normalized:
            return Use(use.role, "normalization")
        return Use(use.role, self._sibling(module)) if dot and use.kind == "other" else use

    def _sibling(self, module: str) -> Kind:
        """Return the kind of the weights of the same layer."""
        for number in self._found.numbers(f"{module}.weight")[:1]:
            shape = self._found[number].shape
            if shape is not None and len(shape) > 1:
                return kind_named(f"{module}.weight", len(shape))
        return "other"

    @cached_property
    def _normalized(self) -> frozenset[str]:
        """Layers that have means or variances."""
        names = (self._found.key(number)[0] for number in range(len(self._found)))
        return frozenset(name.rpartition(".")[0] for name in names if name.endswith(_STATISTICS))


_OF_OPTIMIZERS: Final = re.compile(
    r"(^|[./_])optimizer([./_]|$)|\.OPTIMIZER_SLOT|(^|[./])(exp_avg(_sq)?|momentum_buffer|max_exp_avg_sq)([./]|$)"
    r"|/(Adam|Momentum|RMSProp|Adagrad|Adadelta|Ftrl|Lamb|LAMB|AdamW\w*)(_\d+)?$|(^|/)beta[12]_power(_\d+)?$"
    r"|(_|/)(moment[12]|velocity|beta[12]_pow_acc)_\d+$"
)
_OF_PROGRAMS: Final = re.compile(
    r"(^|/)(save_counter|global_step|_CHECKPOINTABLE_OBJECT_GRAPH|seed_generator\w*)(/|$)|(^|/)keras_api/metrics/|num_batches_tracked$"
)


def role_named(name: str, dtype: Dtype | None) -> Role:
    """Return the role of a tensor among the weights of a model, by its name and type."""
    return _role_named(_INDEX.sub("0", name), dtype)


@lru_cache(1 << 14)
def _role_named(name: str, dtype: Dtype | None) -> Role:
    if _OF_OPTIMIZERS.search(name):
        return "optimizer"
    if _OF_PROGRAMS.search(name) or dtype is None or not dtype.bits:
        return "other"
    is_index = dtype.block is None and dtype.name in {"I64", "BOOL"}
    return "constant" if is_index else "weight"


def with_uses(found: Tensors, make: Callable[[], Look]) -> Tensors:
    """Return tensors that say what each of them is for, by `make` if they do not say it yet.

    `make` is called when the first of them is asked for its use.
    """

    @cache
    def known() -> Look:
        try:
            return make()
        except OF_MODELS:  # a damaged graph: use the names
            return NamedUses(found)

    def look(tensor: Tensor) -> Use:
        return known()(tensor)

    def tensor(number: int) -> Tensor:
        made = found[number]
        return made.used(look) if made.look is None else made

    return Tensors(len(found), tensor, found.key, found.numbers, found.metadata)
