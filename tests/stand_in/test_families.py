"""Every family on the simulated device: padded, packed, over a frozen tower, in BF16
with recorded graphs, recovered in FP32, and its answers, compared with the same runs on the CPU."""

import json
import os
import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts/bench"))
from on_gpu import family_runs

BUILD = pathlib.Path(os.environ.get("LFT_BUILD", ROOT / "build"))
WAYS = ("padded", "packed", "frozen tower", "bf16", "recovered")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """(on the CPU, on the simulated device)"""
    work = tmp_path_factory.mktemp("families")
    lft = os.environ.get("LFT_BIN", str(BUILD / "lft"))
    folder = family_runs.prepare(lft, sys.executable, work / "prepared", WAYS)
    there = family_runs.all_trained(
        BUILD / "tests/lft_stand_in", folder, work / "there", family_runs.run_here, WAYS
    )
    return json.loads((folder / "cpu.json").read_text()), there


@pytest.mark.parametrize("name", family_runs.CHECKPOINTS)
def test_its_runs_are_the_cpus(name, runs):
    cpu, there = runs
    assert family_runs.faults({name: cpu[name]}, {name: there[name]}) == []


def test_another_loss_is_found(runs):
    cpu, there = runs
    losses = [loss * 1.01 for loss in there["onevision"]["padded"]["losses"]]
    changed = {**there["onevision"], "padded": {**there["onevision"]["padded"], "losses": losses}}
    lines = family_runs.faults({"onevision": cpu["onevision"]}, {"onevision": changed})
    assert len(lines) == 1 and lines[0].startswith("onevision, padded: losses")
