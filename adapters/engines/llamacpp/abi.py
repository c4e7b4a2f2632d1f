"""The C interface of the pinned xllamacpp wheel's shared object, opened through cffi.

The wheel's Python interface is a server only, but its shared object exports the C functions. That is
undocumented, so everything that could drift is checked once at import: the wheel's version, each symbol,
and the default parameters, whose known values at the right offsets prove the struct layouts.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
from pathlib import Path
from typing import Any

import cffi

WHEEL = "xllamacpp"
WHEEL_VERSION = "2026.10.11549"

# Enums are plain ints and callbacks plain pointers: only the layout matters here.
_DECLARATIONS = """
typedef struct {
    void *devices; void *tensor_buft_overrides;
    int32_t n_gpu_layers, split_mode, load_mode, lazy_mode, main_gpu;
    void *tensor_split; void *progress_callback; void *progress_callback_user_data; void *kv_overrides;
    bool vocab_only, check_tensors, use_extra_bufts, no_host, no_alloc, load_mtp;
} model_params;

typedef struct {
    uint32_t n_ctx, n_batch, n_ubatch, n_seq_max, n_rs_seq, n_outputs_max, n_outputs_max_per_seq;
    int32_t n_threads, n_threads_batch;
    int32_t ctx_type, rope_scaling_type, pooling_type, attention_type, flash_attn_type;
    float rope_freq_base, rope_freq_scale, yarn_ext_factor, yarn_attn_factor, yarn_beta_fast, yarn_beta_slow;
    uint32_t yarn_orig_ctx;
    float defrag_thold;
    void *cb_eval; void *cb_eval_user_data;
    int32_t type_k, type_v;
    size_t moe_cache_size;
    void *abort_callback; void *abort_callback_data;
    bool embeddings, offload_kqv, no_perf, op_offload, swa_full, kv_unified;
    void *samplers; size_t n_samplers;
    void *ctx_other;
} context_params;

typedef struct {
    int32_t n_tokens;
    int32_t *token; float *embd; int32_t *pos; int32_t *n_seq_id; int32_t **seq_id; int8_t *logits;
} batch;

typedef struct { const char *role; const char *content; } chat_message;

void llama_backend_init(void);
void llama_log_set(void (*callback)(int level, const char *text, void *user_data), void *user_data);
model_params llama_model_default_params(void);
context_params llama_context_default_params(void);

void *llama_model_load_from_file(const char *path, model_params params);
void llama_model_free(void *model);
void *llama_model_get_vocab(const void *model);
int32_t llama_vocab_n_tokens(const void *vocab);
int32_t llama_vocab_get_attr(const void *vocab, int32_t token);

void *llama_init_from_model(void *model, context_params params);
void llama_free(void *context);
void *llama_get_memory(const void *context);
bool llama_memory_seq_rm(void *memory, int32_t seq, int32_t p0, int32_t p1);
size_t llama_state_seq_get_size_ext(void *context, int32_t seq, uint32_t flags);
size_t llama_state_seq_get_data_ext(void *context, uint8_t *out, size_t bytes, int32_t seq, uint32_t flags);
size_t llama_state_seq_set_data_ext(void *context, const uint8_t *in, size_t bytes, int32_t seq,
                                   uint32_t flags);

int32_t llama_decode(void *context, batch b);
float *llama_get_logits_ith(void *context, int32_t i);

int32_t llama_tokenize(const void *vocab, const char *text, int32_t text_bytes, int32_t *out, int32_t n_out,
                       bool add_special, bool parse_special);
int32_t llama_token_to_piece(const void *vocab, int32_t token, char *out, int32_t out_bytes, int32_t lstrip,
                             bool special);
bool llama_vocab_is_eog(const void *vocab, int32_t token);
const char *llama_model_chat_template(const void *model, const char *name);
int32_t llama_chat_apply_template(const char *name, const chat_message *messages, size_t n_messages,
                                  bool add_assistant, char *out, int32_t out_bytes);
"""

_MODEL_DEFAULTS: dict[str, object] = {
    "n_gpu_layers": -1,
    "split_mode": 1,
    "main_gpu": 0,
    "vocab_only": False,
    "check_tensors": False,
    "use_extra_bufts": True,
    "no_alloc": False,
}
_CONTEXT_DEFAULTS: dict[str, object] = {
    "n_ctx": 512,
    "n_batch": 2048,
    "n_ubatch": 512,
    "n_seq_max": 1,
    "rope_scaling_type": -1,
    "pooling_type": -1,
    "attention_type": -1,
    "flash_attn_type": -1,
    "yarn_ext_factor": -1.0,
    "defrag_thold": -1.0,
    "type_k": 1,
    "type_v": 1,
    "embeddings": False,
    "offload_kqv": True,
    "no_perf": True,
    "op_offload": True,
    "kv_unified": False,
    "n_samplers": 0,
}

_LOG_ERROR = 4
_last_error: list[str] = []


class AbiError(RuntimeError):
    """The installed llama.cpp is not the one these declarations fit. One line."""


def _shared_object() -> Path:
    wanted = f"install {WHEEL}=={WHEEL_VERSION}"
    try:
        version = importlib.metadata.version(WHEEL)
    except importlib.metadata.PackageNotFoundError:
        raise AbiError(f"{WHEEL} is not installed; {wanted}") from None
    if version != WHEEL_VERSION:
        raise AbiError(f"{WHEEL} {version} is installed, but its C interface is used directly; {wanted}")
    # Found without importing it: its own server is not wanted in this process.
    spec = importlib.util.find_spec(WHEEL)
    places = spec.submodule_search_locations if spec is not None else None
    found = [path for place in places or () for path in Path(place).glob(f"{WHEEL}*.so")]
    if len(found) != 1:
        raise AbiError(f"{WHEEL} {version} holds {len(found)} shared objects, expected 1; {wanted}")
    return found[0]


def _check_defaults(what: str, params: Any, expected: dict[str, object]) -> None:
    for name, value in expected.items():
        got = getattr(params, name)
        if got != value:
            raise AbiError(
                f"llama.cpp's default {what}.{name} reads as {got}, expected {value}: "
                f"its struct layout differs from {WHEEL} {WHEEL_VERSION}"
            )


def _open() -> tuple[Any, Any]:
    ffi = cffi.FFI()
    ffi.cdef(_DECLARATIONS)
    path = _shared_object()
    try:
        lib = ffi.dlopen(str(path))
        for line in dir(lib):
            getattr(lib, line)
    except (OSError, AttributeError) as error:
        raise AbiError(
            f"{path.name}: {str(error).splitlines()[0]}; install {WHEEL}=={WHEEL_VERSION}"
        ) from None
    _check_defaults("model parameter", lib.llama_model_default_params(), _MODEL_DEFAULTS)
    _check_defaults("context parameter", lib.llama_context_default_params(), _CONTEXT_DEFAULTS)
    return ffi, lib


def last_error() -> str:
    """The last error line llama.cpp logged since the previous call, or ''."""
    text = _last_error[-1] if _last_error else ""
    _last_error.clear()
    return text


ffi, lib = _open()


@ffi.callback("void(int, const char *, void *)")  # type: ignore[untyped-decorator]
def _log(level: int, text: Any, _user_data: Any) -> None:
    if level == _LOG_ERROR:
        _last_error[:] = [ffi.string(text).decode(errors="replace").strip()]


lib.llama_log_set(_log, ffi.NULL)
lib.llama_backend_init()
