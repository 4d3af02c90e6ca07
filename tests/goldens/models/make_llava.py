#!/usr/bin/env python3
"""Writes llava.json: what transformers and PEFT compute for tiny LLaVA models whose weights
are a hash of name and index.

No weights are stored: fill() here and fill_by_hash() in tests/models/tiny.h are the same function.
Run with the pinned peers:
  .deps/venv/bin/python tests/goldens/models/make_llava.py
"""

import json
import os

import numpy as np
import peft
import torch
import transformers
from transformers import LlavaConfig, LlavaForConditionalGeneration

IMAGE, VOCAB = 60, 64
TEXT = dict(
    model_type="llama",
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=2,
    num_attention_heads=4,
    vocab_size=VOCAB,
    max_position_embeddings=128,
    rms_norm_eps=1e-5,
)
VISION = dict(
    model_type="clip_vision_model",
    hidden_size=24,
    intermediate_size=40,
    num_hidden_layers=3,
    num_attention_heads=2,
    image_size=18,
    patch_size=6,
    projection_dim=16,
)
CASES = {
    "plain": dict(),
    "gqa_llama3_bias": dict(
        text=dict(
            num_key_value_heads=2,
            head_dim=12,
            attention_bias=True,
            mlp_bias=True,
            rope_theta=500000.0,
            rope_scaling=dict(
                rope_type="llama3",
                factor=8.0,
                low_freq_factor=1.0,
                high_freq_factor=4.0,
                original_max_position_embeddings=16,
            ),
        ),
        vision=dict(hidden_act="gelu"),
        top=dict(vision_feature_layer=[-2, 1, -1], multimodal_projector_bias=False),
    ),
    "tied_linear_full": dict(
        text=dict(
            num_key_value_heads=1,
            tie_word_embeddings=True,
            rope_parameters=dict(rope_type="linear", factor=2.5, rope_theta=1000.0),
        ),
        vision=dict(hidden_act="gelu_pytorch_tanh", image_size=20),
        top=dict(
            vision_feature_select_strategy="full",
            vision_feature_layer=0,
            projector_hidden_act="relu",
        ),
    ),
}


def fill(name, shape):
    """Uniform in [-a, a): a = 1.5 / sqrt(fan-in), 0.5 for vectors; 1 is added to the weights
    of norms. Everything in uint32."""
    key = np.uint32(2166136261)
    with np.errstate(over="ignore"):
        for byte in name.encode():
            key = (key ^ np.uint32(byte)) * np.uint32(16777619)
        count = int(np.prod(shape))
        h = np.arange(count, dtype=np.uint32) * np.uint32(2654435761) ^ key
        h = (h ^ (h >> np.uint32(15))) * np.uint32(2246822519)
        h = (h ^ (h >> np.uint32(13))) * np.uint32(3266489917)
        h = h ^ (h >> np.uint32(16))
    u = h.astype(np.float64) / 2**32 * 2 - 1
    fan_in = count // shape[0] if len(shape) > 1 else 1
    a = 1.5 / np.sqrt(fan_in) if len(shape) > 1 else 0.5
    values = u * a + (1 if "norm" in name and name.endswith("weight") else 0)
    return torch.tensor(values.reshape(shape), dtype=torch.float32)


def canonical(name):
    for old, new in (
        ("model.language_model.", "language_model.model."),
        ("lm_head.", "language_model.lm_head."),
        ("model.multi_modal", "multi_modal"),
    ):
        if name.startswith(old):
            return new + name[len(old) :]
    assert name.startswith("model.vision_tower."), name
    rest = name[len("model.vision_tower.") :]
    return "vision_tower." + ("" if rest.startswith("vision_model.") else "vision_model.") + rest


def batch_of(positions):
    """Row 0: an image between text. Row 1: text only, shorter (padded on the right).
    Row 2: two images."""
    image = [IMAGE] * positions
    rows = [
        [1, 5, 9] + image + [7, 8, 2, 11, 3],
        [1, 20, 21, 22, 2],
        [1] + image + [4] + image + [33, 34, 2],
    ]
    labels = [
        [-100] * (len(rows[0]) - 3) + rows[0][-3:],
        [-100, -100, 21, -100, 2],
        [-100] * (len(rows[2]) - 2) + rows[2][-2:],
    ]
    width = max(map(len, rows))
    ids = torch.tensor([r + [0] * (width - len(r)) for r in rows])
    label = torch.tensor([r + [-100] * (width - len(r)) for r in labels])
    mask = torch.tensor([[1] * len(r) + [0] * (width - len(r)) for r in rows])
    return ids, label, mask, [len(r) for r in rows]


