"""The roles of tensors in their model, and the kinds of layers that use the tensors."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache, cached_property, lru_cache
from itertools import pairwise
from typing import Final, NamedTuple

from protoslice.errors import OF_MODELS
from protoslice.facts import Kind, Role
from protoslice.tensors.dtypes import DTYPES, Dtype
from protoslice.tensors.listing import Tensors
from protoslice.tensors.model import RootProto, Tensor, Use

_MOST_NODES: Final = 50_000
"""Largest number of operators of a graph that are examined. In a larger graph, names determine the kinds."""
_MOST_HELD: Final = 64 << 20
"""The memory limit in bytes for the examined operators. Above the limit, names determine the kinds."""
_SMALL: Final = 4096
"""The size in bytes up to which an operator's field is read."""

_WORD: Final = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+")
_NUMBER: Final = re.compile(r"[0-9]+")
_INDEX: Final = re.compile(r"(?<=[./_])[0-9]+")
_SUFFIX: Final = re.compile(
    r"(?:/\.ATTRIBUTES/VARIABLE_VALUE|(?:/Read)?/ReadVariableOp(?:/resource)?|:[0-9]+|(?<=\w)_quant(?:ized)?)$"
)
"""Suffixes that formats and quantizers append to names."""

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
"""A part of a name that means a query, a key or a value."""
_CONTAINER: Final = re.compile(r"(?:attn|attention|conv|linear|dense)_?(?:layer|block)s(?=[._/])|^\w+/[mv]/(?=\w+/)")
"""Parts of names to ignore: containers with layers of all kinds, and prefixes that an optimizer adds."""
_ABOVE_SHAPES: Final = frozenset({"normalization", "quantization", "recurrent", "embedding"})
"""The kinds whose words outweigh a shape that is typical of convolutions."""
_SLOPES: Final = frozenset({"prelu", "alpha"})
"""Words for the learned parameters of an activation function."""
_DENSE: Final = frozenset({"linear", "dense", "project"})
"""Words for a linear layer that follows an embedding or is part of a recurrent block."""
_FORWARD: Final = frozenset({"ff", "mlp", "ffn", "feedforward"})
"""Words for a feed-forward layer in a block that is named after attention."""
_FOLDED: Final = re.compile(r"(?:^|/)Constant(?:_[0-9]+)?(?:_output_[0-9]+)?$")
"""The names of Constant nodes' values, which graph optimizers turn into initializers."""
_LEARNED: Final = [["weight"], ["bias"], ["gamma"], ["beta"], ["alpha"], ["scale"], ["w"], ["b"]]
"""The last words in the names of tensors that hold one learned number."""
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
"""The inputs that hold scales and zero points of quantized numbers, by operator."""
_SLOTS: Final[Mapping[str, Sequence[tuple[int, Kind]]]] = {
    **{op: [(slot, "quantization") for slot in slots] for op, slots in _SCALES.items()},
    "embedlayernormalization": [(slot, "embedding") for slot in (2, 3, 4)],
}
"""The inputs whose kind differs from the kind of their operator: slot and kind, by operator."""
_PRODUCTS: Final = {"matmul": (0, 1), "batchmatmul": (0, 1), "matmulinteger": (0, 1), "qlinearmatmul": (0, 3)}
"""The operators that multiply two matrices, with the slots of both matrices."""
_TRAITS: Final[Mapping[str, re.Pattern[str]]] = {
    name: re.compile(text)
    for name, text in {
        "layer": "matmul|batchmatmul|matmulinteger|qlinearmatmul|gemm",
        "passing": r"(identity|cast|(re)?shape|transpose|(un)?squeeze|expanddims|broadcast|split|(strided)?slice|"
        r"(de|dynamic)?quantize(linear)?|enter|assign|readvariableop|flatten|floor|round|constexpr\w+|fakequant\w+|"
        r"convertlayout)2?",
        "cutting": ".*(slice|split).*",
        "joining": "concat",
        "setting": r"resize\w*|upsample\w*|pad\w*|clip\w*|range|expand|tile|constantofshape|fill|topk|where|"
        r"nonmaxsuppression|pow|compare|equal|greater\w*|less\w*|max\w*|min\w*",
        "adding": "add|biasadd|elementwiseadd|sum|sub|elementwisesub",
        "scaling": "mul|multiply|elementwisemul|div|realdiv|elementwisediv",
        "dividing": "div|realdiv|elementwisediv",
        "inverting": "rsqrt|reciprocal",
        "rooting": "sqrt|pow",
        "quantizing": "dynamicquantizelinear",
    }.items()
}
"""Patterns for the names of operators, by an effect of the operators. `uses.rs` of the core describes the effects."""


class Operator(NamedTuple):
    """The facts about one operator type that determine the kinds of its inputs."""

    kind: Kind | None
    slots: Sequence[tuple[int, Kind]]
    product: tuple[int, int] | None
    traits: frozenset[str]


@lru_cache(1 << 12)
def operator_of(op: str) -> Operator:
    """Return the facts about the operator type `op`."""
    plain = _plain(op)
    traits = frozenset(name for name, means in _TRAITS.items() if means.fullmatch(plain))
    return Operator(kind_of(op), _SLOTS.get(plain, ()), _PRODUCTS.get(plain), traits)


class Fields(NamedTuple):
    """The fields of an operator message. Each is a path of field numbers; see `Findings.uses` of the core."""

    name: Sequence[int]
    op: Sequence[int]
    inputs: Sequence[int]
    outputs: Sequence[int]
    qualified: bool = False
    """True when each graph has separate names of values, and inputs have TensorFlow's syntax."""
    keyed: bool = False
    """True when inputs are the entries of a map."""
    reassigned: bool = False
    """True when an output may have the name of an input."""
    numbers: bool = False
    """True when numbers identify the values, instead of names."""


