"""PEFT's adapters of experts (`target_parameters`) with its options, and lft's in PEFT: the same
scores, or the option named that lft does not support."""

import json

import pytest
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file

import families
from family_specs_moe import BOTH
from test_families import (  # noqa: F401, the fixtures
    FAMILY_ROWS,
    NEAREST,
    FamilyPeer,
    family_dir,
    fit_of,
    make_recipe,
)
from tools import lft, score, step_lines, write_notes, write_rows

TOLERANCE = 1e-4  # nats
ITEMS = FAMILY_ROWS[:2]
EXPERTS = [f"mlp.experts.{part}" for part in BOTH]
LAYER = "model.language_model.layers.{}.mlp.experts.{}"
# LoraConfig's arguments besides r and lora_alpha.
READ = {
    "experts_alone": dict(target_parameters=EXPERTS),
    "one_layer": dict(
        target_modules=["q_proj"], target_parameters=[LAYER.format(1, "gate_up_proj")]
    ),
    # One wrapper around the experts of the second layer, two around those of the third.
    "other_projections_by_layer": dict(
        target_modules=["v_proj"],
        target_parameters=[
            LAYER.format(1, "down_proj"),
            *(LAYER.format(2, part) for part in BOTH),
        ],
    ),
    "names_of_parameters": dict(target_parameters=["down_proj", "gate_up_proj"]),
    "patterns": dict(
        target_modules=["q_proj", "down_proj"],
        target_parameters=EXPERTS,
        rank_pattern={"gate_up_proj": 2, "mlp.experts.down_proj": 5},
        alpha_pattern={"experts.gate_up_proj": 8, r"layers\.2\.mlp\.experts\.down_proj": 3},
    ),
    "rslora": dict(target_modules="all-linear", target_parameters=EXPERTS[1:], use_rslora=True),
}


def make(base, path, options):
    """Saves a PEFT adapter with random A and B."""
    model = get_peft_model(
        families.load_model(base), LoraConfig(r=3, lora_alpha=6, task_type="CAUSAL_LM", **options)
    )
    generator = torch.Generator().manual_seed(11)
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if "lora_" in key:
                noise = torch.randn(parameter.shape, generator=generator)
                parameter.copy_(noise * (0.5 / parameter.shape[-1] ** 0.5))
    model.save_pretrained(path)


def compare(peer, scored, images):
    for item, line in zip(ITEMS, scored, strict=True):
        want = peer.logprobs(*peer.encode(item, images))
        assert line["logprobs"] == pytest.approx(want, abs=TOLERANCE), item["id"]
    assert peer.choices.nearest > NEAREST


@pytest.mark.parametrize(
    "case, name", [*((case, "moe_gqa") for case in READ), ("patterns", "moe35_gqa")]
)
def test_it_is_read(case, name, family_dir, images, tmp_path):  # noqa: F811
    base, adapter = family_dir(name), tmp_path / "adapter"
    make(base, adapter, READ[case])
    write_notes(adapter, "auto", fit_of(name))
    rows = write_rows(tmp_path / "rows.jsonl", ITEMS)
    peft = FamilyPeer(name, base, adapter)
    scored = score(tmp_path / "out.jsonl", base, rows, images, "--adapter", adapter)
    compare(peft, scored, images)
    plain = FamilyPeer(name, base)
    change = max(
        abs(value - before)
        for item, line in zip(ITEMS, scored)
        for value, before in zip(
            line["logprobs"], plain.logprobs(*plain.encode(item, images)), strict=True
        )
    )
    assert change > 0.05


