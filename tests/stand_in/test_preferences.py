"""Preferences on the simulated device, compared with the same runs on the CPU: packed pairs of DPO,
which no CUDA graph records, and rows of KTO, whose reference takes the place of the trained values
within a step."""

import json
import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("LFT_BUILD", ROOT / "build"))
LFT = pathlib.Path(os.environ.get("LFT_BIN", BUILD / "lft"))
DIGITS, STEPS = ROOT / "recipes/quickstart/digits", 6


def rows_of(objective):
    pairs = json.loads((DIGITS / "pairs.json").read_text())[:26]
    if objective == "dpo":
        return pairs
    return [
        {
            "prompt": pair["prompt"],
            "completion": pair["rejected" if number % 3 else "chosen"],
            "label": number % 3 == 0,
            "image": pair["image"],
        }
        for number, pair in enumerate(pairs)
    ]


def train(program, out, objective, sets):
    (rows := out.with_suffix(".json")).write_text(json.dumps(rows_of(objective)))
    settings = {
        "output_dir": out,
        "objective.name": objective,
        "lora.init_from": "''",
        "data.train": rows,
        "data.eval": rows,
        "train.max_steps": STEPS,
        "train.eval_every_steps": STEPS,
        "log.answers": 1,
        **sets,
    }
    command = [program, "train", "quickstart-dpo"]
    for key, value in settings.items():
        command += ["--set", f"{key}={value}"]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if "loss" in line] + [
        line for line in lines if line.get("event") == "eval"
    ]


@pytest.mark.parametrize(
    "objective, sets",
    [
        ("dpo", {"train.max_tokens_per_step": 512, "train.batch_size": 4}),
        ("kto", {"train.batch_size": 4, "train.grad_accum": 2}),
        ("kto", {"train.batch_size": 8, "train.max_tokens_per_step": 256}),
    ],
)
def test_runs_are_the_cpus(objective, sets, tmp_path):
    """FP32 sums in another order: as in scripts/bench/on_gpu/family_runs.py."""
    cpu = train(LFT, tmp_path / "cpu", objective, sets)
    there = train(BUILD / "tests/lft_stand_in", tmp_path / "there", objective, sets)
    assert len(cpu) == len(there) == STEPS + 1
    for number, (want, got) in enumerate(zip(cpu, there)):
        within = 1e-5 if number < 2 else 1e-3
        for key in ("loss", "eval_loss", "reward_margin", "logps_chosen", "logps_rejected", "kl"):
            if key in want:
                assert got[key] == pytest.approx(want[key], rel=within, abs=within), (number, key)
