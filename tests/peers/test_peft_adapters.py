"""Adapters created with PEFT's options: lft gives PEFT's results,
or names the option that it does not support."""

import copy
import json
import re

import pytest
import torch
from peft import LoHaConfig, LoraConfig, PeftModel, get_peft_model, set_peft_model_state_dict
from safetensors.torch import load_file, save_file
from transformers import LlavaForConditionalGeneration

from cases import LLM, PROJECTOR, ROWS, VISION
from servers import Refusal, vllm_updates
from tools import lft, score, write_rows

TOLERANCE = 1e-4  # nats
ITEMS = [ROWS[0], ROWS[1], ROWS[3]]
NAMES = ["q_proj", "v_proj", "up_proj", "fc1", "linear_2"]

# The checkpoint, and LoraConfig's arguments besides r and lora_alpha.
READ = {
    "patterns_of_names": (
        "plain",
        dict(
            target_modules=LLM,
            rank_pattern={"q_proj": 2, "mlp.up_proj": 7},
            alpha_pattern={"v_proj": 1.5},
        ),
    ),
    "patterns_of_expressions": (
        "plain",
        dict(
            target_modules=f"({LLM})|({VISION})",
            rank_pattern={
                r".*layers\.[12]\..*proj": 2,
                "^model.language_model.layers.0.mlp.up_proj": 6,
                "fc1": 9,
            },
            alpha_pattern={r"(k|v)_proj": 9, "layers.0.self_attn.q_proj": 0.5},
        ),
    ),
    "patterns_under_rslora": (
        "gqa_tied",
        dict(
            target_modules=LLM,
            use_rslora=True,
            rank_pattern={"o_proj": 9},
            alpha_pattern={"down_proj": 2},
        ),
    ),
    "patterns_under_dora": (
        "gqa_tied",
        dict(
            target_modules=LLM,
            use_dora=True,
            rank_pattern={"o_proj": 2},
            alpha_pattern={"o_proj": 9},
        ),
    ),
    "patterns_beside_a_whole_projector": (
        "gqa_tied",
        dict(
            target_modules=NAMES, modules_to_save=["multi_modal_projector"], rank_pattern={"fc1": 1}
        ),
    ),
    "a_bias_after_b": (
        "head_dim_bias",
        dict(target_modules=f"({LLM})|({VISION})|({PROJECTOR})", lora_bias=True),
    ),
    "a_bias_where_the_layer_has_none": (
        "plain",
        dict(target_modules=LLM, lora_bias=True, rank_pattern={"q_proj": 2}),
    ),
    "excluded_modules": ("plain", dict(target_modules=NAMES, exclude_modules=r".*vision_tower.*")),
    "some_layers": (
        "plain",
        dict(target_modules=NAMES[:3], layers_to_transform=[0, 2], layers_pattern="layers"),
    ),
    "every_linear_layer": ("plain", dict(target_modules="all-linear")),
    "the_lm_head": (
        "plain",
        dict(target_modules=["q_proj", "lm_head"], alpha_pattern={"lm_head": 1}),
    ),
    "the_embedding": (
        "plain",
        dict(target_modules=["q_proj", "embed_tokens"], rank_pattern={"embed_tokens": 2}),
    ),
    "a_tie_that_the_base_has_not": (
        "plain",
        dict(
            target_modules=["q_proj"],
            modules_to_save=["embed_tokens", "lm_head"],
            ensure_weight_tying=True,
        ),
    ),
    "initialised_by_eva": ("plain", dict(target_modules=LLM, init_lora_weights="eva")),
    "initialised_by_mica": ("plain", dict(target_modules=LLM, init_lora_weights="mica")),
    "modules_by_the_end_of_their_name": (
        "plain",
        dict(target_modules=["q_proj", "fc1"], modules_to_save=["norm", "gate_proj"]),
    ),
}
REFUSED = {
    "embedding_rows": (
        dict(target_modules=["q_proj"], trainable_token_indices=[3, 4]),
        "trainable_token_indices",
    ),
    "dora_on_the_embedding": (
        dict(target_modules=["q_proj", "embed_tokens"], use_dora=True),
        "use_dora on an embedding",
    ),
    "parameters": (
        dict(target_modules=["q_proj"], target_parameters=["lm_head.weight"]),
        "target_parameters",
    ),
    "the_bases_biases": (dict(target_modules=["q_proj", "fc1"], bias="lora_only"), "bias"),
    "a_changed_base": (
        dict(target_modules=["q_proj"], init_lora_weights="pissa"),
        "init_lora_weights",
    ),
    "activated_by_tokens": (
        dict(target_modules=["q_proj"], alora_invocation_tokens=[1, 2]),
        "alora_invocation_tokens",
    ),
    "two_variants": (dict(target_modules=["fc1"], lora_bias=True, use_rslora=True), "lora_bias"),
}


