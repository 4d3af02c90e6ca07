"""optim.name: adamw8bit against bitsandbytes' AdamW8bit on the CPU, one update at a time
from bitsandbytes' own state.

lft's side is the program tests/peer_driver of the build folder, set by LFT_BUILD (build).
bitsandbytes quantises in two ways: its GPU kernels and the plain one of its CPU backend (used for
float64) find the nearest value of the map; the CPU's fast one (float32, used by AdamW8bit
there) rounds to one of 65,536 equal steps of [-1, 1] first. lft finds the nearest value.
"""

import bitsandbytes
import pytest
import torch
import yaml
from bitsandbytes import functional
from safetensors.torch import load_file
from transformers import LlavaForConditionalGeneration

from cases import CASES, make_recipe
from tools import driver, lft

BLOCK = 256
UNIT = 2.0**-24  # half an ulp of 1
LUT = 1 / 65535  # half a step of the fast quantiser
STEPS = 6


def drive(folder, cases):
    """cases: key -> dict(param, grad, rates, and optionally the state).
    Returns the driver's output."""
    tensors = {
        f"{name}.{key}": tensor.detach().clone().contiguous()
        for key, case in cases.items()
        for name, tensor in case.items()
    }
    return driver("adamw8", tensors, folder)


def nearest(values, x):
    """The code of the value nearest to x; in the middle, the lower."""
    middles = (values[:-1].double() + values[1:].double()) / 2
    return torch.bucketize(x.double(), middles)


def spread(absmax, count):
    return absmax.double().repeat_interleave(BLOCK)[:count]


