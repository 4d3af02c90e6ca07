"""Steps of models with experts whose config.json asks for the load balancing loss of the routers:
losses, gradients and the use of experts against transformers, in float32."""

import json
import shutil

import pytest
import torch
import yaml

import reference
from test_families import (  # noqa: F401, the fixtures
    FAMILY_ROWS,
    NEAREST,
    RELATIVE,
    FamilyPeer,
    family_adapter,
    family_dir,
    family_rows,
    make_recipe,
)
from tools import lft, step_lines

STEPS, WEIGHT = 4, 0.5
FIGURES = ("balance_loss", "experts_unused", "expert_load")


@pytest.fixture(scope="module", params=["moe_gqa", "moe35_tied"])
def model(request, family_dir, family_adapter, tmp_path_factory):  # noqa: F811
    """The name, a checkpoint that asks for the loss, and an adapter."""
    path = tmp_path_factory.mktemp("balanced") / request.param
    shutil.copytree(family_dir(request.param), path)
    config = json.loads((path / "config.json").read_text())
    config["text_config"] |= dict(output_router_logits=True, router_aux_loss_coef=WEIGHT)
    (path / "config.json").write_text(json.dumps(config))
    return request.param, path, family_adapter(request.param)


def recipe_of(model, out, rows, images, **train):  # noqa: F811
    name, path, adapter = model
    return make_recipe(
        name,
        out,
        path,
        rows,
        images,
        lora=dict(init_from=str(adapter)),
        train=dict(max_steps=STEPS, batch_size=1, grad_accum=3) | train,
    )


class Usage:
    """Counts the tokens of each expert, by layer."""

    def __init__(self, model):
        self.counts = {}
        for name, module in model.named_modules():
            if name.endswith(".mlp.gate"):
                module.register_forward_hook(lambda *seen, name=name: self.see(name, seen[2]))

    def see(self, name, out):
        counts = torch.bincount(out[2].flatten(), minlength=out[0].shape[-1])
        self.counts[name] = self.counts.get(name, 0) + counts

    def take(self):
        counts = torch.stack(list(self.counts.values())).double()
        self.counts = {}
        load = counts.max(1)[0] / counts.mean(1)
        return dict(
            experts_unused=(counts == 0).double().mean().item(), expert_load=load.max().item()
        )


def balanced_steps(peer, samples, optim, accumulated):
    """reference_steps() of test_families with the loss, whose mean is over rows: one row is one
    pass."""
    parameters, optimizer, scheduler = reference.make_optimizer(peer.model, optim, STEPS)
    peer.model.train()
    usage, aux = Usage(peer.model), []
    inner = peer.model.get_base_model()
    inner.register_forward_pre_hook(
        lambda module, args, kwargs: (args, kwargs | dict(output_router_logits=True)),
        with_kwargs=True,
    )
    inner.register_forward_hook(lambda module, args, out: aux.append(out.aux_loss))
    records = []
    for group in reference.step_batches(samples, 1, accumulated, STEPS):
        rows = [row for batch in group for row in batch]
        supervised = sum(label != -100 for _, labels, _ in rows for label in labels)
        total = balance = 0.0
        for ids, labels, extra in rows:
            logits = peer.forward(ids, extra).float()
            loss = torch.nn.functional.cross_entropy(
                logits[:-1], torch.tensor(labels[1:]), ignore_index=-100, reduction="sum"
            )
            (loss / supervised + WEIGHT * aux[-1] / len(rows)).backward()
            total += loss.item()
            balance += aux[-1].item() / len(rows)
        norm = torch.nn.utils.clip_grad_norm_(parameters, optim["clip_grad_norm"])
        records.append(
            dict(
                loss=total / supervised, grad_norm=norm.item(), balance_loss=balance, **usage.take()
            )
        )
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad(set_to_none=True)
    return records


def test_steps_with_the_load_balancing_loss(model, family_rows, images, tmp_path):  # noqa: F811
    name, path, adapter = model
    recipe = recipe_of(model, tmp_path / "run", family_rows, images)
    said = lft("train", recipe).stderr
    assert f"the load balancing loss of the routers is added to the loss, times {WEIGHT}" in said
    peer = FamilyPeer(name, path, adapter, trainable=True)
    samples = [peer.encode(item, images) for item in FAMILY_ROWS]
    want = balanced_steps(peer, samples, yaml.safe_load(recipe.read_text())["optim"], 3)
    assert peer.choices.nearest > NEAREST
    for line, record in zip(step_lines(tmp_path / "run"), want, strict=True):
        got = {key: line[key] for key in record}
        assert got == pytest.approx(record, rel=RELATIVE), line["step"]


def test_recomputation_and_processes_change_nothing(
    model,
    family_rows,
    images,
    tmp_path,  # noqa: F811
):
    runs = {}
    for kind, train, launch in (
        ("one", dict(), []),
        ("recomputed", dict(activation_checkpointing="block"), []),
        ("two", dict(), ["launch", "--nproc", "2"]),
    ):
        more = dict(grad_accum=4, max_steps=3, **train)
        recipe = recipe_of(model, tmp_path / kind, family_rows, images, **more)
        lft(*(launch or ["train"]), recipe)
        runs[kind] = step_lines(tmp_path / kind)
    for kind in ("recomputed", "two"):
        for line, one in zip(runs[kind], runs["one"], strict=True):
            assert line["experts_unused"] == one["experts_unused"]
            assert line["expert_load"] == one["expert_load"]
            for key in ("loss", "grad_norm", "balance_loss"):
                assert line[key] == pytest.approx(one[key], rel=1e-5), (kind, key)


def test_evaluations_are_not_counted(model, family_rows, images, tmp_path):  # noqa: F811
    figures = {}
    for kind in ("plain", "evaluated"):
        recipe = recipe_of(model, tmp_path / kind, family_rows, images, max_steps=2)
        if kind == "evaluated":
            asked = yaml.safe_load(recipe.read_text())
            asked["data"]["eval"] = str(family_rows)
            asked["train"]["eval_every_steps"] = 1
            recipe.write_text(yaml.safe_dump(asked))
        lft("train", recipe)
        figures[kind] = [[line[key] for key in FIGURES] for line in step_lines(tmp_path / kind)]
    assert figures["plain"] == figures["evaluated"]


def test_a_model_that_does_not_ask_for_it_reports_usage_alone(
    family_dir,
    family_rows,
    images,
    tmp_path,  # noqa: F811
):
    for name in ("moe_tied", "qwen3_tied"):
        train = dict(max_steps=2)
        recipe = make_recipe(
            name, tmp_path / name, family_dir(name), family_rows, images, train=train
        )
        said = lft("train", recipe).stderr
        assert "load balancing" not in said
        found = [key for key in FIGURES if key in step_lines(tmp_path / name)[0]]
        assert found == ([] if name == "qwen3_tied" else ["experts_unused", "expert_load"])
