"""Writes the quickstart base before its pre-training: a small LLaVA with random weights,
its tokenizer and processor files, in HF layout.

  base.py OUT_DIR [--seed S]

The tokenizer is a Llama-style BPE with byte fallback, so any text can be encoded.
train.sh in this folder turns the result into recipes/quickstart/model with lft itself.
"""

import argparse
import json
import pathlib

import numpy as np
from safetensors.numpy import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, processors, trainers

from draw import COLOURS, COLUMNS, NUMBER, ROWS, SHAPES, WORDS

VISION = dict(
    hidden_size=128,
    intermediate_size=512,
    num_hidden_layers=5,
    num_attention_heads=4,
    image_size=32,
    patch_size=8,
    projection_dim=128,
)
TEXT = dict(
    hidden_size=192,
    intermediate_size=512,
    num_hidden_layers=4,
    num_attention_heads=6,
    num_key_value_heads=6,
    max_position_embeddings=1024,
    vocab_size=640,
)
CORPUS = [
    "A chat between a curious user and an artificial intelligence assistant. "
    "The assistant gives helpful, detailed, and polite answers to the user's questions.",
    "USER: ASSISTANT: Which shape is this? Which colour is it? Where is it? Describe the shape. "
    "How many loops? How many lines? How many strokes?",
    "Which stroke is this? Which way does the line go? Where does the arc open? List the strokes. "
    "Which digit is this? What is in the image?",
    "line arc loop level upright falling rising",
    " ".join([*COLOURS, *SHAPES, *ROWS, *COLUMNS, *NUMBER]),
    "0 1 2 3 4 5 6 7 8 9",
    " ".join(WORDS),
    "Map the ink. # o .",
    "Write five as a number. Which number follows 3? Which number comes before 3?",
]


def tokenizer(out):
    tok = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tok.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tok.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    special = ["<unk>", "<s>", "</s>"]
    trainer = trainers.BpeTrainer(
        vocab_size=TEXT["vocab_size"] - 2,
        special_tokens=special + [f"<0x{b:02X}>" for b in range(256)],
        show_progress=False,
    )
    tok.train_from_iterator(" ".join(CORPUS).split(), trainer)
    data = json.loads(tok.to_str())
    # The trainer marks every special token the same way; the byte tokens are plain vocabulary
    # in a Llama tokenizer.
    data["added_tokens"] = [entry for entry in data["added_tokens"] if entry["content"] in special]
    tok = Tokenizer.from_str(json.dumps(data))
    tok.add_special_tokens(
        [
            AddedToken("<image>", special=True, normalized=False),
            AddedToken("<pad>", special=True, normalized=False),
        ]
    )
    tok.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)]
    )
    tok.save(str(out / "tokenizer.json"))
    (out / "tokenizer_config.json").write_text(
        json.dumps(
            {
                "tokenizer_class": "LlamaTokenizer",
                "bos_token": "<s>",
                "eos_token": "</s>",
                "unk_token": "<unk>",
                "pad_token": "<pad>",
                "image_token": "<image>",
                "model_max_length": 1024,
                "legacy": False,
                "processor_class": "LlavaProcessor",
            },
            indent=2,
        )
        + "\n"
    )
    return tok.token_to_id("<image>"), tok.token_to_id("<pad>"), tok.get_vocab_size()


