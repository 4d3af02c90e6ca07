"""Tiny random LLaVA checkpoints on disk, one for each corner case of architecture and file layout,
with real tokenizers and processors.

Seeded. Weights are scaled so that logits spread over a few nats: a wrong layer is visible at once.
"""

import copy
import json
import pathlib

import torch
from safetensors.torch import save_file
from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from transformers import (
    AutoProcessor,
    CLIPImageProcessor,
    CLIPVisionConfig,
    LlamaConfig,
    LlavaConfig,
    LlavaForConditionalGeneration,
)

CORPUS = """A chat between a curious user and an artificial intelligence assistant. \
The assistant gives helpful, detailed, and
polite answers to the user's questions. USER: What do you see in the picture? \
ASSISTANT: The picture shows a cup of
coffee on a wooden table. How many people are there in this photograph? \
There is one person, an astronaut in an orange
suit. Is the cat looking at the camera? Yes, the cat is looking at us. \
What colour is the flower? The flower is red.
Describe the image in detail. Read the number. Where was this taken? \
It was taken in China, in a temple by the river.
1 2 3 4 5 6 7 8 9 0 é ü ñ ß 中 文 def main(): return 0; {"key": [1, 2]} \
www.example.org 3.14159, 100% (ok) #1 a_b-c"""

# Every config key that is not at transformers' default, for each checkpoint.
# "layout" and below are about files, not about maths.
SPECS = {
    # As many keys omitted as possible: the reader's defaults apply. MHA, quick_gelu, old spelling
    # of everything, SentencePiece-style normaliser.
    "plain": dict(
        text=dict(
            hidden_size=48,
            intermediate_size=96,
            num_hidden_layers=3,
            num_attention_heads=4,
            num_key_value_heads=4,
        ),
        vision=dict(
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=3,
            num_attention_heads=4,
            image_size=28,
            patch_size=7,
        ),
        layout="old",
        prefix="normalizer",
        silent=True,
    ),
    "gqa_tied": dict(
        text=dict(
            hidden_size=64,
            intermediate_size=112,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            rms_norm_eps=1e-5,
        ),
        vision=dict(
            hidden_size=32,
            intermediate_size=48,
            num_hidden_layers=3,
            num_attention_heads=2,
            image_size=42,
            patch_size=14,
            layer_norm_eps=1e-6,
        ),
        tie=True,
        layout="new",
        prefix="first",
        tokenizer_class="LlamaTokenizer",
    ),
    "head_dim_bias": dict(
        text=dict(
            hidden_size=48,
            intermediate_size=80,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=20,
            attention_bias=True,
            mlp_bias=True,
        ),
        vision=dict(
            hidden_size=48,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            image_size=28,
            patch_size=14,
            hidden_act="gelu",
        ),
        layer=-1,
        layout="new",
        shards=True,
        prefix="always",
    ),
    "llama3_rope": dict(
        text=dict(
            hidden_size=64,
            intermediate_size=96,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=1,
            rope_parameters=dict(
                rope_type="llama3",
                rope_theta=500000.0,
                factor=8.0,
                low_freq_factor=1.0,
                high_freq_factor=4.0,
                original_max_position_embeddings=64,
            ),
        ),
        vision=dict(
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=4,
            num_attention_heads=4,
            image_size=28,
            patch_size=7,
        ),
        image=dict(image_mean=[0.5, 0.4, 0.3], image_std=[0.2, 0.3, 0.25]),
        layer=[-2, -1, 1],
        layout="new",
        dtype=torch.bfloat16,
        prefix="never",
    ),
    "linear_rope_full": dict(
        text=dict(
            hidden_size=48,
            intermediate_size=96,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=4,
            rope_parameters=dict(rope_type="linear", rope_theta=20000.0, factor=4.0),
        ),
        vision=dict(
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=3,
            num_attention_heads=4,
            image_size=56,
            patch_size=14,
            hidden_act="gelu",
        ),
        select="full",
        layout="old",
        dtype=torch.float16,
        shards=True,
        prefix="first",
    ),
    "projector_nobias": dict(
        text=dict(
            hidden_size=48,
            intermediate_size=96,
            num_hidden_layers=2,
            num_attention_heads=6,
            num_key_value_heads=3,
            rope_parameters=dict(rope_type="default", rope_theta=1000.0),
        ),
        vision=dict(
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=3,
            num_attention_heads=4,
            image_size=30,
            patch_size=7,
        ),
        layer=[1, -2],
        projector_bias=False,
        layout="old",
        prefix="normalizer",
        tokenizer_class="LlamaTokenizer",
    ),
    # The tokenizer is a SentencePiece model with a tokenizer.json next to it, as LLaVA-1.5's.
    "sentencepiece": dict(
        text=dict(
            hidden_size=48,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=4,
        ),
        vision=dict(
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            image_size=28,
            patch_size=7,
        ),
        layout="old",
        prefix="normalizer",
        sentencepiece=True,
    ),
}

