"""A generated model: random f32 weights in the llama architecture, deterministic by its parameters."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt

_CONTEXT_TOKENS = 16384
_SPECIAL = (b"<unk>", b"<s>", b"</s>")
_WEIGHT_SCALE = 0.08
_F32_BYTES = 4


@dataclass(frozen=True, slots=True)
class Shape:
    """Dimensions of a tiny model."""

    layers: int
    heads: int
    head_width: int
    embedding: int = 128
    feed_forward: int = 256
    vocab: int = 512
    seed: int = 0

    @property
    def kv_bytes_per_token(self) -> int:
        """K and V, f32, one KV head a query head."""
        return self.layers * self.heads * self.head_width * 2 * _F32_BYTES


def shape_for(kv_bytes_per_token: int, seed: int) -> Shape:
    """The cheapest shape whose KV bytes per token come closest to the wanted."""
    shapes = [Shape(layers, 1, width, seed=seed) for layers in range(1, 17) for width in range(32, 257, 16)]
    return min(shapes, key=lambda s: (abs(s.kv_bytes_per_token - kv_bytes_per_token), s.layers))


def write(path: Path, shape: Shape) -> None:
    """Write the model file."""
    random = np.random.default_rng(shape.seed)

    def weights(*size: int) -> npt.NDArray[np.float32]:
        return (random.standard_normal(size) * _WEIGHT_SCALE).astype(np.float32)

    ones = np.ones(shape.embedding, np.float32)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name(path.stem)
    writer.add_context_length(_CONTEXT_TOKENS)
    writer.add_embedding_length(shape.embedding)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.feed_forward)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.heads)
    writer.add_key_length(shape.head_width)
    writer.add_value_length(shape.head_width)
    writer.add_rope_dimension_count(shape.head_width)
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    _add_vocabulary(writer, shape.vocab)
    writer.add_tensor(
        "token_embd.weight", random.standard_normal((shape.vocab, shape.embedding)).astype(np.float32)
    )
    writer.add_tensor("output_norm.weight", ones)
    writer.add_tensor("output.weight", weights(shape.vocab, shape.embedding))
    attention = shape.heads * shape.head_width
    for layer in range(shape.layers):
        name = f"blk.{layer}."
        writer.add_tensor(name + "attn_norm.weight", ones)
        writer.add_tensor(name + "ffn_norm.weight", ones)
        for part in ("attn_q", "attn_k", "attn_v"):
            writer.add_tensor(f"{name}{part}.weight", weights(attention, shape.embedding))
        writer.add_tensor(name + "attn_output.weight", weights(shape.embedding, attention))
        writer.add_tensor(name + "ffn_gate.weight", weights(shape.feed_forward, shape.embedding))
        writer.add_tensor(name + "ffn_up.weight", weights(shape.feed_forward, shape.embedding))
        writer.add_tensor(name + "ffn_down.weight", weights(shape.embedding, shape.feed_forward))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_vocabulary(writer: gguf.GGUFWriter, size: int) -> None:
    """Three special ids, the 256 bytes, and words."""
    words = [f"\u2581w{i}".encode() for i in range(len(_SPECIAL) + 256, size)]
    kinds = gguf.TokenType
    writer.add_vocab_size(size)
    writer.add_tokenizer_model("llama")
    writer.add_token_list([*_SPECIAL, *(f"<0x{i:02X}>".encode() for i in range(256)), *words])
    writer.add_token_scores([0.0] * (len(_SPECIAL) + 256) + [-float(i) for i in range(len(words))])
    writer.add_token_types(
        [kinds.UNKNOWN, kinds.CONTROL, kinds.CONTROL, *[kinds.BYTE] * 256, *[kinds.NORMAL] * len(words)]
    )
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_add_bos_token(False)
    writer.add_add_space_prefix(False)
