"""The FP32 recovery makes no second copy of the frozen weights: peak memory of a run that recovers,
on a model of 126 MB in BF16.

Compared with two runs in FP32 from the start, over the same base stored in BF16 and in FP32: the
latter is what a recovery that widened the weights permanently would use. All three are the same
process until the model loads, so the differences are differences in growth.
"""

import os
import subprocess
import sys

import pytest
import yaml
from safetensors.torch import load_file, save_file

import checkpoints
from cases import ROWS, make_recipe
from tools import BINARY, event_lines, step_lines, write_rows

MIB = 2**20
(TEXT,) = (row for row in ROWS if row["id"] == "text")
LAYER = 1376 * 512 * 4  # a widened layer of the decoder
# The largest layer: the LM head, fully widened when all logits are needed, as at the end of a run.
HEAD = 32064 * 512 * 4
SLACK = 8 * MIB  # stacks, small allocations, pages; runs of the same recipe were within 3 MiB

# Prints a child's peak. The child of a large process inherits its parent's peak,
# so this small process is started in between.
LAUNCH = """
import os, sys
child = os.spawnv(os.P_NOWAIT, sys.argv[1], sys.argv[1:])
_, status, usage = os.wait4(child, 0)
print(usage.ru_maxrss)
sys.exit(os.waitstatus_to_exitcode(status))
"""


@pytest.fixture(scope="module")
def overflowing_base(tmp_path_factory):
    """One layer's MLP exceeds FP16 internally; its output is unchanged.
    Both factors are exact in BF16."""
    path = checkpoints.build("cpu63m", tmp_path_factory.mktemp("large") / "cpu63m")
    tensors = load_file(path / "model.safetensors")
    mlp = "language_model.model.layers.4.mlp."
    tensors[mlp + "up_proj.weight"] *= 2.0**18
    tensors[mlp + "down_proj.weight"] *= 2.0**-18
    save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})
    return path, sum(tensor.nbytes for tensor in tensors.values())


@pytest.fixture(scope="module")
def peak(overflowing_base, images, tmp_path_factory):
    """(compute, base_dtype) -> output directory and peak memory in bytes of three steps
    of one row each."""

    def train(compute, base_dtype):
        folder = tmp_path_factory.mktemp(f"{compute}-{base_dtype}")
        rows = write_rows(folder / "rows.jsonl", [dict(TEXT, id=str(n)) for n in range(3)])
        case = dict(
            template="llava-v1",
            fit="pad",
            batch_size=1,
            grad_accum=1,
            adapter=None,
            optim=dict(lr=1e-4),
        )
        recipe = make_recipe(case, folder / "run", overflowing_base[0], None, images, rows)
        recipe["data"]["eval"] = str(write_rows(folder / "held_out.jsonl", [TEXT]))  # few answers
        recipe["model"]["base_dtype"] = base_dtype
        recipe["precision"]["compute"] = compute
        recipe["train"]["max_steps"] = 3
        recipe |= dict(
            lora=dict(rank=16, alpha=32, dropout=0.0, targets=["llm:all-linear"]),
            log=dict(tensorboard=False, answers=0),
        )
        (folder / "recipe.yaml").write_text(yaml.safe_dump(recipe))
        # Freed memory is returned to the system at once, so that the peak is memory in use
        # and not the allocator's cache.
        environment = dict(os.environ, OMP_NUM_THREADS="1", MALLOC_MMAP_THRESHOLD_="131072")
        command = [sys.executable, "-S", "-c", LAUNCH, BINARY, "train", str(folder / "recipe.yaml")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
        assert done.returncode == 0, done.stderr[-4000:]
        return folder / "run", int(done.stdout.splitlines()[-1]) * 1024

    return train


def test_the_recovery_does_not_double_the_frozen_weights(overflowing_base, peak):
    weights = overflowing_base[1]
    assert weights > 120e6
    run, recovered = peak("fp16", "bf16")
    assert [line["step"] for line in event_lines(run, "fp32_recovery")] == [1]
    assert [(line["step"], line["precision"]) for line in step_lines(run)] == [
        (2, "fp32"),
        (3, "fp32"),
    ]

    _, narrow = peak("fp32", "bf16")
    _, wide = peak("fp32", "fp32")
    assert wide - narrow >= weights - HEAD - SLACK  # a doubling would be visible
    assert recovered <= narrow + LAYER + SLACK
    assert recovered <= wide - weights + HEAD + SLACK
