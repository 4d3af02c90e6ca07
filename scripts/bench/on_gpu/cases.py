"""The comparison plan: shapes, cases, sides, their models and data,
and the number of operations per step."""

import json
import random
import shutil
import struct
import tarfile

from .machine import ROOT, WORK

# Positions of a row's image, and its pixels along a side; the language model's shape; the published
# vocabulary size; the vision tower.
CLIP = dict(
    model_type="clip_vision_model",
    hidden_act="quick_gelu",
    layer_norm_eps=1e-5,
    num_channels=3,
    hidden_size=1024,
    intermediate_size=4096,
    num_hidden_layers=24,
    num_attention_heads=16,
    image_size=336,
    patch_size=14,
    projection_dim=768,
)
LLAVA = dict(family="llava", vocab=32064, image=576, pixels=336, vision=CLIP)
QWEN25_VL_7B = dict(
    family="qwen2_5_vl",
    vocab=152064,
    image=256,
    pixels=448,
    mrope=[16, 24, 24],
    text=dict(
        hidden_size=3584,
        intermediate_size=18944,
        num_hidden_layers=28,
        num_attention_heads=28,
        num_key_value_heads=4,
    ),
    vision=dict(
        depth=32,
        hidden_size=1280,
        intermediate_size=3420,
        num_heads=16,
        patch_size=14,
        temporal_patch_size=2,
        spatial_merge_size=2,
        out_hidden_size=3584,
        window_size=112,
        fullatt_block_indexes=[7, 15, 23, 31],
    ),
)
SIZES = {
    "1b": dict(
        LLAVA,
        text=dict(
            hidden_size=2048,
            intermediate_size=5632,
            num_hidden_layers=22,
            num_attention_heads=32,
            num_key_value_heads=4,
        ),
    ),
    "7b": dict(
        LLAVA,
        text=dict(
            hidden_size=4096,
            intermediate_size=11008,
            num_hidden_layers=32,
            num_attention_heads=32,
            num_key_value_heads=32,
        ),
    ),
    "qwen25vl-7b": QWEN25_VL_7B,
    "qwen25-7b": dict(QWEN25_VL_7B, image=0),  # rows of text
    "qwen3vl-8b": dict(
        family="qwen3_vl",
        vocab=151936,
        image=256,
        pixels=512,
        mrope=[24, 20, 20],
        text=dict(
            hidden_size=4096,
            intermediate_size=12288,
            num_hidden_layers=36,
            num_attention_heads=32,
            num_key_value_heads=8,
            head_dim=128,
        ),
        vision=dict(
            depth=27,
            hidden_size=1152,
            intermediate_size=4304,
            num_heads=16,
            patch_size=16,
            temporal_patch_size=2,
            spatial_merge_size=2,
            out_hidden_size=4096,
            num_position_embeddings=2304,
            deepstack_visual_indexes=[8, 16, 24],
        ),
    ),
}
# (size whose tokenizer and images the prepared rows have, positions of a row); half of the text is
# supervised (23 % of LLaVA's 1076 positions)
ROWS = [
    ("7b", 776),
    ("7b", 1076),
    ("7b", 2076),
    ("qwen25vl-7b", 1024),
    ("qwen3vl-8b", 1024),
    ("qwen25-7b", 4096),
]
BUDGET = 16 * 1024
# Tokens of a row's question that are no words of it: <s> and the image's marks.
FRAME = {
    ("llava", True): 2,
    ("qwen2_5_vl", True): 4,
    ("qwen2_5_vl", False): 1,
    ("qwen3_vl", True): 4,
}

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
    ("qwen25-7b:r16:s4096:t16k:d0", "lft,peft+ckpt,peft+liger", 1, 12),
    ("qwen25vl-7b:r16:s1024:t16k:d0", "lft,peft+ckpt", 1, 12),
    ("qwen3vl-8b:r16:s1024:t16k:d0", "lft,peft+ckpt", 1, 12),
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
        "supervised": supervised_of(size, positions),
    }


def supervised_of(size, positions):
    return round(0.5 * (positions - SIZES[size]["image"]))


def vision_flops(size):
    """Operations of the frozen tower's forward pass over one image, without projector or merger."""
    shape = SIZES[size]
    if shape["image"] == 0:
        return 0
    v = shape["vision"]
    if shape["family"] == "llava":
        return 23 * (2 * 577 * (4 * 1024**2 + 2 * 1024 * 4096) + 4 * 577**2 * 1024)
    patches, width, inner = 4 * shape["image"], v["hidden_size"], v["intermediate_size"]
    gated = shape["family"] == "qwen2_5_vl"  # and attends in windows, except in some layers
    seen = len(v["fullatt_block_indexes"]) if gated else v["depth"]
    products = v["depth"] * 2 * patches * (4 * width**2 + (3 if gated else 2) * width * inner)
    return products + seen * 4 * patches**2 * width