def weights(rng):
    """Normal(0, 0.02) matrices, ones and zeros for norms and biases,
    under the names of an HF checkpoint."""
    tensors = {}
    put = lambda name, *shape: tensors.__setitem__(
        name, rng.normal(0, 0.02, shape).astype(np.float32)
    )
    linear = lambda name, i, o, bias: (
        put(f"{name}.weight", o, i),
        bias and tensors.__setitem__(f"{name}.bias", np.zeros(o, np.float32)),
    )
    norm = lambda name, n, bias: (
        tensors.__setitem__(f"{name}.weight", np.ones(n, np.float32)),
        bias and tensors.__setitem__(f"{name}.bias", np.zeros(n, np.float32)),
    )
    h, vision = VISION["hidden_size"], "vision_tower.vision_model"
    put(f"{vision}.embeddings.class_embedding", h)
    put(
        f"{vision}.embeddings.patch_embedding.weight",
        h,
        3,
        VISION["patch_size"],
        VISION["patch_size"],
    )
    put(
        f"{vision}.embeddings.position_embedding.weight",
        (VISION["image_size"] // VISION["patch_size"]) ** 2 + 1,
        h,
    )
    norm(f"{vision}.pre_layrnorm", h, True), norm(f"{vision}.post_layernorm", h, True)
    for layer in range(VISION["num_hidden_layers"]):
        at = f"{vision}.encoder.layers.{layer}"
        for name in "qkv":
            linear(f"{at}.self_attn.{name}_proj", h, h, True)
        linear(f"{at}.self_attn.out_proj", h, h, True)
        (
            linear(f"{at}.mlp.fc1", h, VISION["intermediate_size"], True),
            linear(f"{at}.mlp.fc2", VISION["intermediate_size"], h, True),
        )
        norm(f"{at}.layer_norm1", h, True), norm(f"{at}.layer_norm2", h, True)
    d, m = TEXT["hidden_size"], TEXT["intermediate_size"]
    (
        linear("multi_modal_projector.linear_1", h, d, True),
        linear("multi_modal_projector.linear_2", d, d, True),
    )
    put("language_model.model.embed_tokens.weight", TEXT["vocab_size"], d)
    for layer in range(TEXT["num_hidden_layers"]):
        at = f"language_model.model.layers.{layer}"
        for name in "qkvo":
            linear(f"{at}.self_attn.{name}_proj", d, d, False)
        (
            linear(f"{at}.mlp.gate_proj", d, m, False),
            linear(f"{at}.mlp.up_proj", d, m, False),
            linear(f"{at}.mlp.down_proj", m, d, False),
        )
        norm(f"{at}.input_layernorm", d, False), norm(f"{at}.post_attention_layernorm", d, False)
    norm("language_model.model.norm", d, False)
    put("language_model.lm_head.weight", TEXT["vocab_size"], d)
    return tensors


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    image, pad, vocab = tokenizer(args.out)
    assert vocab <= TEXT["vocab_size"], vocab
    config = {
        "architectures": ["LlavaForConditionalGeneration"],
        "model_type": "llava",
        "image_token_index": image,
        "pad_token_id": pad,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "ignore_index": -100,
        "projector_hidden_act": "gelu",
        "vision_feature_layer": -2,
        "vision_feature_select_strategy": "default",
        "tie_word_embeddings": False,
        "torch_dtype": "float32",
        "image_seq_length": (VISION["image_size"] // VISION["patch_size"]) ** 2,
        "text_config": {
            "model_type": "llama",
            "rms_norm_eps": 1e-5,
            "bos_token_id": 1,
            "eos_token_id": 2,
            **TEXT,
        },
        "vision_config": {"model_type": "clip_vision_model", "hidden_act": "quick_gelu", **VISION},
    }
    size = {"height": VISION["image_size"], "width": VISION["image_size"]}
    image_processor = {
        "image_processor_type": "CLIPImageProcessor",
        "do_convert_rgb": True,
        "do_resize": True,
        "size": {"shortest_edge": VISION["image_size"]},
        "resample": 3,
        "do_center_crop": True,
        "crop_size": size,
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": [0.48145466, 0.4578275, 0.40821073],
        "image_std": [0.26862954, 0.26130258, 0.27577711],
    }
    processor = {
        "processor_class": "LlavaProcessor",
        "image_token": "<image>",
        "patch_size": VISION["patch_size"],
        "num_additional_image_tokens": 1,
        "vision_feature_select_strategy": "default",
    }
    generation = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": pad}
    for name, value in (
        ("config", config),
        ("preprocessor_config", image_processor),
        ("processor_config", processor),
        ("generation_config", generation),
    ):
        (args.out / f"{name}.json").write_text(json.dumps(value, indent=2) + "\n")
    save_file(
        weights(np.random.default_rng(args.seed)),
        args.out / "model.safetensors",
        metadata={"format": "pt"},
    )


if __name__ == "__main__":
    main()
