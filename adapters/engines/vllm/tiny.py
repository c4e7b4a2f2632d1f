"""A generated model: random f32 weights in the llama architecture, as a directory that vLLM loads."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

_CONTEXT_TOKENS = 16384
_WEIGHT_SCALE = 0.08
_F32_BYTES = 4
_HEAD_WIDTHS = (32, 64, 80, 96, 112, 128, 160, 192, 224, 256)  # what vLLM's CPU attention computes
KV_BYTES = 2048
"""KV bytes a token, unless the name asks for others."""
SPECIAL_IDS = 3


@dataclass(frozen=True, slots=True)
class Shape:
    """Dimensions of a tiny model."""

    layers: int
    head_width: int
    heads: int = 1
    embedding: int = 128
    feed_forward: int = 256
    vocab: int = 512
    seed: int = 0

    @property
    def kv_bytes_per_token(self) -> int:
        """K and V, f32, one KV head."""
        return self.layers * self.head_width * 2 * _F32_BYTES


def shape_for(kv_bytes_per_token: int, seed: int) -> Shape:
    """The cheapest shape of two layers or more whose KV bytes per token come closest to the wanted."""
    shapes = [Shape(layers, width, seed=seed) for layers in range(2, 17) for width in _HEAD_WIDTHS]
    return min(shapes, key=lambda s: (abs(s.kv_bytes_per_token - kv_bytes_per_token), s.layers))


def write(directory: Path, shape: Shape) -> None:
    """Write config.json and model.safetensors into an existing directory."""
    _save(directory / "model.safetensors", _tensors(shape))
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": shape.embedding,
        "intermediate_size": shape.feed_forward,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.heads,
        "head_dim": shape.head_width,
        "hidden_act": "silu",
        "vocab_size": shape.vocab,
        "max_position_embeddings": _CONTEXT_TOKENS,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "torch_dtype": "float32",
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    (directory / "config.json").write_text(json.dumps(config, indent=1) + "\n")


def _tensors(shape: Shape) -> dict[str, npt.NDArray[np.float32]]:
    random = np.random.default_rng(shape.seed)

    def weights(*size: int) -> npt.NDArray[np.float32]:
        return (random.standard_normal(size) * _WEIGHT_SCALE).astype(np.float32)

    ones = np.ones(shape.embedding, np.float32)
    attention = shape.heads * shape.head_width
    tensors = {
        "model.embed_tokens.weight": random.standard_normal((shape.vocab, shape.embedding)).astype(
            np.float32
        ),
        "model.norm.weight": ones,
        "lm_head.weight": weights(shape.vocab, shape.embedding),
    }
    for layer in range(shape.layers):
        name = f"model.layers.{layer}."
        tensors[name + "input_layernorm.weight"] = ones.copy()
        tensors[name + "post_attention_layernorm.weight"] = ones.copy()
        for part in "qkv":
            tensors[f"{name}self_attn.{part}_proj.weight"] = weights(attention, shape.embedding)
        tensors[name + "self_attn.o_proj.weight"] = weights(shape.embedding, attention)
        tensors[name + "mlp.gate_proj.weight"] = weights(shape.feed_forward, shape.embedding)
        tensors[name + "mlp.up_proj.weight"] = weights(shape.feed_forward, shape.embedding)
        tensors[name + "mlp.down_proj.weight"] = weights(shape.embedding, shape.feed_forward)
    return tensors


def _save(path: Path, tensors: dict[str, npt.NDArray[np.float32]]) -> None:
    """The safetensors format: the length of a JSON header, the header, the tensors one after the other."""
    entries: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, tensor in tensors.items():
        entries[name] = {"dtype": "F32", "shape": tensor.shape, "data_offsets": [end, end + tensor.nbytes]}
        end += tensor.nbytes
    header = json.dumps(entries).encode()
    header += b" " * (-len(header) % 8)
    with path.open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        for tensor in tensors.values():
            file.write(tensor.astype("<f4").tobytes())
