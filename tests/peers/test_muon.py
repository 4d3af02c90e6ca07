"""optim.name: muon against torch.optim.Muon on the CPU, and its update of other tensors
against torch.optim.AdamW.

lft's side is the program tests/peer_driver of the build folder, set by LFT_BUILD (build).
Both sides use LibTorch's own products in BF16, from the same numbers: the trajectories of matrices
are equal bit for bit.
"""

import pytest
import torch

from tools import driver

STEPS = 10
SHAPES = {
    "square": (16, 16),
    "wide": (8, 48),
    "tall": (96, 8),
    "row": (1, 33),
    "column": (33, 1),
    "large": (160, 128),
}
RATES = {
    "lr": 0.015625,
    "betas": (0.875, 0.984375),
    "eps": 2.0**-20,
    "weight_decay": 0.125,
}  # exact in float32
LARGEST = {"plain": 0.0, "clipped": 0.5}


def drawn(shape, seed):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def case(shape, largest):
    """(start, gradients by step, rates): step 4 has none, and step 7 has zeros."""
    gradients = {
        t: drawn(shape, 100 + t) * 10.0 ** (t % 3 - 1) for t in range(1, STEPS + 1) if t != 4
    }
    gradients[7] = torch.zeros(shape)
    rates = [RATES["lr"], *RATES["betas"], RATES["eps"], RATES["weight_decay"], largest, STEPS]
    return drawn(shape, 1), gradients, torch.tensor(rates)


def clipped(gradient, largest):
    """lft's clip factor: in double, then rounded to float32."""
    if largest == 0:
        return gradient.clone()
    factor = min(1.0, largest / (gradient.double().norm().item() + 1e-6))
    return gradient * torch.tensor(factor, dtype=torch.float32)


def trajectory(optimizer, param, gradients, largest):
    steps = []
    for t in range(1, STEPS + 1):
        param.grad = clipped(gradients[t], largest) if t in gradients else None
        optimizer.step()
        steps.append(param.detach().clone())
    return steps


@pytest.fixture(autouse=True)
def one_thread():
    """Threads as in the driver: they determine a sum's order."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def ours(tmp_path_factory):
    tensors = {}
    for name, shape in {**SHAPES, "vector": (37,), "cube": (3, 4, 5)}.items():
        for clip, largest in LARGEST.items():
            key = f"muon-{name}-{clip}"
            start, gradients, rates = case(shape, largest)
            tensors |= {f"param.{key}": start, f"rates.{key}": rates}
            tensors |= {f"grad.{key}.{t}": gradient for t, gradient in gradients.items()}
    return driver("rule", tensors, tmp_path_factory.mktemp("muon"))


@pytest.mark.parametrize("clip", LARGEST)
@pytest.mark.parametrize("name", SHAPES)
def test_a_matrix_moves_as_torchs(name, clip, ours):
    start, gradients, _ = case(SHAPES[name], LARGEST[clip])
    param = torch.nn.Parameter(start)
    optimizer = torch.optim.Muon([param], lr=RATES["lr"], weight_decay=RATES["weight_decay"])
    key = f"muon-{name}-{clip}"
    for t, wanted in enumerate(trajectory(optimizer, param, gradients, LARGEST[clip]), start=1):
        assert torch.equal(ours[f"param.{key}.{t}"], wanted), t
    assert torch.equal(ours[f"momentum_buffer.{key}"], optimizer.state[param]["momentum_buffer"])
    assert f"exp_avg.{key}" not in ours


@pytest.mark.parametrize("clip", LARGEST)
@pytest.mark.parametrize("name, shape", [("vector", (37,)), ("cube", (3, 4, 5))])
def test_what_is_no_matrix_moves_as_adamws(name, shape, clip, ours):
    start, gradients, _ = case(shape, LARGEST[clip])
    param = torch.nn.Parameter(start)
    optimizer = torch.optim.AdamW([param], **RATES)
    key = f"muon-{name}-{clip}"
    for t, wanted in enumerate(trajectory(optimizer, param, gradients, LARGEST[clip]), start=1):
        # Each step rounds a weight below 4 three times and a step of about lr a dozen times.
        assert torch.allclose(
            ours[f"param.{key}.{t}"], wanted, rtol=0, atol=t * (3 * 4 + 12 * 0.1) * 2.0**-24
        ), t
    assert f"momentum_buffer.{key}" not in ours
