"""Text in and out of a GGUF model's ids: its vocabulary and chat template, without its weights."""

from __future__ import annotations

from collections.abc import Sequence

from adapters.engines.llamacpp import abi
from adapters.engines.llamacpp.models import resolve
from harness.engine import EngineError, EngineOptions

_PIECE_BYTES = 256
_DEFAULT_TEMPLATE = b"chatml"


class LlamaTokenizer:
    """See `harness.engine.Tokenizer`."""

    def __init__(self, options: EngineOptions) -> None:
        model = resolve(options.model, options.model_sha256)
        params = abi.lib.llama_model_default_params()
        params.vocab_only = True
        self._model = abi.lib.llama_model_load_from_file(str(model.path).encode(), params)
        if self._model == abi.ffi.NULL:
            raise EngineError(f"model file {model.path}: no vocabulary in it: {abi.last_error()}")
        self._vocab = abi.lib.llama_model_get_vocab(self._model)
        size = int(abi.lib.llama_vocab_n_tokens(self._vocab))
        self._end_ids = tuple(i for i in range(size) if abi.lib.llama_vocab_is_eog(self._vocab, i))
        template = abi.lib.llama_model_chat_template(self._model, abi.ffi.NULL)
        self._template = _DEFAULT_TEMPLATE if template == abi.ffi.NULL else abi.ffi.string(template)

    @property
    def end_ids(self) -> tuple[int, ...]:
        return self._end_ids

    def encode(self, text: str) -> list[int]:
        return self._tokenize(text.encode(), add_special=True, parse_special=False)

    def decode(self, ids: Sequence[int]) -> bytes:
        out = b""
        piece = abi.ffi.new("char[]", _PIECE_BYTES)
        for token in ids:
            n = abi.lib.llama_token_to_piece(self._vocab, token, piece, _PIECE_BYTES, 0, False)
            if n > 0:
                out += bytes(abi.ffi.buffer(piece, n))
        return out

    def chat(self, messages: Sequence[tuple[str, str]]) -> list[int]:
        keep = [(abi.ffi.new("char[]", r.encode()), abi.ffi.new("char[]", c.encode())) for r, c in messages]
        chat = abi.ffi.new("chat_message[]", [{"role": role, "content": content} for role, content in keep])
        room = 1024 + 2 * sum(len(r) + len(c) for r, c in keep)
        out = abi.ffi.new("char[]", room)
        n = abi.lib.llama_chat_apply_template(self._template, chat, len(keep), True, out, room)
        if n < 0 or n > room:
            raise EngineError("the model's chat template is not one that llama.cpp knows")
        return self._tokenize(bytes(abi.ffi.buffer(out, n)), add_special=False, parse_special=True)

    def _tokenize(self, text: bytes, *, add_special: bool, parse_special: bool) -> list[int]:
        room = len(text) + 16
        ids = abi.ffi.new("int32_t[]", room)
        n = abi.lib.llama_tokenize(self._vocab, text, len(text), ids, room, add_special, parse_special)
        if n < 0:
            raise EngineError(f"text of {len(text)} bytes could not be tokenised")
        return list(ids[0:n])