@pytest.mark.parametrize(
    "parts, name",
    [(BOTH, "moe_gqa"), (BOTH[:1], "moe_gqa"), (BOTH[1:], "moe_gqa"), (BOTH, "moe35_gqa")],
)
def test_pefts_file_is_written(parts, name, family_dir, images, tmp_path):  # noqa: F811
    """lft's adapter of the same layers has PEFT's keys and shapes, and PEFT's scores; the next run
    begins with them, and an export has the same tensors."""
    base, adapter = family_dir(name), tmp_path / "run" / "adapter"
    rows = write_rows(tmp_path / "rows.jsonl", ITEMS)
    more = dict(
        lora=dict(targets=["llm:q_proj", *(f"llm:experts.{part}" for part in parts)]),
        train=dict(max_steps=2, batch_size=2),
        optim=dict(lr=1e-2, schedule="constant", warmup_ratio=0.0),
    )
    lft("train", make_recipe(name, tmp_path / "run", base, rows, images, **more))
    make(
        base,
        tmp_path / "peft",
        dict(
            target_modules=["q_proj"],
            target_parameters=[f"mlp.experts.{part}" for part in parts],
        ),
    )
    ours, theirs = (
        load_file(folder / "adapter_model.safetensors") for folder in (adapter, tmp_path / "peft")
    )
    assert {key: value.shape for key, value in ours.items()} == {
        key: value.shape for key, value in theirs.items()
    }
    scored = score(tmp_path / "out.jsonl", base, rows, images, "--adapter", adapter)
    compare(FamilyPeer(name, base, adapter), scored, images)

    more["lora"]["init_from"] = str(adapter)
    lft("train", make_recipe(name, tmp_path / "next", base, rows, images, **more))
    tokens = [value for line in scored for value in line["logprobs"]]
    assert step_lines(tmp_path / "next")[0]["loss"] == pytest.approx(
        -sum(tokens) / len(tokens), rel=TOLERANCE
    )
    lft("export", adapter, "--target", "peft", "--out", tmp_path / "exported")
    exported = load_file(tmp_path / "exported" / "adapter_model.safetensors")
    assert exported.keys() == ours.keys()
    assert all(torch.equal(exported[key], ours[key]) for key in ours)


def test_an_adapter_of_a_router_is_refused_by_name(family_dir, images, tmp_path):  # noqa: F811
    base, adapter = family_dir("moe_gqa"), tmp_path / "adapter"
    make(base, adapter, dict(target_modules=["q_proj"], target_parameters=["mlp.gate.weight"]))
    asked = ["--adapter", adapter, "--image", images / "tiny.png", "--prompt", "What?"]
    assert "target_parameters" in lft("generate", "--model", base, *asked, code=3).stderr


def test_an_adapter_of_more_experts_is_refused(family_dir, images, tmp_path):  # noqa: F811
    families.SPECS["moe_of_six"] = families.SPECS["moe_gqa"] | dict(
        text=families.SPECS["moe_gqa"]["text"] | dict(num_experts=6)
    )
    adapter = tmp_path / "adapter"
    make(family_dir("moe_of_six"), adapter, READ["experts_alone"])
    file = adapter / "adapter_config.json"
    config = json.loads(file.read_text())
    config["base_model_name_or_path"] = str(family_dir("moe_gqa"))
    file.write_text(json.dumps(config))
    asked = ["--adapter", adapter, "--image", images / "tiny.png", "--prompt", "What?"]
    error = lft("generate", "--model", family_dir("moe_gqa"), *asked, code=3).stderr
    assert "experts" in error and "[18, " in error


@pytest.mark.parametrize(
    "lora, named",
    [
        (dict(dropout=0.1), "dropout"),
        (dict(variant="dora"), "experts"),
    ],
)
def test_what_peft_cannot_train_is_refused(lora, named, family_dir, images, tmp_path):  # noqa: F811
    rows = write_rows(tmp_path / "rows.jsonl", ITEMS)
    lora = dict(targets=["llm:experts.down_proj"]) | lora
    path = make_recipe("moe_gqa", tmp_path / "run", family_dir("moe_gqa"), rows, images, lora=lora)
    error = lft("check", path, code=2).stderr
    assert named in error and "experts" in error
