"""PiSSA and LoRA+ against PEFT: the same initialisation, the same steps, and an adapter that PEFT
reads as plain LoRA on the original base."""

import json

import pytest
import torch
import yaml
from peft import LoraConfig, get_peft_model
from peft.optimizers import create_loraplus_optimizer
from safetensors.torch import load_file

import reference
from cases import ADAPTERS, CASES, ROWS, STEPS, make_recipe
from tools import lft, score, step_lines

RELATIVE = 1e-4
TOLERANCE = 1e-3  # nats
CASE = CASES["cosine_clip_decay"] | dict(
    optim=CASES["cosine_clip_decay"]["optim"] | dict(weight_decay=0.0)
)
PLACES = (("language_model.model.", "model.language_model."), ("language_model.lm_head", "lm_head"))


@pytest.fixture(scope="module")
def run(model_dir, images, rows_file, tmp_path_factory):
    """lft's run from the original base."""
    folder = tmp_path_factory.mktemp("pissa")
    recipe = make_recipe(CASE, folder / "run", model_dir(CASE["checkpoint"]), "", images, rows_file)
    recipe["lora"] |= dict(variant="pissa", init_from=None)
    recipe["checkpoint"] = dict(every_steps=100, keep=2, at_step_zero=True)
    (folder / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    lft("train", folder / "recipe.yaml")
    return folder / "run"


@pytest.fixture(scope="module")
def peft_run(model_dir, images, tmp_path_factory):
    """PEFT's: the model, its A and B before the first step, the records of its steps,
    and the converted adapter."""
    folder = tmp_path_factory.mktemp("peft")
    peer = reference.Peer(model_dir(CASE["checkpoint"]))
    options = {key: value for key, value in ADAPTERS[CASE["adapter"]].items() if key != "targets"}
    model = get_peft_model(
        peer.model,
        LoraConfig(lora_dropout=0.0, task_type="CAUSAL_LM", init_lora_weights="pissa", **options),
    )
    start = {key: tensor.clone() for key, tensor in reference.trained_tensors(model).items()}
    model.peft_config["default"].init_lora_weights = True
    model.save_pretrained(folder / "start")
    samples = [peer.encode(item, images, CASE["template"], CASE["fit"]) for item in ROWS]
    records = reference.train(
        model, samples, CASE["optim"], CASE["batch_size"], CASE["grad_accum"], STEPS
    )
    model.peft_config["default"].init_lora_weights = "pissa"
    model.save_pretrained(
        folder / "converted", path_initial_model_for_weight_conversion=str(folder / "start")
    )
    return model, start, records, folder / "converted"


def products(tensors):
    """module -> B A in double, independent of the signs of the two."""
    return {
        key.removesuffix(".lora_A.weight"): tensors[key.replace("lora_A", "lora_B")].double()
        @ tensor.double()
        for key, tensor in tensors.items()
        if key.endswith("lora_A.weight")
    }


def check_products(found, wanted, relative=RELATIVE):
    assert sorted(found) == sorted(wanted)
    for key, want in wanted.items():
        assert (found[key] - want).norm() <= relative * want.norm(), key


def canonical_to_peft(name):
    for old, new in PLACES:
        if name.startswith(old):
            return "base_model.model." + new + name.removeprefix(old)
    raise AssertionError(name)


def test_the_start_is_pefts(run, peft_run):
    stored = load_file(run / "checkpoints" / "step-0" / "trainables.safetensors")
    check_products(
        products({canonical_to_peft(name): tensor for name, tensor in stored.items()}),
        products(peft_run[1]),
        1e-5,
    )


def test_twenty_steps(run, peft_run):
    lines = step_lines(run)
    assert [line["step"] for line in lines] == list(range(1, STEPS + 1))
    for line, record in zip(lines, peft_run[2]):
        for key in ["loss", "lr", "grad_norm"]:
            assert line[key] == pytest.approx(record[key], rel=RELATIVE, abs=1e-12), (
                line["step"],
                key,
            )
    assert lines[-1]["loss"] < lines[0]["loss"]


def test_what_is_saved_is_pefts_conversion(run, peft_run):
    config, want = (
        json.loads((path / "adapter_config.json").read_text())
        for path in (run / "adapter", peft_run[3])
    )
    for key in ["r", "lora_alpha", "init_lora_weights", "use_rslora", "use_dora"]:
        assert config[key] == want[key], key
    assert config["r"] == 2 * ADAPTERS[CASE["adapter"]]["r"]
    saved = reference.adapter_tensors(run / "adapter")
    converted = reference.adapter_tensors(peft_run[3])
    assert {key: tensor.shape for key, tensor in saved.items()} == {
        key: tensor.shape for key, tensor in converted.items()
    }
    # The difference of two products of nearly the same numbers.
    check_products(products(saved), products(converted), 1e-2)


def test_peft_reads_it_on_the_original_base(run, peft_run, model_dir, images, rows_file, tmp_path):
    base = model_dir(CASE["checkpoint"])
    peer, trained = reference.Peer(base, run / "adapter"), peft_run[0].eval()
    scored = score(tmp_path / "out.jsonl", base, rows_file, images, "--adapter", run / "adapter")
    for item, line in zip(ROWS, scored):
        ids, labels, pixels = peer.encode(item, images, CASE["template"], CASE["fit"])
        want = peer.logprobs(ids, labels, pixels)
        assert line["logprobs"] == pytest.approx(want, abs=TOLERANCE), item["id"]
        with torch.no_grad():  # as in the model trained by PEFT, over the changed base
            scores = torch.log_softmax(
                trained(input_ids=torch.tensor([ids]), pixel_values=pixels).logits[0].double(),
                dim=-1,
            )
        own = [scores[at - 1, label].item() for at, label in enumerate(labels) if label != -100]
        assert line["logprobs"] == pytest.approx(own, abs=TOLERANCE), item["id"]


@pytest.mark.parametrize("adapter_name", ["rslora_everywhere", "lora_bias_everywhere"])
def test_lora_plus(adapter_name, model_dir, peft_adapter, images, rows_file, tmp_path):
    """Ten steps against PEFT's optimizer with another learning rate for every B, and for its bias,
    which has no weight decay."""
    steps, ratio = 10, 8.0
    case = CASES["constant_rslora_every_tower"] | dict(adapter=adapter_name)
    optim = dict(
        lr=2e-4, schedule="constant", warmup_ratio=0.0, weight_decay=0.1, clip_grad_norm=0.7
    )
    base, adapter = model_dir(case["checkpoint"]), peft_adapter(case["checkpoint"], case["adapter"])
    recipe = make_recipe(case, tmp_path / "run", base, adapter, images, rows_file)
    recipe["optim"] = optim | dict(lora_plus_ratio=ratio)
    recipe["train"]["max_steps"] = steps
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    said = lft("train", tmp_path / "recipe.yaml").stdout
    assert ("base B bias" in said) == (adapter_name == "lora_bias_everywhere")

    peer = reference.Peer(base, adapter, trainable=True)
    samples = [peer.encode(item, images, case["template"], case["fit"]) for item in ROWS]
    optimizer = create_loraplus_optimizer(
        peer.model,
        torch.optim.AdamW,
        lr=optim["lr"],
        loraplus_lr_ratio=ratio,
        loraplus_weight_decay=optim["weight_decay"],
        eps=1e-8,
    )
    parameters = [parameter for parameter in peer.model.parameters() if parameter.requires_grad]
    peer.model.train()
    for line, group in zip(
        step_lines(tmp_path / "run"),
        reference.step_batches(samples, case["batch_size"], case["grad_accum"], steps),
    ):
        supervised = reference.supervised_tokens(group)
        total = 0.0
        for micro in group:
            loss = reference.sum_loss(peer.model, micro)
            (loss / supervised).backward()
            total += loss.item()
        norm = torch.nn.utils.clip_grad_norm_(parameters, optim["clip_grad_norm"])
        assert line["loss"] == pytest.approx(total / supervised, rel=RELATIVE), line["step"]
        assert line["grad_norm"] == pytest.approx(norm.item(), rel=RELATIVE), line["step"]
        assert line["lr"] == optim["lr"]
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    saved, wanted = (
        reference.adapter_tensors(tmp_path / "run" / "adapter"),
        reference.trained_tensors(peer.model),
    )
    assert sorted(saved) == sorted(wanted)
    for key, want in wanted.items():
        apart = saved[key].double() - want.double()
        if key.endswith("k_proj.lora_B.bias") and "vision" in key:
            # Without rotation softmax ignores a key's bias: its gradient is rounding noise,
            # and AdamW moves it by up to the learning rate in each step.
            assert apart.abs().max() <= 2 * steps * ratio * optim["lr"], key
        else:
            assert apart.norm() <= RELATIVE * want.double().norm(), key


def test_it_merges_into_the_original_base(run, model_dir, images, rows_file, tmp_path):
    base, merged = model_dir(CASE["checkpoint"]), tmp_path / "merged"
    lft("merge", "--model", base, "--adapter", run / "adapter", "--out", merged)
    with_adapter = score(
        tmp_path / "a.jsonl", base, rows_file, images, "--adapter", run / "adapter"
    )
    alone = score(tmp_path / "b.jsonl", merged, rows_file, images)
    for line, other in zip(with_adapter, alone):
        assert line["logprobs"] == pytest.approx(other["logprobs"], abs=TOLERANCE)