def awkward(count, seed):
    """Normal numbers over many decades, with blocks of zeros, one of a single magnitude
    and one of denormals."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, generator=generator) * 10 ** (
        torch.rand(count, generator=generator) * -8
    )
    x[BLOCK : 2 * BLOCK] = 0
    x[2 * BLOCK : 3 * BLOCK] = -3
    x[3 * BLOCK : 4 * BLOCK] *= 2.0**-60
    return x


@pytest.fixture(scope="module")
def quantised(tmp_path_factory):
    """With both betas and the learning rate 0 the moments become g and g * g:
    the stored values are their quantisation. (g, lft's output)"""
    grad = awkward(40_000 + 77, 1)
    case = {
        "param": torch.zeros_like(grad),
        "grad": grad,
        "rates": torch.tensor([0.0, 0, 0, 1, 0, 1]),
    }
    return grad, drive(tmp_path_factory.mktemp("quantised"), {"x": case})


@pytest.mark.parametrize("kind", ["signed", "unsigned"])
def test_the_code_maps_are_bitsandbytes(kind, quantised):
    wanted = functional.create_dynamic_map(signed=kind == "signed")
    got = quantised[1][f"values.{kind}"]
    # bitsandbytes rounds the boundaries, their means and the decade's factor; lft rounds once.
    assert ((got.double() - wanted.double()).abs() <= 4 * UNIT * wanted.double().abs()).all()


@pytest.mark.parametrize("kind", ["signed", "unsigned"])
def test_quantising_is_bitsandbytes(kind, quantised):
    grad, out = quantised
    x, name = (grad, "exp_avg") if kind == "signed" else (grad * grad, "exp_avg_sq")
    values = out[f"values.{kind}"]
    codes, absmax = out[f"{name}.x"], out[f"{name}_absmax.x"]
    plain_codes, plain_absmax = torch.ops.bitsandbytes.quantize_blockwise(x.double(), values, BLOCK)
    fast_codes, fast_absmax = torch.ops.bitsandbytes.quantize_blockwise(x, values, BLOCK)
    assert torch.equal(absmax, plain_absmax) and torch.equal(absmax, fast_absmax)

    scale = spread(absmax, x.numel())
    live = scale > 0
    assert (codes[~live] == 0).all() and (plain_codes[~live] == 0).all()
    exact = torch.where(live, x.double() / scale, -2.0)
    assert torch.equal(
        codes[live].long(), nearest(values, exact.float())[live]
    )  # one rounding: that of the quotient
    # Theirs multiplies by a rounded reciprocal and rounds two distances:
    # four roundings in all besides ours.
    slack = 6 * UNIT * exact.abs()
    low, high = nearest(values, exact - slack), nearest(values, exact + slack)
    regular = live & (scale > 2.0**-126)  # the reciprocal of a denormal is infinite
    assert ((plain_codes >= low) & (plain_codes <= high) & (codes >= low) & (codes <= high))[
        regular
    ].all()
    assert (plain_codes == codes)[regular & (low == high)].all()
    assert (low != high)[live].double().mean() < 1e-3
    fast = LUT * (1 + 2.0**-10) + 4 * UNIT
    assert (fast_codes >= nearest(values, exact - fast))[regular].all() and (
        fast_codes <= nearest(values, exact + fast)
    )[regular].all()


def state_of(optimizer, param):
    state = optimizer.state[param]
    names = {
        "exp_avg": "state1",
        "exp_avg_sq": "state2",
        "exp_avg_absmax": "absmax1",
        "exp_avg_sq_absmax": "absmax2",
    }
    return {name: state[theirs].clone() for name, theirs in names.items() if theirs in state}


def rates(lr, weight_decay, step):
    return torch.tensor([lr, 0.9, 0.99, 1e-6, weight_decay, step])


@pytest.fixture(scope="module")
def updates(tmp_path_factory):
    """key -> (before, grad, rates, after) of bitsandbytes,
    and lft's update from the same `before`."""
    theirs, cases = {}, {}
    for count in (4095, 4096, 5001, 70_000):
        lr, beta1, beta2, eps, weight_decay, _ = rates(0.01, 0.1, 1).tolist()
        param = torch.nn.Parameter(
            torch.randn(count, generator=torch.Generator().manual_seed(count)) * 0.5
        )
        optimizer = bitsandbytes.optim.AdamW8bit(
            [param], lr=lr, betas=(beta1, beta2), eps=eps, weight_decay=weight_decay
        )
        for step in range(1, STEPS + 1):
            key = f"{count}-{step}"
            before = {
                "param": param.detach().clone(),
                **(state_of(optimizer, param) if step > 1 else {}),
            }
            param.grad = awkward(count, 100 * count + step)
            optimizer.step()
            cases[key] = {**before, "grad": param.grad, "rates": rates(0.01, 0.1, step)}
            theirs[key] = (
                before,
                param.grad,
                step,
                {"param": param.detach().clone(), **state_of(optimizer, param)},
            )
    return theirs, drive(tmp_path_factory.mktemp("updates"), cases)


@pytest.mark.parametrize("step", range(1, STEPS + 1))
@pytest.mark.parametrize("count", [4095, 4096, 5001, 70_000])
def test_an_update_is_bitsandbytes(count, step, updates):
    theirs, out = updates
    key = f"{count}-{step}"
    before, grad, _, after = theirs[key]
    got = {name: out[f"{name}.{key}"] for name in after}
    assert (
        got["exp_avg"].dtype
        == after["exp_avg"].dtype
        == (torch.uint8 if count >= 4096 else torch.float32)
    )
    lr, beta1, beta2, eps, weight_decay, _ = (
        value.item() for value in rates(0.01, 0.1, step).double()
    )

    def moment(name, values):
        if name not in before:
            return torch.zeros(count, dtype=torch.float64)
        if count < 4096:
            return before[name].double()
        return values.double()[before[name].long()] * spread(before[f"{name}_absmax"], count)

    signed, unsigned = out["values.signed"], out["values.unsigned"]
    g, m0 = grad.double(), moment("exp_avg", signed)
    m, v = (
        beta1 * m0 + (1 - beta1) * g,
        beta2 * moment("exp_avg_sq", unsigned) + (1 - beta2) * g * g,
    )
    # Roundings of either side, of sums and products no larger than these,
    # four of them in bitsandbytes' map.
    m_error = 14 * UNIT * (m0.abs() + g.abs())
    v_error = 14 * UNIT * v + 2.0**-148  # the last: of denormals
    slope = lr / (1 - beta1**step) / ((v / (1 - beta2**step)).sqrt() + eps)
    p = before["param"].double()
    wanted = p - lr * weight_decay * p - slope * m
    update = lr * weight_decay * p.abs() + slope * m.abs()
    tolerance = 3 * UNIT * (p.abs() + update) + 20 * UNIT * update + slope * m_error
    assert ((got["param"].double() - wanted).abs() <= tolerance).all()
    assert ((after["param"].double() - wanted).abs() <= tolerance).all()

    for name, values, exact, error in [
        ("exp_avg", signed, m, m_error),
        ("exp_avg_sq", unsigned, v, v_error),
    ]:
        if count < 4096:
            assert ((got[name].double() - exact).abs() <= error).all() and (
                (after[name].double() - exact).abs() <= error
            ).all()
            continue
        padded = torch.nn.functional.pad(exact.abs(), (0, -count % BLOCK)).view(-1, BLOCK)
        scale, scale_error = (
            padded.max(1).values,
            torch.nn.functional.pad(error, (0, -count % BLOCK)).view(-1, BLOCK).max(1).values,
        )
        for mine, allowed in [(got, 0.0), (after, LUT * (1 + 2.0**-10))]:
            absmax, codes = mine[f"{name}_absmax"].double(), mine[name]
            assert ((absmax - scale).abs() <= scale_error).all()
            live = spread(absmax, count) > 2.0**-126
            x = exact / spread(scale, count)
            slack = (error + spread(scale_error, count)) / spread(scale, count) + 6 * UNIT + allowed
            assert (codes >= nearest(values, x - slack))[live].all() and (
                codes <= nearest(values, x + slack)
            )[live].all()


def test_a_tensor_of_4095_elements_keeps_float32(updates):
    _, out = updates
    assert "exp_avg_absmax.4095-1" not in out and "exp_avg_absmax.4096-1" in out


def test_embeddings_keep_their_moments_in_32_bits(model_dir, images, rows_file, tmp_path):
    """transformers' Trainer and PEFT's create_loraplus_optimizer register nn.Embedding with
    bitsandbytes; an untied lm_head is an nn.Linear and has 8 bits."""
    base = model_dir("plain")
    recipe = make_recipe(
        CASES["cosine_clip_decay"] | dict(adapter=None),
        tmp_path / "run",
        base,
        None,
        images,
        rows_file,
    )
    recipe["full"] = ["all"]
    recipe["optim"] = dict(name="adamw8bit", lr=1e-4, warmup_ratio=0.0)
    recipe["train"]["max_steps"] = 1
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    lft("train", tmp_path / "recipe.yaml")
    saved = load_file(tmp_path / "run" / "checkpoints" / "step-1" / "optimizer.safetensors")
    wide = {
        name.removeprefix("exp_avg.")
        for name, moment in saved.items()
        if name.startswith("exp_avg.")
        and moment.dtype == torch.float32
        and moment.numel() >= 4096  # below that size, bitsandbytes keeps all in 32 bits
    }
    model = LlavaForConditionalGeneration.from_pretrained(base)
    want = {
        f"{name}.weight".split(".")[-2]
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Embedding) and module.weight.numel() >= 4096
    }
    assert "embed_tokens" in want
    assert {name.split(".")[-2] for name in wide} == want
    assert saved["exp_avg.language_model.lm_head.weight"].dtype == torch.uint8
