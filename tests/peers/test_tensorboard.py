"""TensorBoard's own reader reads a run's event files, also those of a killed run."""

import os
import signal
import subprocess
import time

import pytest
import yaml
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams.api_pb2 import STATUS_SUCCESS
from tensorboard.plugins.hparams.metadata import (
    parse_experiment_plugin_data,
    parse_session_end_info_plugin_data,
    parse_session_start_info_plugin_data,
)

from cases import CASES, make_recipe
from tools import BINARY, event_lines, lft, step_lines


def test_tensorboard_reads_the_events(trained):
    run = trained("cosine_clip_decay")
    events = EventAccumulator(str(run / "tensorboard"))
    events.Reload()
    for key in ["loss", "lr", "grad_norm"]:
        read = [(event.step, event.value) for event in events.Scalars(f"train/{key}")]
        assert read == [
            (line["step"], pytest.approx(line[key], rel=1e-6)) for line in step_lines(run)
        ]
    first, *_ = event_lines(run, "layer_activation_norms")
    assert first["step"] == 1 and len(first["layers"]) >= 3
    for layer, value in first["layers"].items():
        read = events.Scalars(f"train_layers/activation_rms/{layer}")[0]
        assert (read.step, read.value) == (1, pytest.approx(value, rel=1e-6))
    read = [(event.step, event.value) for event in events.Scalars("eval/loss")]
    assert read == [
        (line["step"], pytest.approx(line["eval_loss"], rel=1e-6))
        for line in event_lines(run, "eval")
    ]


def test_the_groups_lead_with_what_is_read_first(trained):
    """TensorBoard sorts cards by group and name, and splits names at slashes and underscores."""
    events = EventAccumulator(str(trained("cosine_clip_decay") / "tensorboard"))
    events.Reload()
    groups = {tag.split("/")[0] for tag in events.Tags()["scalars"]}
    ordered = sorted(groups, key=lambda group: group.split("_"))
    assert ordered == ["eval", "train", "train_details", "train_layers"]
    first = sorted(tag for tag in events.Tags()["scalars"] if tag.startswith("train/"))
    assert [tag.split("/")[1] for tag in first] == [
        "grad_norm",
        "loss",
        "lr",
        "memory_gb",
        "tokens_per_s",
    ]


def test_hyper_parameters_are_in_the_hparams_tab(trained):
    run = trained("cosine_clip_decay")
    recipe = yaml.safe_load((run / "recipe.resolved.yaml").read_text())
    events = EventAccumulator(str(run / "tensorboard"))
    events.Reload()
    content = events.summary_metadata
    infos = parse_experiment_plugin_data(
        content["_hparams_/experiment"].plugin_data.content
    ).hparam_infos
    start = parse_session_start_info_plugin_data(
        content["_hparams_/session_start_info"].plugin_data.content
    ).hparams
    assert {info.name for info in infos} == set(start)
    assert start["optim.lr"].number_value == recipe["optim"]["lr"]
    assert start["lora.rank"].number_value == recipe["lora"]["rank"]
    assert start["model.path"].string_value == recipe["model"]["path"]
    end = parse_session_end_info_plugin_data(
        content["_hparams_/session_end_info"].plugin_data.content
    )
    assert end.status == STATUS_SUCCESS


def scalars(run, tag):
    events = EventAccumulator(str(run / "tensorboard"), size_guidance={"scalars": 0})
    events.Reload()
    return [(event.step, event.value) for event in events.Scalars(tag)]


def kill_after(recipe, run, steps, *more):
    """kill -9 of a run that has written this many step lines."""
    command = [BINARY, "train", str(recipe), *more]
    process = subprocess.Popen(command, env=dict(os.environ, OMP_NUM_THREADS="1"))
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        if (run / "metrics.jsonl").exists() and len(step_lines(run)) >= steps:
            break
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert process.returncode == -signal.SIGKILL


def test_a_killed_run_has_each_step_once(model_dir, images, rows_file, tmp_path):
    """Killed before its first checkpoint, and between two; the files of the killed process contain
    every step in metrics.jsonl."""
    case, run = CASES["cosine_clip_decay"] | dict(adapter=None), tmp_path / "run"
    recipe = make_recipe(case, run, model_dir(case["checkpoint"]), None, images, rows_file)
    recipe["lora"] = dict(rank=4, targets=["llm:all-linear"])
    recipe["train"]["max_steps"] = 400
    recipe["checkpoint"] = dict(every_steps=20)
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump(recipe))
    for steps, more in [(8, []), (30, ["--resume"])]:
        kill_after(path, run, steps, *more)
        killed = {line["step"]: pytest.approx(line["loss"]) for line in step_lines(run)}
        read = scalars(run, "train/loss")
        assert len(read) - len(killed) in (0, 1), "one more where it was killed between the two"
        assert {step: value for step, value in read if step in killed} == killed
    last = step_lines(run)[-1]["step"] // 20 * 20 + 20
    lft("train", path, "--resume", "--set", f"train.max_steps={last}")
    for tag, key in [("train/loss", "loss"), ("train_details/step_s", "step_s")]:
        want = [(line["step"], pytest.approx(line[key])) for line in step_lines(run)]
        assert [step for step, _ in want] == list(range(1, last + 1))
        assert scalars(run, tag) == want
