"""A Qwen2 written out as an ONNX graph with a key/value cache. In: the torch model. Out: the graph, weights included.

Written node by node, in place of torch's exporter: a thousandth of its time, the same bytes each time, and no stack
traces (which hold a machine's paths) in the file. ``export`` describes the interface and compares it with torch.
Shapes in the comments: B sequences, T new positions, N = P + T positions, K key/value heads, H heads of D units.
Sources: arXiv 2407.10671 section 2.2 (the architecture), 2104.09864 (rotary positions); ONNX operators, opset 18.

Not covered: rotary scaling, attention through a sliding window, activations other than SiLU.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor
from transformers import Qwen2Config, Qwen2ForCausalLM
from transformers.models.qwen2.modeling_qwen2 import Qwen2Attention, Qwen2DecoderLayer, Qwen2MLP, Qwen2RMSNorm

OPSET, FORMAT = 18, 9  # of ONNX; onnxruntime reads both since 1.15


class _Nodes:
    """Nodes in the order in which they are computed, and the numbers that they need."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.numbers: dict[str, onnx.TensorProto] = {}

    def add(self, kind: str, *inputs: str, **attributes: int | Sequence[int]) -> str:
        """A node with one output; returns the output's name."""
        return self.split(kind, 1, *inputs, **attributes)[0]

    def split(self, kind: str, count: int, *inputs: str, **attributes: int | Sequence[int]) -> list[str]:
        """A node with several outputs; returns their names."""
        place = len(self.nodes)
        outputs = [f"{kind.lower()}_{place}_{index}" for index in range(count)]
        node = helper.make_node(kind, list(inputs), outputs)
        node.attribute.extend(helper.make_attribute(name, value) for name, value in attributes.items())
        self.nodes.append(node)
        return outputs

    def name(self, given: str, wanted: str) -> None:
        """Give a value the name under which the graph puts it out."""
        self.nodes.append(helper.make_node("Identity", [given], [wanted]))

    def whole(self, *values: int) -> str:
        """A vector of whole numbers."""
        return self._number(f"whole {values}", np.array(values, np.int64))

    def scalar(self, value: float | int) -> str:
        """A single number: float32 of a float, int64 of an int."""
        kind = np.float32 if isinstance(value, float) else np.int64
        return self._number(f"scalar {value!r}", np.array(value, kind))

    def weight(self, name: str, weights: Tensor) -> str:
        """A tensor of the model; the same name is stored once."""
        return self._number(name, weights.detach().to(torch.float32).contiguous().numpy())

    def _number(self, name: str, value: NDArray[np.generic]) -> str:
        if name not in self.numbers:
            self.numbers[name] = numpy_helper.from_array(value, name)
        return name


def qwen2_graph(model: Qwen2ForCausalLM) -> onnx.ModelProto:
    """The model as a graph of the interface that ``export`` describes."""
    config: Qwen2Config = model.config
    layers = cast("Sequence[Qwen2DecoderLayer]", model.model.layers)
    to = _Nodes()
    embedding = to.weight("embed_tokens", model.model.embed_tokens.weight)
    bias, turn = _sight(to), _turn(to, config, layers[0].self_attn.head_dim)
    hidden = to.add("Gather", embedding, "input_ids")
    cached: list[str] = []
    for index, layer in enumerate(layers):
        prefix = f"layers.{index}"
        read = _norm(to, f"{prefix}.input_layernorm", layer.input_layernorm, hidden)
        hidden = to.add("Add", hidden, _attention(to, index, layer.self_attn, read, bias, turn))
        read = _norm(to, f"{prefix}.post_attention_layernorm", layer.post_attention_layernorm, hidden)
        hidden = to.add("Add", hidden, _mlp(to, f"{prefix}.mlp", layer.mlp, read))
        cached += (f"{index}.key", f"{index}.value")
    last = _norm(to, "norm", model.model.norm, to.add("Gather", hidden, to.scalar(-1), axis=1))
    tied = model.lm_head.weight is model.model.embed_tokens.weight
    head = embedding if tied else to.weight("lm_head", model.lm_head.weight)
    to.name(to.add("Gemm", last, head, transB=1), "logits")
    return _model(to, cached, layers[0].self_attn, config.vocab_size)


def _sight(to: _Nodes) -> str:
    """0 where a new position sees a key, else the smallest float32, [B, 1, T, N].

    Not minus infinity: a padded position sees nothing at all, and its softmax must still be a number.
    """
    new = to.add("Shape", "input_ids", start=1, end=2)
    total = to.add("Shape", "attention_mask", start=1, end=2)
    places = to.add("Range", to.scalar(0), to.add("Squeeze", total), to.scalar(1))
    own = to.add("Slice", places, to.add("Sub", total, new), total)
    earlier = to.add("LessOrEqual", places, to.add("Unsqueeze", own, to.whole(1)))  # [T, N]
    real = to.add("Greater", to.add("Unsqueeze", "attention_mask", to.whole(1, 2)), to.scalar(0))  # [B, 1, 1, N]
    seen = to.add("And", earlier, real)
    return to.add("Where", seen, to.scalar(0.0), to.scalar(float(np.finfo(np.float32).min)))


