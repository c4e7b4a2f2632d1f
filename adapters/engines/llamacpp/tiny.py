"""A generated model: random f32 weights in the llama architecture, deterministic by its parameters.

Its results are bit-identical however they were computed: alone or in any batch, one id at a time or many,
with KV computed here or imported. llama.cpp's CPU kernels do not promise that: a matrix product goes to a
blocked kernel or to a dot product for each element depending on the shape of the batch, and the two sum
in different orders. The blocked kernel takes only matrices whose number of rows is a multiple of 4 and
inputs that are contiguous. So every matrix here has 4k + 2 rows, and there are three heads, whose
interleaved queries are not contiguous; every product is then the same dot product, whatever the batch.
Flash attention is off: its kernels change with the batch as well.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt

CONTEXT_TOKENS = 16384
GENERATION = 1
"""Goes up with every change of what `write` writes."""
KV_BYTES = 1824
"""Per token, by default: head width 38, one of the fast ones of a two-layer model."""

_HEADS = 3
_WIDEST_HEAD = 130
_EMBEDDING = 130
_FEED_FORWARD = 258
_VOCAB = 514
_SPECIAL = (b"<unk>", b"<s>", b"</s>")
_WEIGHT_SCALE = 0.08
_FOCUS_SCALE = 0.16
"""Queries and keys: sharp attention, so that single positions matter and a lost or wrong one shows."""
_F32_BYTES = 4


@dataclass(frozen=True, slots=True)
class Shape:
    """What differs between tiny models."""

    layers: int
    head_width: int
    seed: int

    @property
    def kv_bytes_per_token(self) -> int:
        """K and V, f32, every head its own."""
        return self.layers * _HEADS * self.head_width * 2 * _F32_BYTES


def shape_for(kv_bytes_per_token: int, seed: int) -> Shape:
    """The shape whose KV bytes per token come closest: within 2 % from 2.4 kB on, 100 bytes below."""
    # In the first layer KV depends on the ids alone; from the second on, on the whole context.
    per_width = _HEADS * 2 * _F32_BYTES
    layers = max(2, math.ceil(kv_bytes_per_token / (per_width * _WIDEST_HEAD)))
    width = 4 * round((kv_bytes_per_token / (per_width * layers) - 2) / 4) + 2
    return Shape(layers, max(6, width), seed)


def write(path: Path, shape: Shape) -> None:
    """Write the model file."""
    random = np.random.default_rng(shape.seed)

    def weights(*size: int, scale: float = _WEIGHT_SCALE) -> npt.NDArray[np.float32]:
        return (random.standard_normal(size) * scale).astype(np.float32)

    ones = np.ones(_EMBEDDING, np.float32)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name(path.stem)
    writer.add_context_length(CONTEXT_TOKENS)
    writer.add_embedding_length(_EMBEDDING)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(_FEED_FORWARD)
    writer.add_head_count(_HEADS)
    writer.add_head_count_kv(_HEADS)
    writer.add_key_length(shape.head_width)
    writer.add_value_length(shape.head_width)
    writer.add_rope_dimension_count(shape.head_width)
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    _add_vocabulary(writer, _VOCAB)
    writer.add_tensor("token_embd.weight", weights(_VOCAB, _EMBEDDING, scale=1.0))
    writer.add_tensor("output_norm.weight", ones)
    output = weights(_VOCAB, _EMBEDDING)
    output[: len(_SPECIAL)] = 0.0  # so that no special id is ever the best one
    writer.add_tensor("output.weight", output)
    attention = _HEADS * shape.head_width
    for layer in range(shape.layers):
        name = f"blk.{layer}."
        writer.add_tensor(name + "attn_norm.weight", ones)
        writer.add_tensor(name + "ffn_norm.weight", ones)
        for part, scale in (("q", _FOCUS_SCALE), ("k", _FOCUS_SCALE), ("v", _WEIGHT_SCALE)):
            writer.add_tensor(f"{name}attn_{part}.weight", weights(attention, _EMBEDDING, scale=scale))
        writer.add_tensor(name + "attn_output.weight", weights(_EMBEDDING, attention))
        writer.add_tensor(name + "ffn_gate.weight", weights(_FEED_FORWARD, _EMBEDDING))
        writer.add_tensor(name + "ffn_up.weight", weights(_FEED_FORWARD, _EMBEDDING))
        writer.add_tensor(name + "ffn_down.weight", weights(_EMBEDDING, _FEED_FORWARD))
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