# 126 MB in BF16, half of it embeddings and LM head: for measurements, not comparisons.
# Not among SPECS.
LARGE = {
    "cpu63m": dict(
        text=dict(
            hidden_size=512,
            intermediate_size=1376,
            num_hidden_layers=8,
            num_attention_heads=8,
            num_key_value_heads=8,
        ),
        vision=dict(
            hidden_size=256,
            intermediate_size=1024,
            num_hidden_layers=6,
            num_attention_heads=4,
            image_size=224,
            patch_size=14,
        ),
        vocab=32064,
        layout="old",
        dtype=torch.bfloat16,
        prefix="normalizer",
    ),
}


def train_bpe():
    """Vocabulary and merges of a Llama-style BPE: <unk> <s> </s>, 256 bytes, letters, words;
    and runs of spaces, as in Llama."""
    special = ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(256)]
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")
    trainer = trainers.BpeTrainer(
        vocab_size=560, special_tokens=special, show_progress=False, min_frequency=2
    )
    tokenizer.train_from_iterator(CORPUS.splitlines(), trainer)
    model = json.loads(tokenizer.to_str())["model"]
    vocab, merges = model["vocab"], [tuple(merge) for merge in model["merges"]]
    for left, right in [("▁", "▁"), ("▁▁", "▁▁")]:
        merges.append((left, right))
        vocab[left + right] = len(vocab)
    return vocab, merges


def train_sentencepiece(path):
    """The same from the sentencepiece library: writes tokenizer.model, returns vocabulary
    and merges (ordered by score)."""
    import sentencepiece

    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS.splitlines()),
        model_prefix=str(path / "tokenizer"),
        model_type="bpe",
        vocab_size=480,
        byte_fallback=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        character_coverage=1.0,
        add_dummy_prefix=True,
        minloglevel=2,
        num_threads=1,
    )
    (path / "tokenizer.vocab").unlink()
    model = sentencepiece.SentencePieceProcessor(model_file=str(path / "tokenizer.model"))
    vocab = {model.id_to_piece(i): i for i in range(model.get_piece_size())}
    merges = []
    for piece, rank in vocab.items():
        for cut in range(1, len(piece)):
            if (
                piece[:cut] in vocab
                and piece[cut:] in vocab
                and not model.is_byte(rank)
                and not model.is_control(rank)
            ):
                merges.append(
                    (rank, vocab[piece[:cut]], vocab[piece[cut:]], piece[:cut], piece[cut:])
                )
    return vocab, [(left, right) for _, _, _, left, right in sorted(merges)]


