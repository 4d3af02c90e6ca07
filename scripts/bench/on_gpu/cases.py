"""The comparison plan: shapes, cases, sides, their models and data,
and the number of operations per step."""

import json
import random
import shutil
import struct
import tarfile

from .machine import ROOT, WORK

VISION = dict(
    hidden_size=1024,
    intermediate_size=4096,
    num_hidden_layers=24,
    num_attention_heads=16,
    image_size=336,
    patch_size=14,
    projection_dim=768,
)
SIZES = {
    "1b": dict(
        hidden_size=2048,
        intermediate_size=5632,
        num_hidden_layers=22,
        num_attention_heads=32,
        num_key_value_heads=4,
    ),
    "7b": dict(
        hidden_size=4096,
        intermediate_size=11008,
        num_hidden_layers=32,
        num_attention_heads=32,
        num_key_value_heads=32,
    ),
}
POSITIONS = (
    776,
    1076,
    2076,
)  # 576 from the image plus text; half of the text is supervised (23 % of 1076)
BUDGET = 16 * 1024

# lft's recipe fields by the suffixes after "+": lft+ckpt, lft+fp8+eager, ...
OPTIONS = {
    "ckpt": {"train.activation_checkpointing": "block"},
    "det": {"train.deterministic": "true"},
    "eager": {"train.cuda_graphs": "off"},
    "fp8": {"model.base_dtype": "fp8"},
    "nf4": {"model.base_dtype": "nf4"},
    "8bit": {"optim.name": "adamw8bit"},
    "padded": {"train.max_tokens_per_step": "0"},
}
PEERS = {
    "peft": [],
    "peft+ckpt": ["--checkpointing"],
    "peft+liger": ["--liger"],
    "unsloth": ["--unsloth"],
}
NEEDS = {
    "peft": "peft",
    "peft+ckpt": "peft",
    "peft+liger": "liger_kernel",
    "unsloth": "unsloth",
}  # measured only if installed

# The most informative cases first, since the time limit may end the list anywhere. (case, sides,
# rounds, steps; None: as requested). 16k tokens per micro-batch take 70 GB in lft at rank 128, more
# than an 80 GB card in PEFT without checkpointing; 6k tokens fit in both.
PLAN = [
    ("7b:r128:s1076:t16k:d0", "lft,peft+ckpt", 1, 20),
    ("7b:r16:s1076:t16k:d0", "lft,peft+ckpt", 1, 20),
    ("7b:r16:s776:t1:d0", "lft,peft", 1, None),
    ("7b:r128:s1076:t6k:d0", "lft,peft", 1, 20),
    ("7b:r128:s1076:t16k:d0", "lft+fp8,lft+ckpt,peft", 1, 20),
    ("7b:r16:s776:t1:d0", "lft+eager", 1, None),
    ("7b:r128:s1076:t16k:d0.05", "lft,peft+ckpt", 1, 20),
    ("7b:r128:s1076:t16k:d0", "lft,peft+ckpt", 2, 20),
    ("7b:r16:s1076:t16k:d0", "lft,peft+ckpt", 2, 20),
    ("7b:r16:s776:t1:d0", "lft,peft", 2, None),
    ("7b:r128:s1076:t16k:d0", "lft+det,lft+eager,peft+liger,unsloth", 1, 20),
    ("7b:r128:s1076:t6k:d0", "lft,peft", 2, 20),
    ("7b:r16:s1076:t16k:d0", "peft", 1, 20),
    ("7b:r128:s2076:t16k:d0", "lft,peft+ckpt", 1, 20),
    ("7b:r128:s776:t16k:d0", "lft,peft+ckpt", 1, 20),
    ("1b:r16:s1076:t16k:d0", "lft,peft,peft+ckpt", 1, 20),
    ("7b:r128:s776:t1:d0", "lft,peft", 1, 20),
    ("7b:r128:s1076:t1:d0.05", "lft,peft", 1, 20),
    ("1b:r16:s776:t1:d0", "lft,lft+eager,peft", 1, 20),
    ("1b:r128:s1076:t16k:d0.05", "lft,peft", 1, 20),
    ("7b:r16:s776:t1:d0", "lft+nf4", 1, 20),
]


