"""model.base_dtype: fp8 against torch's float8_e4m3fn: codes and scales bit for bit,
products against torch._scaled_mm's definition in float64 (its CPU kernel has no row scales).

lft's side is the program tests/peer_driver of the build folder, set by LFT_BUILD (build).
"""

import torch

from tools import driver

MOST = torch.finfo(torch.float8_e4m3fn).max  # 448


def cases():
    generator = torch.Generator().manual_seed(3)
    out = {}
    for tokens, rows, columns, deviation in (
        (1, 16, 16, 0.02),
        (33, 512, 1408, 0.02),
        (7, 96, 4096, 1.0),
    ):
        out[f"x.{rows}x{columns}"] = torch.randn(tokens, columns, generator=generator).bfloat16()
        out[f"w.{rows}x{columns}"] = torch.randn(rows, columns, generator=generator) * deviation
    uneven = torch.randn(256, 512, generator=generator) * 10 ** (
        torch.rand(256, 1, generator=generator) * -4
    )
    uneven[7] = 0
    out["w.uneven"] = uneven.bfloat16()
    outliers = torch.randn(64, 512, generator=generator)
    outliers[:, 5] *= 100
    outliers[9] = 0
    out["x.uneven"] = outliers.bfloat16()
    return out


def quantised(x):
    most = x.float().abs().amax(1, keepdim=True).clamp(min=2.0**-100)
    up = (
        torch.full_like(most, MOST) / most
    )  # dividing a number by a tensor would multiply by the tensor's rounded reciprocal
    return (x.float() * up).to(torch.float8_e4m3fn), most / MOST


def product(a, b, tokens):
    """Product of codes and scales as defined by torch._scaled_mm, and the error of float32 sums and
    one rounding to bfloat16."""
    exact = (a[0].double() * a[1].double()) @ (b[0].double() * b[1].double()).t()
    magnitudes = (a[0].double().abs() * a[1].double()) @ (b[0].double().abs() * b[1].double()).t()
    assert exact.shape[0] == tokens
    return exact, exact.abs() * 2.0**-8 * 1.01 + magnitudes * ((a[0].shape[1] + 3) * 2.0**-24)


def test_codes_and_products_are_torchs(tmp_path):
    inputs = cases()
    ours = driver("fp8", inputs, tmp_path)
    for key in inputs:
        if not key.startswith("w."):
            continue
        name = key[2:]
        x, weight = inputs[f"x.{name}"], inputs[key]
        want = {"": quantised(weight), "transposed_": quantised(weight.t()), "x_": quantised(x)}
        for prefix, (codes, scales) in want.items():
            assert torch.equal(ours[f"{prefix}codes.{name}"], codes.view(torch.uint8)), (
                prefix,
                name,
            )
            assert torch.equal(ours[f"{prefix}scales.{name}"], scales), (prefix, name)
        y = ours[f"y.{name}"]
        exact, bound = product(want["x_"], want[""], len(x))
        assert ((y.double() - exact).abs() <= bound).all(), name
        exact, bound = product(quantised(y), want["transposed_"], len(x))
        assert ((ours[f"dx.{name}"].double() - exact).abs() <= bound).all(), name
