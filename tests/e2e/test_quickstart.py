"""The main job end to end on the embedded default: LoRA turns a model that cannot read digits into
one that can, and the merged model answers the same."""

import json
import os
import pathlib
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


def train(out, *sets):
    options = [part for item in (f"output_dir={out}", *sets) for part in ("--set", item)]
    lft("train", "recipes/quickstart.yaml", *options)
    return out


def evaluate(out, *arguments):
    result = json.loads(
        lft(
            "eval",
            *arguments,
            "--data",
            DATA / "held_out.json",
            "--image-root",
            DATA / "images",
            "--out",
            out,
        ).splitlines()[-1]
    )
    return result, [json.loads(line)["answer"] for line in out.read_text().splitlines()]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return train(tmp_path_factory.mktemp("quickstart") / "run")


def test_no_held_out_image_is_trained_on():
    names = {
        part: {row["image"] for row in json.loads((DATA / f"{part}.json").read_text())}
        for part in ("train", "held_out")
    }
    assert len(names["held_out"]) >= 500
    assert not names["train"] & names["held_out"]


def test_the_base_cannot_read_digits(tmp_path):
    result, _ = evaluate(
        tmp_path / "before.jsonl",
        "--model",
        ROOT / "recipes/quickstart/model",
        "--template",
        "llava-hf",
    )
    assert result["exact_match"] <= 0.20


def test_the_adapter_can_and_the_merged_model_answers_the_same(run, tmp_path):
    base = ROOT / "recipes/quickstart/model"
    result, answers = evaluate(
        tmp_path / "after.jsonl", "--model", base, "--adapter", run / "adapter"
    )
    assert result["samples"] >= 500
    assert result["exact_match"] >= 0.90
    lft("merge", "--adapter", run / "adapter", "--model", base, "--out", tmp_path / "merged")
    _, merged = evaluate(tmp_path / "merged.jsonl", "--model", tmp_path / "merged")
    assert merged == answers


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