def modules(shape):
    """(inputs, outputs) of the linear layers of a decoder layer."""
    t = shape["text"]
    d, inner = t["hidden_size"], t["intermediate_size"]
    head = t.get("head_dim", d // t["num_attention_heads"])
    q, kv = head * t["num_attention_heads"], head * t["num_key_value_heads"]
    return [(d, q), (d, kv), (d, kv), (q, d), (d, inner), (d, inner), (inner, d)]


def useful_flops(case):
    """Operations of a step: 4 N for the frozen layers (no weight gradient), LoRA forward and
    backward, causal attention, the vision tower's forward pass and the head on supervised rows.
    Recomputation is not counted."""
    shape = SIZES[case["size"]]
    layers, linear = shape["text"]["num_hidden_layers"], modules(shape)
    d, q = linear[0]
    per_token = layers * sum(4 * i * o + 6 * case["rank"] * (i + o) for i, o in linear)
    attention = 3.5 * 2 * case["tokens"] ** 2 * q * layers
    head = 4 * d * shape["vocab"] * case["supervised"]
    vision = vision_flops(case["size"])
    return case["batch"] * (case["tokens"] * per_token + attention + vision + head)


QWEN_TOKENS = {
    "vision_start": "<|vision_start|>",
    "vision_end": "<|vision_end|>",
    "image": "<|image_pad|>",
    "video": "<|video_pad|>",
}
QWEN_IMAGES = dict(
    image_processor_type="Qwen2VLImageProcessor",
    temporal_patch_size=2,
    merge_size=2,
    image_mean=[0.5, 0.5, 0.5],
    image_std=[0.5, 0.5, 0.5],
)


def llava_config(shape, tokenizer):
    return dict(
        architectures=["LlavaForConditionalGeneration"],
        model_type="llava",
        image_token_index=token_id(tokenizer, "<image>"),
        vision_feature_layer=-2,
        vision_feature_select_strategy="default",
        projector_hidden_act="gelu",
        text_config=dict(
            shape["text"],
            model_type="llama",
            vocab_size=shape["vocab"],
            max_position_embeddings=4096,
            rms_norm_eps=1e-5,
            rope_theta=10000.0,
            hidden_act="silu",
            tie_word_embeddings=False,
        ),
        vision_config=shape["vision"],
    )


def qwen_config(shape, tokenizer):
    rope = dict(rope_type="default", rope_theta=1e6, mrope_section=shape["mrope"])
    if shape["family"] == "qwen3_vl":
        rope["mrope_interleaved"] = True
    name = {"qwen2_5_vl": "Qwen2_5_VL", "qwen3_vl": "Qwen3VL"}[shape["family"]]
    return dict(
        architectures=[f"{name}ForConditionalGeneration"],
        model_type=shape["family"],
        text_config=dict(
            shape["text"],
            model_type=f"{shape['family']}_text",
            vocab_size=shape["vocab"],
            max_position_embeddings=32768,
            rope_parameters=rope,
            tie_word_embeddings=False,
            eos_token_id=token_id(tokenizer, "</s>"),
        ),
        vision_config=dict(shape["vision"], model_type=shape["family"]),
        tie_word_embeddings=False,
        **{f"{key}_token_id": token_id(tokenizer, token) for key, token in QWEN_TOKENS.items()},
    )


def token_id(tokenizer, text):
    return next(each["id"] for each in tokenizer["added_tokens"] if each["content"] == text)


def make_model(size):
    """config.json and the quickstart's tokenizer, with Qwen's special tokens where the shape is
    one of Qwen's; both sides initialise their own weights."""
    shape, path, source = SIZES[size], WORK / size, ROOT / "recipes/quickstart/model"
    path.mkdir(parents=True, exist_ok=True)
    tokenizer = json.loads((source / "tokenizer.json").read_text())
    if shape["family"] != "llava":
        plain = tokenizer["added_tokens"][0]
        first = max(each["id"] for each in tokenizer["added_tokens"]) + 1
        for i, token in enumerate(["<|im_start|>", "<|im_end|>", *QWEN_TOKENS.values()]):
            tokenizer["added_tokens"].append(dict(plain, id=first + i, content=token))
        images = dict(QWEN_IMAGES, patch_size=shape["vision"]["patch_size"])
        images["min_pixels"], images["max_pixels"] = 3136, shape["pixels"] ** 2
        (path / "preprocessor_config.json").write_text(json.dumps(images, indent=2))
    (path / "tokenizer.json").write_text(json.dumps(tokenizer))
    shutil.copy(source / "tokenizer_config.json", path)
    config = (llava_config if shape["family"] == "llava" else qwen_config)(shape, tokenizer)
    (path / "config.json").write_text(json.dumps(dict(config, dtype="bfloat16"), indent=2))
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


def make_rows(size, positions):
    """LLaVA JSON over noise images, with the number of rows of a micro-batch of 16k tokens,
    all of the same length. One word is one token; the tokens of the template are added."""
    shape, supervised = SIZES[size], supervised_of(size, positions)
    asked = positions - shape["image"] - supervised - FRAME[shape["family"], shape["image"] > 0]
    data = WORK / f"rows-{size}-{positions}"
    data.mkdir(parents=True, exist_ok=True)
    words, rng = ["level", "upright", "falling", "rising", "line", "arc", "loop"], random.Random(0)
    entries = []
    for i in range(BUDGET // positions):
        question, answer = rng.choices(words, k=asked), rng.choices(words, k=supervised - 1)
        image = {"image": f"{i % 4}.bmp"} if shape["image"] else {}
        mark = ["<image>"] if image else []
        turns = [
            {"from": "human", "value": " ".join([*mark, *question])},
            {"from": "gpt", "value": " " + " ".join(answer)},
        ]
        entries.append({"id": str(i), **image, "conversations": turns})
    (data / "rows.json").write_text(json.dumps(entries))
    for i in range(4 if shape["image"] else 0):
        side = shape["pixels"]
        (data / f"{i}.bmp").write_bytes(bmp(side, random.Random(i).randbytes(side * side * 3)))
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


def shards(build, size, positions):
    """Prepared rows: those of a pack, otherwise those written by `scripts/bench/gpu data`."""
    size = "7b" if SIZES[size]["family"] == "llava" else size
    name = f"{size}-{positions}"
    return packed(build, name) or WORK / f"shards-{name}"
