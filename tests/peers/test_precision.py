"""lft in BF16 and FP16 against torch.autocast: log-probabilities, gradients,
and the loss scale at which these overflow."""

import math

import pytest
import torch
import yaml
from peft import PeftModel
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from transformers import LlavaForConditionalGeneration

import checkpoints
import reference
from cases import CASES, WHOLE_OR_ADAPTER, ROWS, make_recipe
from tools import event_lines, lft, score, step_lines

DTYPES = dict(bf16=torch.bfloat16, fp16=torch.float16)
PREFIX = "train_layers/grad_norm/"  # of a parameter's name in TensorBoard
UNIT = dict(bf16=2.0**-8, fp16=2.0**-11)  # relative error of one rounding


def autocast(dtype):
    return torch.autocast("cpu", dtype=DTYPES[dtype])


def root_mean_square(values):
    return math.sqrt(sum(value * value for value in values) / len(values))


def differences(scored, wanted):
    return [a - b for line, want in zip(scored, wanted) for a, b in zip(line, want, strict=True)]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "name, adapter",
    [(name, None) for name in checkpoints.SPECS]
    + [("plain", "llm"), ("head_dim_bias", "rslora_everywhere")],
)
def test_scores_are_those_of_autocast(
    name, adapter, dtype, peer, model_dir, peft_adapter, images, rows_file, tmp_path
):
    path = peft_adapter(name, adapter) if adapter else None
    more = ["--adapter", path] if adapter else []
    scored = [
        line["logprobs"]
        for line in score(
            tmp_path / "low.jsonl", model_dir(name), rows_file, images, "--dtype", dtype, *more
        )
    ]
    exact = [
        line["logprobs"]
        for line in score(tmp_path / "exact.jsonl", model_dir(name), rows_file, images, *more)
    ]

    encoder = peer(name)
    low = reference.Peer.__new__(reference.Peer)
    low.model = LlavaForConditionalGeneration.from_pretrained(
        model_dir(name), dtype=DTYPES[dtype]
    ).eval()
    if adapter:
        low.model = PeftModel.from_pretrained(low.model, path).eval()
    with autocast(dtype):
        torchs = [low.logprobs(*encoder.encode(item, images)) for item in ROWS]

    # A log-probability is a difference of logits of up to 8, each rounded once at the end
    # and carrying a dozen roundings of its layers.
    assert max(map(abs, differences(scored, torchs))) <= 60 * UNIT[dtype]
    # And lft's roundings cost no more than torch's.
    ours, theirs = (
        root_mean_square(differences(scored, exact)),
        root_mean_square(differences(torchs, exact)),
    )
    assert theirs / 4 < ours < 1.25 * theirs, (ours, theirs)


def one_step(case, dtype, scale, model_dir, adapter, images, rows, folder):
    """One step of lft over the first global batch."""
    recipe = make_recipe(case, folder / "run", model_dir(case["checkpoint"]), adapter, images, rows)
    recipe["precision"] = dict(compute=dtype, loss_scale=dict(init=scale))
    recipe["train"]["max_steps"] = 1
    # A run whose every step is warm-up from 0 is refused; the case's own table is unchanged.
    recipe["optim"] = dict(recipe["optim"], warmup_ratio=0)
    recipe["log"] = dict(layer_grad_norms_every=1)
    folder.mkdir()
    (folder / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    lft("train", folder / "recipe.yaml")
    return folder / "run"


def logged_norms(run):
    events = EventAccumulator(str(run / "tensorboard"))
    events.Reload()
    tags = [tag for tag in events.Tags()["scalars"] if tag.startswith(PREFIX)]
    return {tag.removeprefix(PREFIX): events.Scalars(tag)[0].value for tag in tags}


class AutocastStep:
    """The gradients of the first global batch under autocast, for any loss scale."""

    def __init__(self, case, dtype, model_dir, adapter, images):
        self.dtype = dtype
        peer = reference.Peer(model_dir(case["checkpoint"]), adapter, trainable=True)
        self.model = peer.model.train()
        samples = [peer.encode(item, images, case["template"], case["fit"]) for item in ROWS]
        self.group = reference.step_batches(samples, case["batch_size"], case["grad_accum"], 1)[0]

    def gradients(self, scale):
        """{lft's name: unscaled gradient}; None for a tensor without a gradient in this batch."""
        self.model.zero_grad(set_to_none=True)
        supervised = sum(
            label != -100 for micro in self.group for _, labels, _ in micro for label in labels
        )
        for micro in self.group:
            batch = reference.make_batch(micro)
            labels = batch.pop("labels")
            with autocast(self.dtype):
                logits = self.model(**batch).logits.float()
                loss = torch.nn.functional.cross_entropy(
                    logits[:, :-1].flatten(0, 1),
                    labels[:, 1:].flatten(),
                    ignore_index=-100,
                    reduction="sum",
                )
            (loss / supervised * scale).backward()
        return {
            checkpoints.old_name(
                reference.file_key(name).removeprefix("base_model.model.")
            ): parameter.grad
            for name, parameter in self.model.named_parameters()
            if parameter.requires_grad
        }

    def overflows(self, scale):
        return not all(
            gradient.isfinite().all()
            for gradient in self.gradients(scale).values()
            if gradient is not None
        )


def adapter_of(case, peft_adapter):
    return peft_adapter(case["checkpoint"], case["adapter"]) if case["adapter"] else None


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", WHOLE_OR_ADAPTER)
def test_gradients_are_those_of_autocast(
    name, dtype, model_dir, peft_adapter, images, rows_file, tmp_path
):
    case, scale = CASES[name], 256.0 if dtype == "fp16" else 1.0
    adapter = adapter_of(case, peft_adapter)
    run = one_step(case, dtype, scale, model_dir, adapter, images, rows_file, tmp_path / "one")
    assert [line["precision"] for line in step_lines(run)] == [dtype]
    got = logged_norms(run)
    torchs = AutocastStep(case, dtype, model_dir, adapter, images).gradients(scale)
    want = {
        key: gradient.norm().item() / scale
        for key, gradient in torchs.items()
        if gradient is not None
    }
    largest = max(want.values())
    for key, norm in want.items():
        # Each gradient is accurate to about ten units (a random walk of its hundred roundings);
        # its norm, to fewer. Sums that cancel are not.
        assert got[key] == pytest.approx(
            norm, rel=12 * UNIT[dtype], abs=0.5 * UNIT[dtype] * largest
        ), key
    assert all(norm == 0 for key, norm in got.items() if key not in want)


@pytest.mark.parametrize("name", WHOLE_OR_ADAPTER)
def test_gradients_overflow_where_those_of_autocast_do(
    name, model_dir, peft_adapter, images, rows_file, tmp_path
):
    case, adapter = CASES[name], adapter_of(CASES[name], peft_adapter)
    step = AutocastStep(case, "fp16", model_dir, adapter, images)
    first = next(power for power in range(6, 33) if step.overflows(2.0**power))

    def skipped(power):
        run = one_step(
            case, "fp16", 2.0**power, model_dir, adapter, images, rows_file, tmp_path / str(power)
        )
        assert len(step_lines(run)) + len(event_lines(run, "step_skipped")) == 1
        return bool(event_lines(run, "step_skipped"))

    assert not skipped(first - 1), "a step that torch takes"
    assert skipped(first + 1), "twice beyond what torch skips"