def write_tokenizer(path, spec):
    """tokenizer.json, tokenizer_config.json (and tokenizer.model); returns the vocabulary size
    with <image> and <pad>."""
    vocab, merges = train_sentencepiece(path) if spec.get("sentencepiece") else train_bpe()
    tokenizer = Tokenizer(
        models.BPE(vocab=vocab, merges=merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True)
    )
    strip = [decoders.Strip(content=" ", left=1)]
    if spec["prefix"] == "normalizer":
        tokenizer.normalizer = normalizers.Sequence(
            [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
        )
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(
            replacement="▁", prepend_scheme=spec["prefix"], split=False
        )
        strip = strip if spec["prefix"] != "never" else []
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()] + strip
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)]
    )
    for token in ["<unk>", "<s>", "</s>", "<image>", "<pad>"]:
        tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False)])
    tokenizer.save(str(path / "tokenizer.json"))
    config = dict(
        tokenizer_class=spec.get("tokenizer_class", "PreTrainedTokenizerFast"),
        bos_token="<s>",
        eos_token="</s>",
        unk_token="<unk>",
        pad_token="<pad>",
        image_token="<image>",
        extra_special_tokens={"image_token": "<image>"},
        padding_side="left",
        clean_up_tokenization_spaces=False,
        model_max_length=1000000000000000019884624838656,
        legacy=spec["prefix"] != "first",
    )
    write_json(path / "tokenizer_config.json", config)
    return tokenizer.get_vocab_size()


def write_processor(path, spec):
    """preprocessor_config.json and processor_config.json;
    in the new layout the former is inside the latter."""
    size, patch = spec["vision"]["image_size"], spec["vision"]["patch_size"]
    CLIPImageProcessor(
        size={"shortest_edge": size},
        crop_size={"height": size, "width": size},
        **spec.get("image", {}),
    ).save_pretrained(path)
    preprocessor = json.loads((path / "preprocessor_config.json").read_text())
    preprocessor["processor_class"] = "LlavaProcessor"
    write_json(path / "preprocessor_config.json", preprocessor)
    write_json(
        path / "processor_config.json",
        dict(
            image_token="<image>",
            num_additional_image_tokens=1,
            patch_size=patch,
            processor_class="LlavaProcessor",
            vision_feature_select_strategy=spec.get("select", "default"),
        ),
    )
    if spec["layout"] == "new":
        processor = AutoProcessor.from_pretrained(path)
        for file in [
            "preprocessor_config.json",
            "processor_config.json",
            "tokenizer.json",
            "tokenizer_config.json",
        ]:
            (path / file).unlink()
        processor.save_pretrained(path)


def random_weights(model, seed, image_token):
    """Unit-variance activations at every depth: norms near 1, matrices at 1/sqrt(fan in),
    logits with a deviation near 2.

    </s> is likely enough to end some answers; <image>, <pad> and the rows after them
    are never the most likely.
    """
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if "norm" in name or "layrnorm" in name:
                parameter.copy_(noise * 0.1 + (1 if name.endswith("weight") else 0))
            elif parameter.dim() == 1:
                parameter.copy_(noise * 0.2)
            else:
                fan_in = parameter[0].numel()
                parameter.copy_(
                    noise * ((2.0 if "embed" in name or "lm_head" in name else 1.0) / fan_in**0.5)
                )
        for head in {model.lm_head.weight, model.get_input_embeddings().weight}:
            head[image_token:] = 0
        model.lm_head.weight[2] *= 1.6
        if model.config.tie_word_embeddings:  # otherwise a token would always predict itself
            model.lm_head.weight *= 0.25
            model.model.language_model.norm.weight *= 4


def old_name(name):
    """In-memory name of transformers 5 -> the name that released LLaVA-1.5 files use."""
    if name == "lm_head.weight":
        return "language_model.lm_head.weight"
    name = name.removeprefix("model.")
    if name.startswith("language_model."):
        return name.replace("language_model.", "language_model.model.", 1)
    if name.startswith("vision_tower.") and not name.startswith("vision_tower.vision_model."):
        return name.replace("vision_tower.", "vision_tower.vision_model.", 1)
    return name