def parse_case(text):
    """7b:r16:s1076:t16k:d0 -> size, rank, positions per row, rows per micro-batch (t1: one row),
    dropout."""
    size, rank, tokens, budget, dropout = text.split(":")
    positions = int(tokens[1:])
    rows = 1 if budget == "t1" else max(1, int(budget[1:].replace("k", "")) * 1024 // positions)
    return {
        "case": text,
        "size": size,
        "rank": int(rank[1:]),
        "tokens": positions,
        "batch": rows,
        "dropout": float(dropout[1:]),
        "supervised": round(0.5 * (positions - 576)),
    }


def useful_flops(case):
    """Operations of a step: 4 N for the frozen layers (no weight gradient), LoRA forward and
    backward, causal attention, the vision tower's forward pass and the head on supervised rows.
    Recomputation is not counted."""
    t = SIZES[case["size"]]
    d, inner, layers = t["hidden_size"], t["intermediate_size"], t["num_hidden_layers"]
    kv = d * t["num_key_value_heads"] // t["num_attention_heads"]
    per_token = layers * (
        4 * (2 * d * d + 2 * d * kv + 3 * d * inner)
        + 6 * case["rank"] * (2 * (d + d) + 2 * (d + kv) + 3 * (d + inner))
    )
    attention = 3.5 * 2 * case["tokens"] ** 2 * d * layers
    vision = 23 * (2 * 577 * (4 * 1024**2 + 2 * 1024 * 4096) + 4 * 577**2 * 1024)
    head = 4 * d * 32064 * case["supervised"]
    return case["batch"] * (case["tokens"] * per_token + attention + vision + head)


def make_model(size):
    """config.json and the quickstart's tokenizer; both sides initialise their own weights."""
    path = WORK / size
    path.mkdir(parents=True, exist_ok=True)
    token = json.loads((ROOT / "recipes/quickstart/model/config.json").read_text())[
        "image_token_index"
    ]
    text = dict(
        model_type="llama",
        vocab_size=32064,
        max_position_embeddings=4096,
        rms_norm_eps=1e-5,
        rope_theta=10000.0,
        hidden_act="silu",
        tie_word_embeddings=False,
        **SIZES[size],
    )
    config = dict(
        architectures=["LlavaForConditionalGeneration"],
        model_type="llava",
        image_token_index=token,
        vision_feature_layer=-2,
        vision_feature_select_strategy="default",
        projector_hidden_act="gelu",
        torch_dtype="bfloat16",
        text_config=text,
        vision_config=dict(
            model_type="clip_vision_model",
            hidden_act="quick_gelu",
            layer_norm_eps=1e-5,
            num_channels=3,
            **VISION,
        ),
    )
    (path / "config.json").write_text(json.dumps(config, indent=2))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(ROOT / "recipes/quickstart/model" / name, path)
    return path


def bmp(size, pixels):
    """A square 24-bit BMP whose size is divisible by four."""
    return (
        b"BM"
        + struct.pack(
            "<IIIIiiHHIIiiII",
            54 + len(pixels),
            0,
            54,
            40,
            size,
            size,
            1,
            24,
            0,
            len(pixels),
            2835,
            2835,
            0,
            0,
        )
        + pixels
    )


def make_rows(positions):
    """LLaVA JSON over noise images, with the number of rows of a micro-batch of 16k tokens,
    all of the same length. One word is one token; <s>, the mark's prefix and </s> add three."""
    text, supervised = positions - 576, round(0.5 * (positions - 576))
    data = WORK / f"rows-{positions}"
    data.mkdir(parents=True, exist_ok=True)
    words, rng = ["level", "upright", "falling", "rising", "line", "arc", "loop"], random.Random(0)
    entries = [
        {
            "id": str(i),
            "image": f"{i % 4}.bmp",
            "conversations": [
                {
                    "from": "human",
                    "value": "<image> " + " ".join(rng.choices(words, k=text - supervised - 2)),
                },
                {"from": "gpt", "value": " " + " ".join(rng.choices(words, k=supervised - 1))},
            ],
        }
        for i in range(BUDGET // positions)
    ]
    (data / "rows.json").write_text(json.dumps(entries))
    for i in range(4):
        (data / f"{i}.bmp").write_bytes(bmp(336, random.Random(i).randbytes(336 * 336 * 3)))
    return data


def packed(build, name):
    """Prepared rows of that name in a build written by scripts/gpu --pack;
    None for other builds."""
    folder, archive = build / "shards", build / "shards.tar.xz"
    if archive.exists() and not folder.exists():
        draft = build / "shards.part"
        shutil.rmtree(draft, ignore_errors=True)
        with tarfile.open(archive) as tar:
            tar.extractall(draft)
        draft.rename(folder)
    return folder / name if (folder / name).exists() else None


def shards(build, positions):
    """Prepared rows: those of a pack, otherwise those written by `scripts/bench/gpu data`."""
    return packed(build, str(positions)) or WORK / f"shards-{positions}"