def build(case):
    top = dict(
        model_type="llava",
        image_token_index=IMAGE,
        vision_feature_layer=-2,
        text_config={**TEXT, **case.get("text", {})},
        vision_config={**VISION, **case.get("vision", {})},
        **{k: v for k, v in case.get("top", {}).items() if k != "vision_feature_layer"},
    )
    top["vision_feature_layer"] = case.get("top", {}).get("vision_feature_layer", -2)
    config = LlavaConfig.from_dict(json.loads(json.dumps(top)))
    config._attn_implementation = "eager"
    model = LlavaForConditionalGeneration(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(fill(canonical(name), tuple(parameter.shape)))
    return top, model


def rounded(tensor):
    return [float(f"{x:.7g}") for x in tensor.detach().flatten().tolist()]


def logprobs_of(model, ids, labels, mask, pixels):
    logits = model(input_ids=ids, attention_mask=mask, pixel_values=pixels).logits.float()
    logs = torch.log_softmax(logits[:, :-1], -1)
    kept = labels[:, 1:] != -100
    return logits, logs[kept].gather(1, labels[:, 1:][kept][:, None])[:, 0]


def main():
    golden = dict(
        made_with=(
            f"transformers {transformers.__version__}, peft {peft.__version__}, torch "
            f"{torch.__version__}"
        ),
        cases={},
    )
    for name, case in CASES.items():
        top, model = build(case)
        v = top["vision_config"]
        positions = (v["image_size"] // v["patch_size"]) ** 2 + (
            top.get("vision_feature_select_strategy") == "full"
        )
        ids, labels, mask, lengths = batch_of(positions)
        pixels = fill("pixels", (3, 3, v["image_size"], v["image_size"]))
        logits, logprobs = logprobs_of(model, ids, labels, mask, pixels)
        entry = dict(
            config=top,
            input_ids=ids.tolist(),
            labels=labels.tolist(),
            lengths=lengths,
            logprobs=rounded(logprobs),
            last_logits=rounded(torch.stack([logits[r, n - 1] for r, n in enumerate(lengths)])),
        )

        adapted = peft.get_peft_model(
            model,
            peft.LoraConfig(
                r=3,
                lora_alpha=7,
                lora_dropout=0.0,
                use_rslora=name == "plain",
                target_modules=[
                    "q_proj",
                    "k_proj",
                    "v_proj",
                    "o_proj",
                    "out_proj",
                    "gate_proj",
                    "up_proj",
                    "down_proj",
                    "fc1",
                    "fc2",
                    "linear_1",
                    "linear_2",
                ],
            ),
        )
        adapters = {}
        for full, parameter in adapted.named_parameters():
            if "lora_" in full:
                key = canonical(
                    full.removeprefix("base_model.model.")
                    .replace(".default", "")
                    .replace(".base_layer", "")
                )
                adapters[key] = parameter
                with torch.no_grad():
                    parameter.copy_(fill(key, tuple(parameter.shape)))
        logits, logprobs = logprobs_of(adapted, ids, labels, mask, pixels)
        (-logprobs.sum()).backward()
        entry["lora_logprobs"] = rounded(logprobs)
        entry["lora_gradient_norms"] = {
            k: float(f"{p.grad.norm().item():.7g}")
            for k, p in sorted(adapters.items())
            if p.grad is not None
        }
        entry["lora_gradients"] = {
            k: rounded(p.grad)
            for k, p in sorted(adapters.items())
            if p.grad is not None
            and (
                ".layers.1." in k
                and "q_proj" in k
                or ".layers.0.mlp.down_proj" in k
                or "linear_1" in k
            )
        }
        golden["cases"][name] = entry
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "llava.json")
    with open(path, "w") as f:
        json.dump(golden, f, separators=(",", ":"))
    print(path, os.path.getsize(path))


if __name__ == "__main__":
    main()
