"""Stores a model's quantized weights as Q8_0, whose kernels are the fast ones on any CPU.

Q4_1 has no blocked kernel: the same weights as Q8_0 compute 2 to 3 times as fast, at twice the size. Eight
bits hold the four-bit levels to within half a step in 127.
"""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
from gguf.quants import dequantize, quantize

_Q8_0_FILE_TYPE = gguf.LlamaFileType.MOSTLY_Q8_0
_PLAIN = (gguf.GGMLQuantizationType.F32, gguf.GGMLQuantizationType.Q8_0)


def to_q8_0(source: Path, target: Path) -> None:
    """Write `target`: the metadata of `source`, its F32 and Q8_0 tensors as they are, the others as Q8_0."""
    reader = gguf.GGUFReader(source)
    architecture = reader.fields["general.architecture"].contents()
    writer = gguf.GGUFWriter(target, architecture)
    for key, field in reader.fields.items():
        # The writer makes the header fields and the architecture itself.
        if key.startswith("GGUF.") or key == "general.architecture":
            continue
        is_array = field.types[0] is gguf.GGUFValueType.ARRAY
        value = int(_Q8_0_FILE_TYPE) if key == "general.file_type" else field.contents()
        writer.add_key_value(key, value, field.types[0], sub_type=field.types[-1] if is_array else None)
    for tensor in reader.tensors:
        if tensor.tensor_type in _PLAIN:
            writer.add_tensor(tensor.name, np.array(tensor.data), raw_dtype=tensor.tensor_type)
        else:
            weights = dequantize(tensor.data, tensor.tensor_type)
            q8_0 = gguf.GGMLQuantizationType.Q8_0
            writer.add_tensor(tensor.name, quantize(weights, q8_0), raw_dtype=q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
