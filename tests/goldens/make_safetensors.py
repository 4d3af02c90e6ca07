"""Writes all_dtypes.safetensors with the Python library: one tensor of each element type that
torch has, a scalar and an empty one.

Run: python tests/goldens/make_safetensors.py   (made with safetensors 0.8.0, torch 2.11.0)
"""

import pathlib

import torch
from safetensors.torch import save_file

KINDS = {
    "bool": torch.bool,
    "u8": torch.uint8,
    "i8": torch.int8,
    "i16": torch.int16,
    "u16": torch.uint16,
    "i32": torch.int32,
    "u32": torch.uint32,
    "i64": torch.int64,
    "u64": torch.uint64,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "f32": torch.float32,
    "f64": torch.float64,
    "f8_e4m3": torch.float8_e4m3fn,
    "f8_e5m2": torch.float8_e5m2,
    "f8_e4m3fnuz": torch.float8_e4m3fnuz,
    "f8_e5m2fnuz": torch.float8_e5m2fnuz,
    "c64": torch.complex64,
}

tensors = {name: (torch.arange(6).reshape(2, 3) * 0.5).to(kind) for name, kind in KINDS.items()}
tensors["f8_e8m0"] = torch.arange(6, dtype=torch.uint8).reshape(2, 3).view(torch.float8_e8m0fnu)
tensors["f4"] = torch.arange(6, dtype=torch.uint8).reshape(2, 3).view(torch.float4_e2m1fn_x2)
tensors["scalar"] = torch.tensor(7.0)
tensors["empty"] = torch.zeros(0, 4, dtype=torch.float16)
save_file(
    tensors, pathlib.Path(__file__).parent / "all_dtypes.safetensors", metadata={"format": "pt"}
)
