"""vLLM's and SGLang's own loaders accept each export and add the same update as PEFT;
lft export --check predicts what they refuse or omit."""

import json
import re

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from peft.tuners.lora import LoraLayer
from peft.tuners.lora.layer import ParamWrapper
from transformers import AutoConfig

import families
from cases import ADAPTERS
from servers import Refusal, sglang_updates, vllm_updates
from test_families import (  # noqa: F401, the fixtures
    NAMES,
    adapted_experts,
    family_adapter,
    family_dir,
)
from tools import lft

RELATIVE = 1e-5  # float32: products are sums of at most 17 terms, and a scale
DECODER = r".*language_model.*\.(q_proj|k_proj|v_proj|o_proj|gate_proj|up_proj|down_proj)"


def decoders(*names):
    return [f"model.language_model.layers.{layer}.{part}" for layer, part in names]


def everywhere(*parts):
    """In each of the four layers of qwen3_gqa."""
    return decoders(*((layer, part) for layer in range(4) for part in parts))


Q, K, V, O = (f"self_attn.{name}_proj" for name in "qkvo")
GATE, UP, DOWN = (f"mlp.{name}_proj" for name in ["gate", "up", "down"])
O_AND_DOWN = dict(target_modules=decoders((0, O), (1, DOWN)))
ONE_O = dict(target_modules=decoders((0, O)))

# LoraConfig's arguments besides r and lora_alpha; target_modules of the decoder of Qwen3-VL.
TWENTY = {
    "expression": dict(target_modules=DECODER),
    "all_linear": dict(target_modules="all-linear"),
    "full_names": dict(target_modules=everywhere(Q, K, V)),
    "q_alone": dict(target_modules=r".*language_model.*q_proj"),
    "k_alone": dict(target_modules=everywhere(K)),
    "v_alone": dict(target_modules=everywhere(V)),
    "q_and_k": dict(target_modules=everywhere(Q, K)),
    "q_and_v": dict(target_modules=everywhere(Q, V)),
    "gate_alone": dict(target_modules=everywhere(GATE)),
    "up_alone": dict(target_modules=everywhere(UP)),
    "o_and_down": dict(target_modules=everywhere(O, DOWN)),
    "one_layer": dict(target_modules=decoders((2, Q), (2, K), (2, V))),
    "v_missing_in_one_layer": dict(target_modules=decoders((0, Q), (0, V), (1, Q))),
    "other_scale": dict(O_AND_DOWN, use_rslora=True),
    "own_alphas": dict(O_AND_DOWN, alpha_pattern={"o_proj": 1}),
    "own_ranks": dict(O_AND_DOWN, rank_pattern={"o_proj": 2}),
    "magnitudes": dict(ONE_O, use_dora=True),
    "biases": dict(ONE_O, lora_bias=True),
    "vision_tower": dict(target_modules=["o_proj", "linear_fc1"]),
    "whole_merger": dict(ONE_O, modules_to_save=["merger"]),
}


def base_of(path):
    return families.load_model(path)


def updates_of(model):
    """{module: delta W} computed by PEFT, without experts."""
    return {
        name: layer.get_delta_weight("default").detach()
        for name, layer in model.base_model.model.named_modules()
        if isinstance(layer, LoraLayer) and not isinstance(layer, ParamWrapper)
    }


def experts_of(model):
    """{parameter: its values}"""
    return {key: value for key, value in model.state_dict().items() if ".mlp.experts." in key}


def own_name(name):
    """The adapter in transformers' newest spelling."""
    return name.removeprefix("base_model.model.").replace(
        "vision_tower.vision_model.", "vision_tower."
    )


def same(got, want):
    assert got.shape == want.shape
    assert (got - want).abs().max() <= RELATIVE * want.abs().max()


def joined(updates, config):
    """q, k, v and gate, up of PEFT's, concatenated, zeros where there is none,
    in SGLang's layout."""
    whole = {}
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    rows = dict.fromkeys(["gate_proj", "up_proj"], config.intermediate_size)
    rows |= dict(
        q_proj=head * config.num_attention_heads,
        k_proj=head * config.num_key_value_heads,
        v_proj=head * config.num_key_value_heads,
    )
    for name, update in updates.items():
        start, last = name.rsplit(".", 1)
        for group, one in (
            (["q_proj", "k_proj", "v_proj"], "qkv_proj"),
            (["gate_proj", "up_proj"], "gate_up_proj"),
        ):
            if last in group:
                parts = [
                    updates.get(f"{start}.{part}", torch.zeros(rows[part], update.shape[1]))
                    for part in group
                ]
                whole[f"{start}.{one}"] = torch.cat(parts)
                break
        else:
            whole[name] = update
    return whole


def compare_vllm(out, model, adapter):
    """The served adapter adds the same update as PEFT's to the modules that it has."""
    rank = int(re.search(r"--max-lora-rank (\d+)", out.stdout)[1])
    peft = PeftModel.from_pretrained(base_of(model), adapter)
    got = {own_name(name): update for name, update in vllm_updates(out.adapter, peft, rank).items()}
    want = updates_of(peft)
    assert got.keys() == want.keys()
    for name, update in got.items():
        same(update, want[name])


def exported(adapter, model, target, out):
    done = lft("export", adapter, "--model", model, "--target", target, "--out", out)
    done.adapter = out / "adapter"
    return done


