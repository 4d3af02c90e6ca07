"""A process that uses the second of two devices touches only that one. Each thread of a run sets
its device before its first call; otherwise every process of a machine would have a context of half
a gigabyte on device 0. The simulated device aborts where CUDA would create it."""

import hashlib
import os
import pathlib
import shutil
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("LFT_BUILD", ROOT / "build"))


def lft(index, *arguments):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "LFT_STAND_IN_INDEX": str(index)}
    done = subprocess.run(
        [BUILD / "tests/lft_stand_in", *arguments],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=environment,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def adapter_of(index, out):
    """Of packed steps with recorded graphs, checkpoints written by their thread, an evaluation and
    a resumed run."""
    settings = {
        "output_dir": out,
        "train.max_steps": 4,
        "train.max_tokens_per_step": 512,
        "train.eval_every_steps": 2,
        "checkpoint.every_steps": 2,
        "log.answers": 1,
    }
    sets = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
    lft(index, "train", "quickstart", *sets)
    shutil.rmtree(out / "checkpoints/step-4")
    lft(index, "train", "quickstart", *sets, "--resume")
    return hashlib.sha256((out / "adapter/adapter_model.safetensors").read_bytes()).hexdigest()


def test_only_the_second_device_is_used(tmp_path):
    assert adapter_of(1, tmp_path / "second") == adapter_of(0, tmp_path / "first")
