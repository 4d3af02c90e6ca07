"""Twenty steps of lft train on preferences with images against TRL's own trainers, from one PEFT
adapter, in float32 without dropout."""

import json
import math
import pathlib
import shutil

import datasets
import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForImageTextToText, AutoProcessor
from trl import DPOConfig, DPOTrainer, KTOConfig, KTOTrainer

import reference
import test_families
from test_families import family_adapter, family_dir  # noqa: F401  (fixtures)
from tools import lft, step_lines, write_rows

FAMILY, STEPS, RATE, BETA = "qwen25_gqa", 20, 1e-3, 0.2
NAMES = ("chelsea.png", "coffee.png", "moon.png", "turned.jpg", "tiny.png", "logo.png")
CHOSEN = ("A cat.", "A cup of coffee, on a table.", "The moon", "An astronaut", "Pixels.", "A logo")
REJECTED = ("A dog, I think.", "No.", "It is cheese.", "Nobody", "x", "An apple on a tree.")
# Without a token after the end of a turn: TRL counts it in the answer, no other tool does.
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}"
    "{% for part in message['content'] %}{% if part['type'] == 'image' %}"
    "<|vision_start|><|image_pad|><|vision_end|>{% else %}{{ part['text'] }}{% endif %}"
    "{% endfor %}{% endif %}<|im_end|>{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
KTO = dict(beta=BETA, desirable_weight=1.4, undesirable_weight=0.7)


@pytest.fixture(scope="module")
def checkpoint(family_dir, tmp_path_factory):  # noqa: F811
    path = tmp_path_factory.mktemp("trl") / "model"
    shutil.copytree(family_dir(FAMILY), path)
    (path / "chat_template.jinja").write_text(TEMPLATE)
    return path


def turn(role, *parts):
    return [{"role": role, "content": list(parts)}]


def text(words):
    return {"type": "text", "text": words}


def prompt(number):
    return turn("user", {"type": "image"}, text(f"What is in picture {number}?"))


def pairs():
    return [
        {
            "prompt": prompt(number),
            "chosen": turn("assistant", text(good)),
            "rejected": turn("assistant", text(bad)),
            "images": [name],
        }
        for number, (name, good, bad) in enumerate(zip(NAMES, CHOSEN, REJECTED))
    ]


def labelled():
    return [
        {
            "prompt": row["prompt"],
            "completion": row["chosen" if number % 3 else "rejected"],
            "label": number % 3 != 0,
            "images": row["images"],
        }
        for number, row in enumerate(pairs())
    ]


def run_lft(rows, objective, batch_size, checkpoint, start, images, folder):
    recipe = test_families.make_recipe(
        FAMILY,
        folder / "run",
        checkpoint,
        write_rows(folder / "rows.jsonl", rows),
        images,
        lora=dict(init_from=str(start)),
        objective=objective,
        optim=dict(
            lr=RATE,
            schedule="constant",
            warmup_ratio=0,
            weight_decay=0.01,
            clip_grad_norm=1,
        ),
        train=dict(max_steps=STEPS, batch_size=batch_size),
    )
    lft("train", recipe)
    return step_lines(folder / "run")


def run_trl(
    rows, trainer_class, config_class, batch_size, checkpoint, start, images, folder, **more
):
    shown = [
        {**row, "images": [reference.open_image(pathlib.Path(images) / row["images"][0])]}
        for row in rows
    ]
    model = AutoModelForImageTextToText.from_pretrained(checkpoint, dtype=torch.float32)
    trainer = trainer_class(
        model=PeftModel.from_pretrained(model, start, is_trainable=True),
        args=config_class(
            output_dir=str(folder / "trl"),
            per_device_train_batch_size=batch_size,
            learning_rate=RATE,
            lr_scheduler_type="constant",
            warmup_steps=0,
            weight_decay=0.01,
            max_grad_norm=1,
            max_length=None,
            max_steps=STEPS,
            logging_steps=1,
            bf16=False,
            use_cpu=True,
            gradient_checkpointing=False,
            train_sampling_strategy="sequential",
            report_to=[],
            save_strategy="no",
            **more,
        ),
        train_dataset=datasets.Dataset.from_list(shown),
        processing_class=AutoProcessor.from_pretrained(checkpoint),
    )
    trainer.train()
    return trainer.state.log_history[:STEPS]


def check(lines, history, names, condition=lambda line: 1):
    """`condition`: the condition number of the gradient, by which rounding grows in its norm."""
    assert len(lines) == len(history) == STEPS
    for line, record in zip(lines, history):
        for ours, theirs in names.items():
            if theirs not in record:  # no row of that label
                assert ours not in line, json.dumps(line)
                continue
            rel = 1e-4 * (condition(line) if ours == "grad_norm" else 1)
            assert line[ours] == pytest.approx(record[theirs], rel=rel, abs=1e-4), (
                line["step"],
                ours,
            )


def ipo_condition(line):
    """IPO's gradient is proportional to margin - 1 / (2 beta), the root of its loss, which is a
    difference of nearly equal numbers when the margin is reached."""
    return max(1, 1 / (2 * BETA) / math.sqrt(line["loss"]))


@pytest.mark.parametrize(
    "name, kind", [("dpo", "sigmoid"), ("ipo", "ipo"), ("hinge", "hinge"), ("apo_zero", "apo_zero")]
)
def test_pairs(name, kind, checkpoint, family_adapter, images, tmp_path):  # noqa: F811
    rows, start = pairs(), family_adapter(FAMILY)
    objective = dict(name=name, beta=BETA)
    lines = run_lft(rows, objective, 3, checkpoint, start, images, tmp_path)
    history = run_trl(
        rows, DPOTrainer, DPOConfig, 3, checkpoint, start, images, tmp_path,
        beta=BETA, loss_type=[kind], disable_dropout=True,
    )  # fmt: skip
    names = {"loss": "loss", "grad_norm": "grad_norm", "reward_margin": "rewards/margins"}
    for side in ("chosen", "rejected"):
        names |= {f"rewards_{side}": f"rewards/{side}", f"logps_{side}": f"logps/{side}"}
    check(lines, history, names, *([ipo_condition] if name == "ipo" else []))


def test_kto(checkpoint, family_adapter, images, tmp_path):  # noqa: F811
    """In steps of two rows, the next row's answer is the previous one's, which TRL takes."""
    rows, start = labelled(), family_adapter(FAMILY)
    lines = run_lft(rows, dict(name="kto", **KTO), 2, checkpoint, start, images, tmp_path)
    history = run_trl(
        rows, KTOTrainer, KTOConfig, 2, checkpoint, start, images, tmp_path,
        disable_dropout=True, **KTO,
    )  # fmt: skip
    names = {"loss": "loss", "grad_norm": "grad_norm", "reward_margin": "rewards/margins"}
    for side in ("chosen", "rejected"):
        names |= {f"rewards_{side}": f"rewards/{side}", f"logps_{side}": f"logps/{side}"}
    check(lines, history, names | {"kl": "kl"})
    assert max(line["kl"] for line in lines) > 0
