"""TensorBoard's own reader reads the event files of a run."""

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tools import event_lines, step_lines


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
        read = events.Scalars(f"activation_rms/{layer}")[0]
        assert (read.step, read.value) == (1, pytest.approx(value, rel=1e-6))
    read = [(event.step, event.value) for event in events.Scalars("eval/loss")]
    assert read == [
        (line["step"], pytest.approx(line["eval_loss"], rel=1e-6))
        for line in event_lines(run, "eval")
    ]