Look = Callable[[Tensor], Use]
"""A function that returns the role and kind of a tensor."""


def words_of(name: str) -> list[str]:
    """Return the words of a name in lower case, without numbers and without the suffixes that formats add."""
    while (plain := _SUFFIX.sub("", name)) != name:
        name = plain
    return [word.lower() for word in _WORD.findall(name)]


def kind_named(name: str, rank: int | None = None) -> Kind:
    """Return the kind of layer that the words of `name` mean.

    Without such a word, `rank`, the number of dimensions, determines the kind. The result is `other` if neither
    determines a kind.
    """
    return _kind_named(_NUMBER.sub("0", name), rank)


def _kinds_said(name: str, words: Sequence[str]) -> set[Kind]:
    """Return all kinds that the words of a name may mean."""
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


class Kinds(NamedTuple):
    """The kinds of the values that no operator computes, as far as they are known.

    A value that only configures an operator has the kind `other`.
    """

    values: Mapping[str, Kind]
    """The kinds by the names of the values."""
    constants: Mapping[str, Kind]
    """The kinds of constants. The key is the path of the operator that holds the constant and has no inputs."""


def kinds_in(
    proto: RootProto | None,
    type_name: str,
    fields: Fields,
    operator: Callable[[str], Operator] = operator_of,
) -> Kinds:
    """Return the kinds of stored values, derived from the operators that use them.

    Operators are the messages of the type `type_name`. A graph that is too large has no known kinds.
    """
    found = proto.document.find([type_name], small=_SMALL) if proto is not None else None
    if found is None or len(found) > _MOST_NODES or found.held > _MOST_HELD:
        return Kinds({}, {})
    return Kinds(*found.uses(*fields, operator, kind_named))


@lru_cache(1 << 12)
def _plain(op: str) -> str:
    return re.sub(r"[^a-z0-9]|v[0-9]$", "", op.lower())


def kind_of(op: str) -> Kind | None:
    """Return the kind of layer that an operator implements; None if it implements none."""
    plain = _plain(op)
    return next((kind for kind, means in _OPERATORS if means.search(plain)), None)


_NUMBERS: Final = {
    name
    for name, dtype in DTYPES.items()
    if dtype.block is not None or "F" in name or (0 < dtype.bits <= 8 and name != "BOOL")
}
"""The dtypes that a model computes with: floats, quantized types, and integers of at most one byte."""


_LAYERED: Final = {kind: Use("weight", kind) for kind in _WORDS if kind not in {"quantization", "embedding"}}
"""The use of tensors that a model keeps for a layer, by the layer's kind."""


def by_graph(kind: Kind | None, tensor: Tensor, *, weight: bool) -> Use:
    """Return the use of a tensor. `kind` is the kind that the graph gives it, or None.

    `weight` is True if the model keeps the tensor among its weights. Such a tensor is a weight, unless its numbers are
    a shape, an index or a factor that is not learned. Any other tensor is a weight only if a layer uses it as a weight.
    """
    is_number = tensor.dtype is not None and tensor.dtype.name in _NUMBERS
    if weight and kind in _LAYERED and tensor.shape and is_number:
        return _LAYERED[kind]
    if (not tensor.rank and kind != "quantization") or (kind == "embedding" and (tensor.rank != 2 or not is_number)):
        kind = None
    single = tensor.shape is not None and all(length == 1 for length in tensor.shape)
    is_sum = weight and kind in {"linear", "convolution"} and tensor.dtype is not None and tensor.dtype.name == "I32"
    counts = (is_number or is_sum) and kind != "quantization"  # quantized layers have 32-bit integer biases
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
    """A callable that derives the uses of tensors from their names."""

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
        """Return the kind of the tensor `weight` in the same module; `other` if it is absent or one-dimensional."""
        for number in self._found.numbers(f"{module}.weight")[:1]:
            shape = self._found[number].shape
            if shape is not None and len(shape) > 1:
                return kind_named(f"{module}.weight", len(shape))
        return "other"

    @cached_property
    def _normalized(self) -> frozenset[str]:
        """The names of the modules that have running means or variances."""
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
    """Return the role of a tensor among a model's weights, derived from its name and dtype."""
    return _role_named(_INDEX.sub("0", name), dtype)


@lru_cache(1 << 14)
def _role_named(name: str, dtype: Dtype | None) -> Role:
    if _OF_OPTIMIZERS.search(name):
        return "optimizer"
    if _OF_PROGRAMS.search(name) or dtype is None or not dtype.bits:
        return "other"
    is_index = dtype.block is None and dtype.name in {"I64", "BOOL"}
    return "constant" if is_index else "weight"


def deferred(make: Callable[[], Look], otherwise: Callable[[], Look]) -> Look:
    """Return a `Look` that delegates to the result of `make`, or of `otherwise` if the graph is damaged.

    `make` is called once, when the first use is needed.
    """

    @cache
    def known() -> Look:
        try:
            return make()
        except OF_MODELS:
            return otherwise()

    return lambda tensor: known()(tensor)


def with_uses(found: Tensors, make: Callable[[], Look]) -> Tensors:
    """Return the tensors `found`, and give each tensor without a `look` the function that `make` returns.

    `make` is called when the first role is needed.
    """
    look = deferred(make, lambda: NamedUses(found))

    def tensor(number: int) -> Tensor:
        made = found[number]
        return made.used(look) if made.look is None else made

    return Tensors(len(found), tensor, found.key, found.numbers, found.metadata)
