"""TensorBoard's own reader reads the event files of a run."""

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tools import step_lines


def test_tensorboard_reads_the_events(trained):
    run = trained("cosine_clip_decay")
    events = EventAccumulator(str(run / "tensorboard"))
    events.Reload()
    by_name = {tag.split("/")[-1]: tag for tag in events.Tags()["scalars"]}
    for key in ["loss", "lr", "grad_norm"]:
        read = [(event.step, event.value) for event in events.Scalars(by_name[key])]
        assert read == [(line["step"], pytest.approx(line[key], rel=1e-6)) for line in step_lines(run)]
