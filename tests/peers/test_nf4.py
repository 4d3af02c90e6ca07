"""model.base_dtype: nf4 against bitsandbytes' double-quantised NF4 on the CPU.

lft's side is the program tests/peer_driver of the build folder, set by LFT_BUILD (build).
"""

import torch
from bitsandbytes import functional

from tools import driver

BLOCK = 64


def weights():
    """Columns are whole blocks: bitsandbytes' CPU backend starts a new block at every row
    when it reads codes back, its GPU kernels do not."""
    generator = torch.Generator().manual_seed(3)
    out = {}
    for rows, columns, deviation in ((64, 64, 0.02), (512, 1408, 0.02), (96, 4096, 1.0)):
        out[f"{rows}x{columns}"] = torch.randn(rows, columns, generator=generator) * deviation
    uneven = torch.randn(256, 512, generator=generator) * 10 ** (
        torch.rand(256, 1, generator=generator) * -4
    )
    uneven[7] = 0
    out["uneven"] = uneven
    out["bfloat16"] = (torch.randn(128, 256, generator=generator) * 0.05).bfloat16().float()
    return out


def test_codes_and_values_equal_bitsandbytes(tmp_path):
    cases = weights()
    ours = driver("nf4", cases, tmp_path)
    for name, weight in cases.items():
        codes, state = functional.quantize_4bit(
            weight, blocksize=BLOCK, compress_statistics=True, quant_type="nf4"
        )
        assert torch.equal(ours[f"codes.{name}"], codes.flatten()), name
        # The mean of the scales is a float32 sum in another order, off by an ulp or two; a scale
        # whose distance from it is that near the middle between two codes gets the other one.
        assert abs(ours[f"scale_offset.{name}"].item() - state.offset.item()) <= 4e-7 * abs(
            state.offset.item()
        ), name
        steps = (ours[f"scale_codes.{name}"].int() - state.absmax.int()).abs()
        assert steps.max() <= 1 and (steps > 0).float().mean() < 0.01, name
        blocks = steps.repeat_interleave(BLOCK).view(weight.shape) == 0
        theirs = functional.dequantize_4bit(codes, state)
        near = 4 * 2.0**-24 * theirs.abs() + 4e-7 * abs(
            state.offset.item()
        )  # offset and scale are rounded, in bitsandbytes in one fused step
        assert ((ours[f"float32.{name}"] - theirs).abs() <= near)[blocks].all(), name
        low = ours[f"bfloat16.{name}"].float()
        assert ((low - theirs.bfloat16().float()).abs() <= 2.0**-7 * theirs.abs())[blocks].all(), (
            name
        )
        assert (low == theirs.bfloat16().float())[blocks].float().mean() > 0.999, name
