"""Processes started by torchrun, SLURM and Open MPI find each other,
and the run has the same bits as with one process."""

import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = os.environ.get("LFT_BIN", str(ROOT / "build" / "lft"))
STEPS = 16
SETS = [
    "train.grad_accum=4",
    "train.batch_size=2",
    f"train.max_steps={STEPS}",
    "checkpoint.every_steps=4",
    "optim.schedule=constant",
    "data.eval=",
    "dist.timeout_s=20",
]


def command(out, *more):
    sets = [word for field in [*SETS, f"output_dir={out}"] for word in ("--set", field)]
    return [BINARY, "train", str(ROOT / "recipes/quickstart.yaml"), *sets, *more]


def environment(**variables):
    return dict(
        os.environ, OMP_NUM_THREADS="1", **{name: str(value) for name, value in variables.items()}
    )


def weights(out):
    return [
        (out / name).read_bytes()
        for name in (
            f"checkpoints/step-{STEPS}/trainables.safetensors",
            "adapter/adapter_model.safetensors",
        )
    ]


def steps(out):
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [(line["step"], line["run_hash"]) for line in lines if "event" not in line]


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    """The run with one process."""
    out = tmp_path_factory.mktemp("one") / "run"
    subprocess.run(command(out), cwd=ROOT, env=environment(), check=True, capture_output=True)
    return out


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def together(out, variables):
    """Runs one process per set of variables; returns (codes, stderr of each)."""
    running = [
        subprocess.Popen(
            command(out),
            cwd=ROOT,
            env=environment(**each),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for each in variables
    ]
    said = [each.communicate(timeout=120)[1] for each in running]
    return [each.returncode for each in running], said


def test_made_up_slurm(one, tmp_path):
    port = free_port()
    job = {
        "SLURM_NTASKS": 2,
        "SLURM_JOB_ID": 4711,
        "SLURM_STEP_ID": 0,
        "SLURM_JOB_NODELIST": "localhost",
        "MASTER_PORT": port,
    }
    codes, said = together(
        tmp_path / "run", [dict(job, SLURM_PROCID=rank, SLURM_LOCALID=rank) for rank in range(2)]
    )
    assert codes == [0, 0], said
    assert said[1] == ""
    assert weights(tmp_path / "run") == weights(one)


def test_made_up_open_mpi(one, tmp_path):
    job = {"OMPI_COMM_WORLD_SIZE": 2, "OMPI_COMM_WORLD_LOCAL_SIZE": 2, "MASTER_PORT": free_port()}
    codes, said = together(
        tmp_path / "run",
        [
            dict(job, OMPI_COMM_WORLD_RANK=rank, OMPI_COMM_WORLD_LOCAL_RANK=rank)
            for rank in range(2)
        ],
    )
    assert codes == [0, 0], said
    assert weights(tmp_path / "run") == weights(one)


def test_two_starters_that_contradict_each_other(tmp_path):
    done = subprocess.run(
        command(tmp_path / "run"),
        cwd=ROOT,
        env=environment(RANK=0, WORLD_SIZE=2, SLURM_PROCID=1, SLURM_NTASKS=2, SLURM_LOCALID=0),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert done.stderr.count("error:") == 1 and "SLURM_PROCID=1" in done.stderr


def torchrun(*more):
    return [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--no-python",
        "--nproc-per-node",
        "2",
        "--rdzv-backend",
        "c10d",
        "--rdzv-endpoint",
        "127.0.0.1:0",
        *more,
    ]


def children_of(pid):
    """Processes of the built lft that are its descendants."""
    found = []
    for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        program = pathlib.Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")[0].decode()
        found += [int(child)] if program == BINARY else children_of(child)
    return found


def test_torchrun_starts_again_what_was_killed(one, tmp_path):
    out = tmp_path / "run"
    agent = subprocess.Popen(
        torchrun("--max-restarts", "1", *command(out, "--resume")),
        cwd=ROOT,
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    metrics = out / "metrics.jsonl"
    while agent.poll() is None and not (
        metrics.exists() and metrics.read_text().count('"loss"') >= 3
    ):
        time.sleep(0.01)
    os.kill(children_of(agent.pid)[-1], signal.SIGKILL)
    said = agent.communicate(timeout=120)[1]
    assert agent.returncode == 0, said
    assert said.count("error:") == 1 and "a process of the run is gone" in said, said
    assert weights(out) == weights(one)
    assert steps(out) == steps(one)


def test_torchrun_shows_the_block_of_a_run_that_fails(tmp_path):
    """torchrun always returns 1 on failure; the children's exit codes are in its summary."""
    done = subprocess.run(
        torchrun(*command(tmp_path / "run", "--set", "train.grad_accum=1")),
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert done.stderr.count("\nerror:") == 1
    assert "set train.grad_accum to 2" in done.stderr
