"""lft's loss scaler against torch.amp.GradScaler: 10,000 random steps for each of several settings,
scale by scale and tracker by tracker.

lft's side is the program tests/peer_driver of the build folder, set by LFT_BUILD (build).
"""

import math
import os
import random
import subprocess

import pytest
import torch

from tools import PEER_DRIVER

STEPS = 10_000
FLOAT_MAX = torch.finfo(torch.float32).max

# name: initial scale, growth factor, backoff factor, growth interval, fraction of steps
# with an infinite gradient
CASES = {
    "torch's own settings": (65536.0, 2.0, 0.5, 2000, 0.001),
    "every step grows or backs off": (65536.0, 2.0, 0.5, 1, 0.5),
    "no powers of two": (0.1, 1.37, 0.731, 3, 0.206),
    "thirds, up to the largest": (1000.0, 3.0, 1 / 3, 2, 0.25),
    "an ulp at a time": (3.0, 1 + 1e-7, 1 - 1e-7, 1, 0.5),
    "from the largest scale": (FLOAT_MAX, 2.0, 0.5, 2, 0.3),
    "a step short of infinity": (2.0**127, 1.9999999, 0.5000001, 1, 0.45),
    "below one": (2.0**-20, 1.01, 0.99, 4, 0.159),
    "extreme factors": (32768.0, 1e30, 1e-30, 1, 0.02),
    "interval never reached": (1024.0, 2.0, 0.999, 2**31 - 1, 0.01),
    "never infinite": (1.0, 1.5, 0.5, 100, 0.0),
    "always infinite": (65536.0, 2.0, 0.999, 1, 1.0),
    "falls to nothing": (65536.0, 2.0, 0.5, 2000, 0.5),
}
STOPPING = {"falls to nothing"}


def random_flags(name, share):
    generator = random.Random(name)
    return [generator.random() < share for _ in range(STEPS)]


def run_torch(init, growth, backoff, interval, flags):
    """(scale, tracker, updates taken) after each step."""
    scaler = torch.amp.GradScaler(
        "cpu",
        init_scale=init,
        growth_factor=growth,
        backoff_factor=backoff,
        growth_interval=interval,
    )
    weight = torch.nn.Parameter(torch.ones(1))
    taken = 0

    class Counting(torch.optim.SGD):
        def step(self):
            nonlocal taken
            taken += 1

    optimizer = Counting([weight], lr=0.0)
    scaler.scale(torch.ones(()))  # creates the scale
    finite, infinite = torch.ones(1), torch.full((1,), math.inf)
    trace = []
    for flag in flags:
        weight.grad = (infinite if flag else finite).clone()
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
        trace.append((scaler.get_scale(), scaler._get_growth_tracker(), taken))
    return trace


@pytest.fixture(scope="module")
def lft_traces():
    """name -> the driver's output for the case: a list of (scale, tracker, taken),
    and optionally an ("error", kind) at its end."""
    lines = []
    for name, (init, growth, backoff, interval, share) in CASES.items():
        flags = "".join("01"[flag] for flag in random_flags(name, share))
        lines.append(f"{init!r} {growth!r} {backoff!r} {interval} {flags}\n")
    one_thread = dict(os.environ, OMP_NUM_THREADS="1")
    done = subprocess.run(
        [PEER_DRIVER, "scaler"],
        input="".join(lines),
        capture_output=True,
        text=True,
        timeout=300,
        env=one_thread,
    )
    assert done.returncode == 0, done.stderr
    traces = {}
    for name, block in zip(CASES, done.stdout.split("end\n"), strict=False):
        rows = [line.split() for line in block.splitlines()]
        traces[name] = [
            ("error", int(row[1]))
            if row[0] == "error"
            else (float(row[0]), int(row[1]), int(row[2]))
            for row in rows
        ]
    return traces


def invertible(scale):
    return scale > 0 and math.isfinite(
        torch.tensor(1.0 / scale, dtype=torch.float64).float().item()
    )


@pytest.mark.parametrize("name", CASES)
def test_scale_and_tracker_are_torchs(name, lft_traces):
    *settings, share = CASES[name]
    flags = random_flags(name, share)
    wanted = run_torch(*settings, flags)
    # torch multiplies gradients by an infinity once 1 / scale is infinite;
    # lft stops there with exit code 5.
    end = next((i + 1 for i, (scale, _, _) in enumerate(wanted) if not invertible(scale)), STEPS)
    assert (end < STEPS) == (name in STOPPING)
    got = lft_traces[name]
    assert got[:end] == wanted[:end]
    assert got[end:] == ([("error", 5)] if end < STEPS else [])
    assert len({scale for scale, _, _ in wanted}) > 1 and (
        0 < sum(flags) < STEPS or share in (0, 1)
    )  # the case tests something