def old_config(config, spec, vocab):
    """config.json as written by transformers 4;
    with `silent`, without any key whose default is correct."""
    text = dict(spec["text"], model_type="llama", vocab_size=vocab)
    rope = text.pop("rope_parameters", None)
    if rope is not None:
        text["rope_theta"] = rope["rope_theta"]
        if rope["rope_type"] != "default":
            text["rope_scaling"] = dict(type=rope["rope_type"], factor=rope["factor"])
    if spec.get("silent"):
        text.pop("num_key_value_heads")
    out = dict(
        architectures=["LlavaForConditionalGeneration"],
        model_type="llava",
        ignore_index=-100,
        image_token_index=config.image_token_id,
        pad_token_id=config.image_token_id + 1,
        text_config=text,
        vision_config=dict(spec["vision"], model_type="clip_vision_model"),
        torch_dtype=str(spec.get("dtype", torch.float32)).removeprefix("torch."),
    )
    if not spec.get("silent"):
        out |= dict(
            vision_feature_layer=spec.get("layer", -2),
            vision_feature_select_strategy=spec.get("select", "default"),
            projector_hidden_act="gelu",
            multimodal_projector_bias=spec.get("projector_bias", True),
            tie_word_embeddings=False,
        )
    return out


def write_old(path, model, config, spec, vocab):
    tensors = {
        old_name(name): tensor.contiguous().clone()
        for name, tensor in model.state_dict().items()
        if "position_ids" not in name
    }
    if not spec.get("shards"):
        save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})
    else:
        names = sorted(tensors)
        parts = [names[0::2], names[1::2]]
        files = [f"model-{i + 1:05d}-of-00002.safetensors" for i in range(2)]
        for file, part in zip(files, parts):
            save_file(
                {name: tensors[name] for name in part}, path / file, metadata={"format": "pt"}
            )
        write_json(
            path / "model.safetensors.index.json",
            dict(
                metadata=dict(
                    total_size=sum(t.numel() * t.element_size() for t in tensors.values())
                ),
                weight_map={name: file for file, part in zip(files, parts) for name in part},
            ),
        )
    write_json(path / "config.json", old_config(config, spec, vocab))
    write_json(
        path / "generation_config.json",
        dict(bos_token_id=1, eos_token_id=2, pad_token_id=config.image_token_id + 1),
    )


def write_json(path, value):
    pathlib.Path(path).write_text(json.dumps(value, indent=2) + "\n")


def build(name, path, seed=0):
    """Writes checkpoint `name` of SPECS or LARGE into `path` (an HF model directory)
    and returns the path."""
    spec = copy.deepcopy((SPECS | LARGE)[name])
    path = pathlib.Path(path)
    path.mkdir(parents=True)
    tokens = write_tokenizer(path, spec)
    vocab = spec.get("vocab", (tokens + 63) // 64 * 64)
    write_processor(path, spec)
    text = LlamaConfig(
        vocab_size=vocab,
        max_position_embeddings=512,
        tie_word_embeddings=spec.get("tie", False),
        **spec["text"],
    )
    spec["text"]["max_position_embeddings"] = 512
    config = LlavaConfig(
        text_config=text,
        vision_config=CLIPVisionConfig(projection_dim=16, **spec["vision"]),
        image_token_index=tokens - 2,
        pad_token_id=tokens - 1,
        vision_feature_layer=spec.get("layer", -2),
        tie_word_embeddings=spec.get("tie", False),
        vision_feature_select_strategy=spec.get("select", "default"),
        multimodal_projector_bias=spec.get("projector_bias", True),
        image_seq_length=(spec["vision"]["image_size"] // spec["vision"]["patch_size"]) ** 2,
    )
    model = LlavaForConditionalGeneration(config)
    random_weights(model, seed, tokens - 2)
    model = model.to(spec.get("dtype", torch.float32))
    if spec["layout"] == "old":
        write_old(path, model, config, spec, vocab)
    else:
        model.config.dtype = spec.get("dtype", torch.float32)
        model.save_pretrained(path, max_shard_size="150KB" if spec.get("shards") else "5GB")
    return path