# vLLM refuses DoRA and biases: see TWENTY below.
TAKEN = [name for name in ADAPTERS if "dora" not in name and "lora_bias" not in name]


@pytest.mark.parametrize("name", TAKEN)
def test_vllm_adds_what_peft_adds_to_llava(name, model_dir, peft_adapter, tmp_path):
    model, adapter = model_dir("head_dim_bias"), peft_adapter("head_dim_bias", name)
    compare_vllm(exported(adapter, model, "vllm", tmp_path / "out"), model, adapter)


@pytest.mark.parametrize("name", NAMES)
def test_vllm_adds_what_peft_adds_to_each_family(
    name,
    family_dir,  # noqa: F811
    family_adapter,  # noqa: F811
    tmp_path,
):
    model, adapter, out = family_dir(name), family_adapter(name), tmp_path / "out"
    done = exported(adapter, model, "vllm", out)
    compare_vllm(done, model, adapter)
    assert ("of experts, whose LoRA vLLM" in done.stdout) == bool(adapted_experts(name))
    if not adapted_experts(name):
        return
    merged = PeftModel.from_pretrained(base_of(model), adapter).merge_and_unload()
    # The base to serve with the adapter, rounded as it is stored.
    narrow = families.SPECS[name].get("dtype") == torch.bfloat16
    want, got = experts_of(merged), experts_of(base_of(out / "base"))
    assert want.keys() == got.keys() and want
    for key, value in want.items():
        assert torch.allclose(got[key], value, rtol=2**-8 if narrow else 1e-5, atol=1e-6), key


@pytest.mark.parametrize("name", [name for name in NAMES if re.match("qwen(2|25|3)_", name)])
def test_sglang_adds_what_peft_adds_to_the_decoder(
    name,
    family_dir,  # noqa: F811
    family_adapter,  # noqa: F811
    tmp_path,
):
    model, adapter = family_dir(name), family_adapter(name)
    out = exported(adapter, model, "sglang", tmp_path / "out").adapter
    lft("export", out, "--target", "sglang", "--check")  # uses the recorded base
    compare_sglang(out, PeftModel.from_pretrained(base_of(model), adapter), model)


def compare_sglang(adapter, peft, model):
    config = AutoConfig.from_pretrained(model).get_text_config()
    want = joined(
        {
            name: update
            for name, update in updates_of(peft).items()
            if ".layers." in name and "visual" not in name
        },
        config,
    )
    got = {own_name(name): update for name, update in sglang_updates(adapter, config).items()}
    assert got.keys() >= want.keys()
    for name, update in got.items():
        same(update, want.get(name, torch.zeros_like(update)))


@pytest.mark.parametrize("name", TWENTY)
def test_sglang_is_foretold_over_twenty_adapters(name, family_dir, tmp_path):  # noqa: F811
    """--check reports a problem exactly where SGLang refuses the adapter or its update differs
    from PEFT's; exports add the same update as PEFT."""
    model, adapter = family_dir("qwen3_gqa"), tmp_path / "adapter"
    peft = random_adapter(model, adapter, dict(r=3, lora_alpha=5) | TWENTY[name])
    try:
        compare_sglang(adapter, peft, model)
        elsewhere = (
            TWENTY[name].get("modules_to_save")
            or TWENTY[name].get("lora_bias")
            or any("visual" in module for module in updates_of(peft))
        )
        served = not elsewhere  # silently ignored
    except (Refusal, AssertionError):
        served = False
    lft(
        "export",
        adapter,
        "--model",
        model,
        "--target",
        "sglang",
        "--check",
        code=0 if served else 3,
    )
    if name in ("magnitudes", "biases"):
        assert not served
        lft(
            "export",
            adapter,
            "--model",
            model,
            "--target",
            "sglang",
            "--out",
            tmp_path / "out",
            code=3,
        )
    else:
        compare_sglang(exported(adapter, model, "sglang", tmp_path / "out").adapter, peft, model)


def test_most_of_the_twenty_are_not_served_as_they_are(family_dir, tmp_path):  # noqa: F811
    """Both results occur in the test above."""
    model = family_dir("qwen3_gqa")
    config = AutoConfig.from_pretrained(model).get_text_config()
    refused = set()
    for name in [
        "q_alone",
        "k_alone",
        "q_and_k",
        "q_and_v",
        "gate_alone",
        "up_alone",
        "o_and_down",
        "v_missing_in_one_layer",
        "magnitudes",
    ]:
        random_adapter(model, tmp_path / name, dict(r=3, lora_alpha=5) | TWENTY[name])
        try:
            sglang_updates(tmp_path / name, config)
        except Refusal:
            refused.add(name)
    assert refused == {
        "q_alone",
        "k_alone",
        "q_and_k",
        "up_alone",
        "v_missing_in_one_layer",
        "magnitudes",
    }


def random_adapter(model, path, options):
    peft = get_peft_model(
        base_of(model), LoraConfig(lora_dropout=0.0, task_type="CAUSAL_LM", **options)
    ).eval()
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for key, parameter in peft.named_parameters():
            if "lora_" in key and "magnitude" not in key:
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.2)
            elif "modules_to_save.default" in key:
                parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.05)
    peft.save_pretrained(path)
    assert json.loads((path / "adapter_config.json").read_text())["r"] == 3
    return peft