def foretells(peft, model_dir, adapter, unread=False):
    """lft export --check reports a problem where vLLM refuses the adapter or accepts it without
    the LoRA of the towers, and where lft does not read it."""
    try:
        vllm_updates(adapter, peft, rank=16)
        listed = unread or any(
            "lora_embedding" in key
            or ("lora_" in key and ".language_model." not in key and "lm_head" not in key)
            for key in load_file(adapter / "adapter_model.safetensors")
        )
    except Refusal:
        listed = True
    done = lft(
        "export",
        adapter,
        "--model",
        model_dir,
        "--target",
        "vllm",
        "--check",
        code=3 if listed else 0,
    )
    assert listed or "reads the adapter as it is" in done.stdout
    assert "incomplete" not in done.stderr
    return listed


def make(model_dir, path, config):
    """The PEFT model, saved to `path` with random A, B, biases and magnitudes."""
    base = LlavaForConditionalGeneration.from_pretrained(model_dir, dtype=torch.float32)
    return adapt(base, path, config)


def adapt(base, path, config):
    model = get_peft_model(base, config).eval()
    generator = torch.Generator().manual_seed(11)
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if "lora_magnitude_vector" in key:
                parameter.mul_(1 + 0.2 * noise)
            elif "lora_B.default.bias" in key:
                parameter.copy_(noise * 0.1)
            elif "lora_" in key or "hada_" in key:
                parameter.copy_(noise * (0.5 / parameter.shape[-1] ** 0.5))
            elif "modules_to_save.default" in key:
                parameter.add_(noise * 0.05)
    model.save_pretrained(path)
    return model


@pytest.mark.parametrize("name", READ)
def test_it_is_read(name, model_dir, peer, images, tmp_path):
    checkpoint, options = READ[name]
    config = LoraConfig(r=4, lora_alpha=6, lora_dropout=0.0, task_type="CAUSAL_LM", **options)
    adapted = copy.copy(peer(checkpoint))
    adapted.model = make(model_dir(checkpoint), tmp_path / "adapter", config)
    rows, moved = write_rows(tmp_path / "rows.jsonl", ITEMS), 0
    scored = score(
        tmp_path / "out.jsonl",
        model_dir(checkpoint),
        rows,
        images,
        "--adapter",
        tmp_path / "adapter",
    )
    for item, line in zip(ITEMS, scored):
        ids, labels, pixels = adapted.encode(item, images)
        want = adapted.logprobs(ids, labels, pixels)
        assert line["logprobs"] == pytest.approx(want, abs=TOLERANCE), item["id"]
        moved = max(
            moved,
            max(abs(a - b) for a, b in zip(want, peer(checkpoint).logprobs(ids, labels, pixels))),
        )
    assert moved > 0.05
    foretells(adapted.model, model_dir(checkpoint), tmp_path / "adapter")
    # Merged, if the layers can store what the adapter adds.
    merge = (
        "merge",
        "--model",
        model_dir(checkpoint),
        "--adapter",
        tmp_path / "adapter",
        "--out",
        tmp_path / "merged",
    )
    if name == "a_bias_where_the_layer_has_none":
        assert "lora_bias" in lft(*merge, code=3).stderr
    elif name in (
        "patterns_of_expressions",
        "patterns_under_dora",
        "a_bias_after_b",
        "the_embedding",
        "a_tie_that_the_base_has_not",
    ):
        lft(*merge)
        merged = score(
            tmp_path / "merged.jsonl",
            tmp_path / "merged",
            rows,
            images,
            "--template",
            "llava-v1",
            "--image-fit",
            "pad",
        )
        for line, other in zip(scored, merged):
            assert line["logprobs"] == pytest.approx(other["logprobs"], abs=TOLERANCE)


@pytest.mark.parametrize(
    "name",
    [
        "patterns_of_names",
        "patterns_of_expressions",
        "patterns_beside_a_whole_projector",
        "excluded_modules",
        "some_layers",
        "every_linear_layer",
        "the_lm_head",
    ],
)
def test_layers_without_tensors_are_those_that_peft_misses(name, model_dir, tmp_path):
    checkpoint, options = READ[name]
    adapter = tmp_path / "adapter"
    config = LoraConfig(r=4, lora_alpha=6, task_type="CAUSAL_LM", **options)
    peft = make(model_dir(checkpoint), adapter, config)
    tensors = load_file(adapter / "adapter_model.safetensors")
    layers = sorted({key.split(".lora_")[0] for key in tensors if ".lora_A." in key})
    gone = [layer for layer in layers if "layers.0." in layer or "lm_head" in layer][-4:]
    kept = {key: value for key, value in tensors.items() if key.split(".lora_")[0] not in gone}
    save_file(kept, adapter / "adapter_model.safetensors")
    missed = {
        key.split(".lora_")[0]
        for key in set_peft_model_state_dict(peft, kept).missing_keys
        if ".lora_" in key
    }
    assert missed == set(gone)
    stderr = lft(
        "export", adapter, "--model", model_dir(checkpoint), "--target", "peft", "--check"
    ).stderr
    (told,) = [line for line in stderr.splitlines() if "the adapter is incomplete" in line]
    named = re.search("safetensors: (.*?)[.] ", told).group(1).split(", ")

    def ends(names):  # for names that are equal in all versions
        return {re.sub(r".*(layers\.\d|lm_head)", r"\1", name) for name in names}

    assert ends(named) == ends(gone) and len(named) == len(gone)


