"""scripts/follow: which parts of metrics.jsonl are sent, when it ends, and that nothing is sent
twice. A module named wandb that records the calls replaces W&B."""

import fcntl
import json
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
WANDB = """
import json, os
class Run:
    def note(self, *what):
        with open(os.environ["CALLS"], "a") as file: file.write(json.dumps(what) + "\\n")
    def log(self, values, step): self.note("log", step, values)
    def finish(self): self.note("finish")
def init(project, name, id, resume, config):
    Run().note("init", project, name, id, config)
    return Run()
"""
STEP = '{"step":%d,"loss":%s,"precision":"fp32","lrs":{"projector":0.5},"run_hash":"38e4"}\n'


class Run:
    """An output_dir whose calls go to the fake W&B."""

    def __init__(self, folder):
        self.out, self.library, self.record = folder / "run", folder / "library", folder / "calls"
        self.out.mkdir()
        self.library.mkdir()
        (self.library / "wandb.py").write_text(WANDB)
        (self.out / "recipe.resolved.yaml").write_text("version: 1\nlora:\n  rank: 4\n")
        (self.out / "metrics.jsonl").write_text("")

    def write(self, text):
        with open(self.out / "metrics.jsonl", "a") as file:
            file.write(text)

    def start(self):
        environment = os.environ | {"PYTHONPATH": str(self.library), "CALLS": str(self.record)}
        return subprocess.Popen(
            [sys.executable, ROOT / "scripts/follow", "--to", "wandb", self.out],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def calls(self):
        return (
            [json.loads(line) for line in self.record.read_text().splitlines()]
            if self.record.exists()
            else []
        )

    def follow(self):
        done = self.start()
        _, errors = done.communicate(timeout=60)
        assert done.returncode == 0, errors
        return self.calls()


@pytest.fixture
def run(tmp_path):
    return Run(tmp_path)


def test_steps_and_evaluations_with_their_finite_numbers(run):
    run.write(
        STEP % (1, "2.5")
        + '{"event":"memory","step":1,"peak_bytes":3.0}\n'
        + STEP % (2, "null")
        + '{"event":"eval","step":2,"eval_loss":1.5,"samples":8}\n'
        + '{"step":3,"lo'
    )
    first, *logged, last = run.follow()
    assert first[:3] == ["init", "lft", "run"] and first[4] == {"version": 1, "lora.rank": 4}
    assert logged == [
        ["log", 1, {"loss": 2.5, "lrs.projector": 0.5}],
        ["log", 2, {"lrs.projector": 0.5}],
        ["log", 2, {"eval_loss": 1.5, "samples": 8.0}],
    ]
    assert last == ["finish"]


def test_started_again_it_goes_on_in_the_same_run(run):
    run.write(STEP % (1, "3") + STEP % (2, "2"))
    run.follow()
    # State after a run resumed from step 1.
    (run.out / "metrics.jsonl").write_text(
        STEP % (1, "3") + '{"event":"resume","step":1}\n' + STEP % (2, "2") + STEP % (3, "1")
    )
    calls = run.follow()
    assert [call[1] for call in calls if call[0] == "log"] == [1, 2, 3]
    assert len({call[3] for call in calls if call[0] == "init"}) == 1


def test_it_ends_when_the_run_gives_up_its_lock(run):
    run.write(STEP % (1, "3"))
    with open(run.out / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        program = run.start()
        while ["log", 1, {"loss": 3.0, "lrs.projector": 0.5}] not in run.calls():
            assert program.poll() is None, program.stderr.read()
        run.write(STEP % (2, "2"))
        with pytest.raises(subprocess.TimeoutExpired):
            program.wait(timeout=1.5)
    assert program.wait(timeout=60) == 0
    assert [call[1] for call in run.calls() if call[0] == "log"] == [1, 2]


def test_a_library_that_is_missing_is_named(run):
    (run.library / "wandb.py").write_text("import there_is_no_such_module")
    program = run.start()
    _, errors = program.communicate(timeout=60)
    assert (
        program.returncode == 1
        and "there_is_no_such_module is not installed" in errors
        and "wandb" in errors
    )
