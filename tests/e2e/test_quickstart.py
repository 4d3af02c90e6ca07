"""The quickstart end to end, by the script that README.md prints: LoRA turns
a model that cannot read digits into one that can, and the merged model answers the same."""

import json
import os
import pathlib
import re
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
LFT = os.environ.get("LFT_BIN", ROOT / "build/lft")
DATA = ROOT / "recipes/quickstart/digits"


def lft(*arguments):
    done = subprocess.run(
        [str(LFT), *map(str, arguments)], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def train(out, *sets, recipe="quickstart"):
    options = [
        part for item in (f"output_dir={out}", "log.answers=0", *sets) for part in ("--set", item)
    ]
    lft("train", f"recipes/{recipe}.yaml", *options)
    return out


def held_out_accuracy(adapter):
    options = ("--data", DATA / "held_out.json", "--image-root", DATA / "images")
    model = ROOT / "recipes/quickstart/model"
    done = lft("eval", "--model", model, "--adapter", adapter, *options)
    return json.loads(done.splitlines()[-1])["exact_match"]


@pytest.fixture(scope="module")
def quickstart():
    """`scripts/quickstart`, as README.md prints it. Its exit status is the user's first result."""
    assert "\nscripts/quickstart " in (ROOT / "README.md").read_text()
    done = subprocess.run(["scripts/quickstart"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, (done.returncode, done.stdout[-2000:], done.stderr)
    return done.stdout


@pytest.fixture(scope="module")
def run(quickstart):
    return ROOT / "runs/quickstart-seed1"


def test_no_held_out_image_is_trained_on():
    names = {
        part: {row["image"] for row in json.loads((DATA / f"{part}.json").read_text())}
        for part in ("train", "held_out")
    }
    assert len(names["held_out"]) >= 500
    assert not names["train"] & names["held_out"]


def test_the_base_cannot_read_digits_the_adapter_can_and_merged_it_answers_the_same(
    quickstart, run
):
    before, after, merged, different = map(
        float,
        re.search(
            r"before ([0-9.]+), after ([0-9.]+), merged ([0-9.]+) \((\d+) of 500 answers differ\)",
            quickstart,
        ).groups(),
    )
    assert before <= 0.20
    assert after >= 0.90
    assert (merged, different) == (after, 0)
    answers = {}
    for name in ("before", "after", "merged"):
        lines = (run.parent / f"{run.name}.answers/{name}.jsonl").read_text().splitlines()
        answers[name] = [json.loads(line)["answer"] for line in lines]
    assert all(len(each) == 500 for each in answers.values())
    assert answers["merged"] == answers["after"] != answers["before"]


def test_its_last_lines_show_six_answers_and_what_to_look_at(quickstart, run):
    *_, title, one, two, three, four, five, six, look = quickstart.splitlines()
    assert title == "a few answers (digit: before -> after):"
    for line in (one, two, three, four, five, six):
        assert re.fullmatch(r"  \d: .* -> .*", line), line
    assert look.startswith("look next: ")
    for name in re.findall(r"runs/quickstart-seed1/[^ ;]+", look):
        assert (ROOT / name).exists(), name


def test_every_step_has_a_line_and_the_run_its_files(run):
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if "loss" in line] == list(range(1, 501))
    assert not [line for line in lines if line.get("event") == "norm_warning"]
    for name in (
        "recipe.resolved.yaml",
        "environment.json",
        "report.html",
        "tensorboard",
        "adapter/adapter_config.json",
        "adapter/adapter_model.safetensors",
    ):
        assert (run / name).exists(), name


def test_dpo_after_a_short_run_raises_the_accuracy_on_held_out_digits(tmp_path):
    names = {row["image"] for row in json.loads((DATA / "pairs.json").read_text())}
    assert not names & {row["image"] for row in json.loads((DATA / "held_out.json").read_text())}
    short = train(tmp_path / "short", "train.max_steps=60", "data.eval=''")
    start = short / "adapter"
    dpo = train(tmp_path / "dpo", f"lora.init_from={start}", recipe="quickstart-dpo")
    before, after = held_out_accuracy(start), held_out_accuracy(dpo / "adapter")
    assert after >= before + 0.05, (before, after)


def test_same_seed_same_bytes_whatever_the_workers(tmp_path):
    sets = ("train.max_steps=12", "data.eval=''")
    runs = [
        train(tmp_path / f"run{i}", *sets, f"data.workers={workers}")
        for i, workers in enumerate((1, 1, 4))
    ]
    adapters = [(path / "adapter/adapter_model.safetensors").read_bytes() for path in runs]
    assert adapters[0] == adapters[1] == adapters[2]
    other = train(tmp_path / "other", *sets, "train.seed=2")
    assert (other / "adapter/adapter_model.safetensors").read_bytes() != adapters[0]


def test_prepared_data_trains_to_the_same_bytes(tmp_path):
    sets = ("train.max_steps=12", "data.eval=''")
    options = [part for item in sets for part in ("--set", item)]
    lft("prepare", "recipes/quickstart.yaml", *options, "--out", tmp_path / "shards")
    direct = train(tmp_path / "direct", *sets)
    prepared = train(tmp_path / "prepared", *sets, f"data.train={tmp_path / 'shards'}")
    name = "adapter/adapter_model.safetensors"
    assert (direct / name).read_bytes() == (prepared / name).read_bytes()