@pytest.mark.parametrize("part", ["without_its_head", "the_decoder_alone"])
def test_an_adapter_of_a_part_of_the_model_is_read(part, model_dir, peer, images, tmp_path):
    whole = LlavaForConditionalGeneration.from_pretrained(model_dir("plain"), dtype=torch.float32)
    base = whole.model if part == "without_its_head" else whole.model.language_model
    adapt(base, tmp_path / "adapter", LoraConfig(r=4, lora_alpha=6, target_modules=NAMES))
    adapted = copy.copy(peer("plain"))
    adapted.model = whole.eval()  # PEFT has put the adapter into it
    rows = write_rows(tmp_path / "rows.jsonl", ITEMS)
    scored = score(
        tmp_path / "out.jsonl",
        model_dir("plain"),
        rows,
        images,
        "--adapter",
        tmp_path / "adapter",
    )
    for item, line in zip(ITEMS, scored):
        want = adapted.logprobs(*adapted.encode(item, images))
        assert line["logprobs"] == pytest.approx(want, abs=TOLERANCE), item["id"]


def test_the_first_pattern_of_the_file_is_used(model_dir, peer, images, tmp_path):
    adapter = tmp_path / "adapter"
    make(
        model_dir("plain"),
        adapter,
        LoraConfig(r=4, lora_alpha=6, target_modules=LLM, task_type="CAUSAL_LM"),
    )
    config = json.loads((adapter / "adapter_config.json").read_text())
    config["alpha_pattern"] = {"q_proj": 2, r"layers\.1\..*": 50}
    (adapter / "adapter_config.json").write_text(json.dumps(config))
    base = LlavaForConditionalGeneration.from_pretrained(model_dir("plain"), dtype=torch.float32)
    adapted = copy.copy(peer("plain"))
    adapted.model = PeftModel.from_pretrained(base, adapter).eval()
    rows = write_rows(tmp_path / "rows.jsonl", ITEMS)
    scored = score(tmp_path / "out.jsonl", model_dir("plain"), rows, images, "--adapter", adapter)
    for item, line in zip(ITEMS, scored):
        want = adapted.logprobs(*adapted.encode(item, images))
        assert line["logprobs"] == pytest.approx(want, abs=TOLERANCE), item["id"]


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused_by_name(name, model_dir, images, tmp_path):
    options, named = REFUSED[name]
    peft = make(
        model_dir("plain"),
        tmp_path / "adapter",
        LoraConfig(r=4, lora_alpha=6, task_type="CAUSAL_LM", **options),
    )
    refuses(model_dir("plain"), tmp_path, images, named)
    foretells(peft, model_dir("plain"), tmp_path / "adapter", unread=True)


@pytest.mark.parametrize("layer", ["patch_embedding", "position_embedding"])
def test_a_convolution_and_positions_are_refused_by_name(layer, model_dir, images, tmp_path):
    config = LoraConfig(r=4, lora_alpha=6, target_modules=["q_proj", layer])
    make(model_dir("plain"), tmp_path / "adapter", config)
    refuses(
        model_dir("plain"),
        tmp_path,
        images,
        f"with LoRA:\n      model.vision_tower.embeddings.{layer}\n",
    )


def test_another_kind_of_adapter_is_refused_by_name(model_dir, images, tmp_path):
    peft = make(
        model_dir("plain"), tmp_path / "adapter", LoHaConfig(r=4, target_modules=["q_proj"])
    )
    refuses(model_dir("plain"), tmp_path, images, "LOHA")
    assert foretells(peft, model_dir("plain"), tmp_path / "adapter")


def test_a_rank_above_the_servers_is_foretold(model_dir, tmp_path):
    peft = make(
        model_dir("plain"), tmp_path / "adapter", LoraConfig(r=17, lora_alpha=6, target_modules=LLM)
    )
    assert foretells(peft, model_dir("plain"), tmp_path / "adapter")
    done = lft(
        "export",
        tmp_path / "adapter",
        "--model",
        model_dir("plain"),
        "--target",
        "vllm",
        "--out",
        tmp_path / "out",
    )
    assert "--max-lora-rank 32" in done.stdout


def refuses(model, tmp_path, images, named):
    rows, out = write_rows(tmp_path / "rows.jsonl", ITEMS[:1]), tmp_path / "out.jsonl"
    stderr = lft(
        "score",
        "--model",
        model,
        "--adapter",
        tmp_path / "adapter",
        "--data",
        rows,
        "--image-root",
        images,
        "--out",
        out,
        code=3,
    ).stderr
    assert named in stderr and stderr.count("error:") == 1