def _turn(to: _Nodes, config: Qwen2Config, width: int) -> tuple[str, str]:
    """Cosine and sine of each new position's angles, [B, 1, T, D / 2]."""
    base = cast("dict[str, float]", config.rope_parameters)["rope_theta"]
    frequencies = base ** -(torch.arange(0, width, 2, dtype=torch.float32) / width)
    places = to.add("Cast", to.add("Unsqueeze", "position_ids", to.whole(1, 3)), to=TensorProto.FLOAT)
    angles = to.add("Mul", places, to.weight("frequencies", frequencies))
    return to.add("Cos", angles), to.add("Sin", angles)


def _norm(to: _Nodes, name: str, norm: Qwen2RMSNorm, x: str) -> str:
    square = to.add("ReduceMean", to.add("Mul", x, x), to.whole(-1), keepdims=1)
    size = to.add("Sqrt", to.add("Add", square, to.scalar(float(norm.variance_epsilon))))
    return to.add("Mul", to.add("Div", x, size), to.weight(name, norm.weight))


def _linear(to: _Nodes, name: str, layer: torch.nn.Linear, x: str) -> str:
    product = to.add("MatMul", x, to.weight(name, layer.weight.T))
    bias = cast("Tensor | None", layer.bias)
    return product if bias is None else to.add("Add", product, to.weight(f"{name}.bias", bias))


def _mlp(to: _Nodes, name: str, mlp: Qwen2MLP, x: str) -> str:
    gate = _linear(to, f"{name}.gate_proj", mlp.gate_proj, x)
    opened = to.add("Mul", gate, to.add("Sigmoid", gate))
    return _linear(
        to, f"{name}.down_proj", mlp.down_proj, to.add("Mul", opened, _linear(to, f"{name}.up_proj", mlp.up_proj, x))
    )


def _attention(to: _Nodes, index: int, layer: Qwen2Attention, x: str, bias: str, turn: tuple[str, str]) -> str:
    """Grouped-query attention over the cached and the new positions; puts the new cache out."""
    width, name = layer.head_dim, f"layers.{index}.self_attn"

    def heads(part: str, projection: torch.nn.Linear) -> str:  # [B, T, heads x D] to [B, heads, T, D]
        apart = to.add("Reshape", _linear(to, f"{name}.{part}", projection, x), to.whole(0, 0, -1, width))
        return to.add("Transpose", apart, perm=[0, 2, 1, 3])

    def joined(part: str, new: str) -> str:  # [B, K, N, D]
        whole = to.add("Concat", f"past_key_values.{index}.{part}", new, axis=2)
        to.name(whole, f"present.{index}.{part}")
        return _shared(to, whole, layer)

    query = _rotated(to, heads("q_proj", layer.q_proj), turn)
    key = joined("key", _rotated(to, heads("k_proj", layer.k_proj), turn))
    value = joined("value", heads("v_proj", layer.v_proj))
    products = to.add("MatMul", query, to.add("Transpose", key, perm=[0, 1, 3, 2]))  # [B, H, T, N]
    scores = to.add("Add", to.add("Mul", products, to.scalar(width**-0.5)), bias)
    mixed = to.add("MatMul", to.add("Softmax", scores, axis=-1), value)
    together = to.add("Reshape", to.add("Transpose", mixed, perm=[0, 2, 1, 3]), to.whole(0, 0, -1))
    return _linear(to, f"{name}.o_proj", layer.o_proj, together)


def _rotated(to: _Nodes, heads: str, turn: tuple[str, str]) -> str:
    """Turn the pairs (unit i, unit i + D / 2) of each head by the position's angles."""
    cosine, sine = turn
    first, second = to.split("Split", 2, heads, axis=3, num_outputs=2)
    turned = (
        to.add("Sub", to.add("Mul", first, cosine), to.add("Mul", second, sine)),
        to.add("Add", to.add("Mul", second, cosine), to.add("Mul", first, sine)),
    )
    return to.add("Concat", *turned, axis=3)


def _shared(to: _Nodes, heads: str, layer: Qwen2Attention) -> str:
    """Each key/value head as often as there are query heads that share it: [B, K, N, D] to [B, H, N, D]."""
    groups = layer.q_proj.out_features // layer.k_proj.out_features
    if groups == 1:
        return heads
    tiled = to.add("Tile", to.add("Unsqueeze", heads, to.whole(2)), to.whole(1, 1, groups, 1, 1))
    return to.add("Reshape", tiled, to.whole(0, layer.q_proj.out_features // layer.head_dim, -1, layer.head_dim))


def _model(to: _Nodes, cached: Sequence[str], layer: Qwen2Attention, words: int) -> onnx.ModelProto:
    """The graph with its inputs and outputs."""
    heads, width = layer.k_proj.out_features // layer.head_dim, layer.head_dim
    asked = (("input_ids", "new"), ("attention_mask", "past + new"), ("position_ids", "new"))
    inputs = [helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", length]) for name, length in asked]
    inputs += [_cache(f"past_key_values.{part}", heads, "past", width) for part in cached]
    outputs = [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", words])]
    outputs += [_cache(f"present.{part}", heads, "past + new", width) for part in cached]
    graph = helper.make_graph(to.nodes, "conductor", inputs, outputs, list(to.numbers.values()))
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=FORMAT, producer_name="openconductor"
    )
    onnx.checker.check_model(model)
    return model


def _cache(name: str, heads: int, length: str, width: int) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", heads, length, width])
