#!/usr/bin/env python3
"""Writes delta.json: what transformers' ops of Gated DeltaNet compute, in float32, and the gated
norm also in BF16.

The inputs are a hash of name and index: fill() of make_llava.py has an equivalent in
tests/models/tiny.h. Run with the pinned peers:
  .deps/venv/bin/python tests/goldens/models/make_delta.py
"""

import json
import pathlib

import torch
from make_llava import fill, rounded
from transformers.models.qwen3_5 import modeling_qwen3_5 as qwen

TOKENS, KEY_HEADS, HEADS, KEY, VALUE, CHANNELS, TAPS = 70, 2, 4, 4, 3, 5, 4


def filled(name, *shape):
    return fill(name, shape).clone()


def leaf(x):
    return x.detach().clone().requires_grad_(True)


def rule():
    q, k = (leaf(filled(name, TOKENS, KEY_HEADS, KEY)) for name in ("q", "k"))
    v = leaf(filled("v", TOKENS, HEADS, VALUE))
    g = leaf(-2 * filled("g", TOKENS, HEADS) ** 2)
    beta = leaf(torch.sigmoid(4 * filled("beta", TOKENS, HEADS)))
    state = filled("state", HEADS, KEY, VALUE)
    repeated = (x.repeat_interleave(HEADS // KEY_HEADS, dim=1)[None] for x in (q, k))
    out, last = qwen.torch_chunk_gated_delta_rule(
        *repeated,
        v[None],
        g[None],
        beta[None],
        initial_state=state[None],
        output_final_state=True,
        use_qk_l2norm_in_kernel=True,
    )
    out.backward(filled("upstream", TOKENS, HEADS, VALUE)[None])
    steps, _ = qwen.torch_recurrent_gated_delta_rule(
        *(x.repeat_interleave(HEADS // KEY_HEADS, dim=1)[None] for x in (q, k)),
        v[None],
        g[None],
        beta[None],
        initial_state=state[None],
        use_qk_l2norm_in_kernel=True,
    )
    leaves = {"q": q, "k": k, "v": v, "g": g, "beta": beta}
    gradients = {name: rounded(x.grad) for name, x in leaves.items()}
    return {
        "out": rounded(out),
        "steps": rounded(steps),
        "state": rounded(last),
        "gradients": gradients,
    }


def conv():
    x, weight = leaf(filled("x", TOKENS, CHANNELS)), leaf(filled("weight", CHANNELS, TAPS))
    out = qwen.causal_conv1d_fn(x.t()[None], weight, activation="silu")[0].t()
    out.backward(filled("upstream", TOKENS, CHANNELS))
    with torch.no_grad():
        half = (y.to(torch.bfloat16) for y in (x.t()[None], weight))
        narrow = qwen.causal_conv1d_fn(*half, activation="silu")[0].t()
    return {
        "out": rounded(out),
        "bfloat16": rounded(narrow),
        "gradients": {"x": rounded(x.grad), "weight": rounded(weight.grad)},
    }


def norm(dtype):
    module = qwen.Qwen3_5RMSNormGated(16, eps=1e-6).to(dtype)
    with torch.no_grad():
        module.weight.copy_(1 + filled("weight", 16))
    x, gate = (leaf(4 * filled(name, TOKENS, 16)).to(dtype) for name in ("x", "gate"))
    return rounded(module(x, gate))


if __name__ == "__main__":
    result = {
        "rule": rule(),
        "conv": conv(),
        "norm": {"float32": norm(torch.float32), "bfloat16": norm(torch.bfloat16)},
    }
    path = pathlib.Path(__file__).with_name("delta.json")
    path.write_text(json.dumps(result) + "\n")
