"""Tiny random checkpoints of the families other than LLaVA-1.5, with tokenizers and processors in
the published form (family_specs.py, family_tokenizers.py, family_processors.py)."""

import copy
import json
import pathlib

import torch
from safetensors.torch import load_file, save_file
from transformers import (
    AutoModelForImageTextToText,
    CLIPVisionConfig,
    Gemma3Config,
    Gemma3ForConditionalGeneration,
    Idefics3Config,
    Idefics3ForConditionalGeneration,
    InternVLConfig,
    InternVLForConditionalGeneration,
    LlamaConfig,
    LlavaConfig,
    LlavaForConditionalGeneration,
    LlavaNextConfig,
    LlavaNextForConditionalGeneration,
    LlavaOnevisionConfig,
    LlavaOnevisionForConditionalGeneration,
    MistralConfig,
    Qwen2Config,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2VLConfig,
    Qwen2VLForConditionalGeneration,
    Qwen3VLConfig,
    Qwen3VLForConditionalGeneration,
    Qwen3VLMoeConfig,
    Qwen3VLMoeForConditionalGeneration,
    Qwen3_5Config,
    Qwen3_5ForConditionalGeneration,
    Qwen3_5MoeConfig,
    Qwen3_5MoeForConditionalGeneration,
    SiglipVisionConfig,
    SmolVLMConfig,
    SmolVLMForConditionalGeneration,
)
from transformers.models.gemma3.modeling_gemma3 import Gemma3RMSNorm
from transformers.models.qwen3_5.modeling_qwen3_5 import Qwen3_5RMSNorm
from transformers.models.qwen3_5_moe.modeling_qwen3_5_moe import Qwen3_5MoeRMSNorm

import internvl_chat
from family_experts import as_published_experts
from family_processors import (
    write_gemma_processor,
    intern_positions,
    write_intern_processor,
    write_processor,
    write_wide_processor,
)
from family_specs import SPECS
from family_specs_moe import MOE
from family_specs_wide import WIDE
from family_tokenizers import (
    INTERN_TOKENS,
    QWEN35_SPLIT,
    QWEN_SPLIT,
    QWEN_TOKENS,
    gemma_tokenizer,
    qwen_tokenizer,
    smol_tokenizer,
    wide_tokenizer,
)


def qwen_config(spec, tokenizer, vocab):
    newer = spec["family"].startswith("qwen3")
    size = 16 if newer else 14
    out = "hidden_size" if spec["family"] == "qwen2_vl" else "out_hidden_size"
    vision = dict(
        spec["vision"],
        patch_size=size,
        temporal_patch_size=2,
        spatial_merge_size=2,
        **{out: spec["text"]["hidden_size"]},
    )
    rope = dict(rope_type="default", rope_theta=10000.0, mrope_section=spec["mrope"])
    if newer:
        rope["mrope_interleaved"] = True
    if "rotary" in spec:
        rope["partial_rotary_factor"] = spec["rotary"]
    ids = {
        f"{name}_token_id": tokenizer.token_to_id(token)
        for name, token in [
            ("image", "<|image_pad|>"),
            ("video", "<|video_pad|>"),
            ("vision_start", "<|vision_start|>"),
            ("vision_end", "<|vision_end|>"),
        ]
    }
    text = dict(
        spec["text"],
        vocab_size=vocab,
        max_position_embeddings=512,
        rope_parameters=rope,
        tie_word_embeddings=spec.get("tie", False),
        bos_token_id=tokenizer.token_to_id("<|endoftext|>"),
        eos_token_id=tokenizer.token_to_id("<|im_end|>"),
        pad_token_id=tokenizer.token_to_id("<|endoftext|>"),
    )
    kinds = dict(
        qwen2_vl=Qwen2VLConfig,
        qwen2_5_vl=Qwen2_5_VLConfig,
        qwen3_vl=Qwen3VLConfig,
        qwen3_vl_moe=Qwen3VLMoeConfig,
        qwen3_5=Qwen3_5Config,
        qwen3_5_moe=Qwen3_5MoeConfig,
    )
    return kinds[spec["family"]](
        text_config=text, vision_config=vision, tie_word_embeddings=spec.get("tie", False), **ids
    )


def smol_config(spec, tokenizer, vocab):
    kind = SmolVLMConfig if spec["family"] == "smolvlm" else Idefics3Config
    end = tokenizer.token_to_id("<end_of_utterance>")
    text = dict(
        spec["text"],
        model_type="llama",
        vocab_size=vocab,
        max_position_embeddings=512,
        tie_word_embeddings=spec.get("tie", False),
        bos_token_id=tokenizer.token_to_id("<|im_start|>"),
        eos_token_id=end,
        pad_token_id=tokenizer.token_to_id("<|im_end|>"),
    )
    return kind(
        text_config=text,
        vision_config=spec["vision"],
        scale_factor=spec["scale"],
        image_token_id=tokenizer.token_to_id("<image>"),
        tie_word_embeddings=spec.get("tie", False),
        pad_token_id=tokenizer.token_to_id("<|im_end|>"),
    )


def wide_config(spec, tokenizer, vocab):
    kinds = dict(llama=LlamaConfig, mistral=MistralConfig, qwen2=Qwen2Config)
    end = tokenizer.token_to_id("<|im_end|>" if spec["decoder"] == "qwen2" else "</s>")
    start = tokenizer.token_to_id("<|endoftext|>" if spec["decoder"] == "qwen2" else "<s>")
    text = kinds[spec["decoder"]](
        **spec["text"],
        vocab_size=vocab,
        max_position_embeddings=512,
        tie_word_embeddings=spec.get("tie", False),
        bos_token_id=start,
        eos_token_id=end,
        pad_token_id=start,
        **({"sliding_window": None} if spec["decoder"] == "mistral" else {}),
    )
    if spec["tower"] == "clip":
        vision = CLIPVisionConfig(projection_dim=16, **spec["vision"])
    else:
        vision = SiglipVisionConfig(**spec["vision"])
    more = dict(
        text_config=text,
        vision_config=vision,
        image_token_index=tokenizer.token_to_id("<image>"),
        vision_feature_layer=spec.get("layer", -1 if spec["family"] == "llava_onevision" else -2),
        vision_feature_select_strategy="full" if spec["tower"] == "siglip" else "default",
        tie_word_embeddings=spec.get("tie", False),
    )
    if spec["family"] == "llava":
        return LlavaConfig(**more)
    more["image_grid_pinpoints"] = spec["canvases"]
    if spec["family"] == "llava_next":
        return LlavaNextConfig(**more)
    return LlavaOnevisionConfig(
        **more,
        vision_aspect_ratio=spec.get("aspect", "anyres_max_9"),
        video_token_index=tokenizer.token_to_id("<video>"),
    )


def gemma_config(spec, tokenizer, vocab):
    text = dict(
        spec["text"],
        vocab_size=vocab,
        max_position_embeddings=512,
        rope_theta=50000.0,
        rope_scaling=dict(rope_type="linear", factor=8.0),
        bos_token_id=2,
        eos_token_id=[1, tokenizer.token_to_id("<end_of_turn>")],
        pad_token_id=0,
    )
    return Gemma3Config(
        text_config=text,
        vision_config=spec["vision"],
        mm_tokens_per_image=spec["side"] ** 2,
        boi_token_index=tokenizer.token_to_id("<start_of_image>"),
        eoi_token_index=tokenizer.token_to_id("<end_of_image>"),
        image_token_index=tokenizer.token_to_id("<image_soft_token>"),
        tie_word_embeddings=spec.get("tie", True),
    )


def intern_config(spec, tokenizer, vocab):
    end = tokenizer.token_to_id("<|endoftext|>")
    text = dict(
        spec["text"],
        vocab_size=vocab,
        max_position_embeddings=512,
        tie_word_embeddings=spec.get("tie", False),
        bos_token_id=end,
        eos_token_id=tokenizer.token_to_id("<|im_end|>"),
        pad_token_id=end,
    )
    return InternVLConfig(
        text_config=text,
        vision_config=spec["vision"],
        downsample_ratio=1 / spec["scale"],
        image_seq_length=intern_positions(spec),
        image_token_id=tokenizer.token_to_id("<IMG_CONTEXT>"),
        tie_word_embeddings=spec.get("tie", False),
    )


CLASSES = dict(
    internvl=InternVLForConditionalGeneration,
    gemma3=Gemma3ForConditionalGeneration,
    llava=LlavaForConditionalGeneration,
    llava_next=LlavaNextForConditionalGeneration,
    llava_onevision=LlavaOnevisionForConditionalGeneration,
    qwen2_vl=Qwen2VLForConditionalGeneration,
    qwen2_5_vl=Qwen2_5_VLForConditionalGeneration,
    qwen3_vl=Qwen3VLForConditionalGeneration,
    qwen3_vl_moe=Qwen3VLMoeForConditionalGeneration,
    qwen3_5=Qwen3_5ForConditionalGeneration,
    qwen3_5_moe=Qwen3_5MoeForConditionalGeneration,
    smolvlm=SmolVLMForConditionalGeneration,
    idefics3=Idefics3ForConditionalGeneration,
)


def random_weights(model, seed):
    """Unit-variance activations at every depth, as in checkpoints.random_weights;
    special tokens are never the most likely, except the one that ends answers."""
    generator = torch.Generator().manual_seed(seed)
    zero_centred = {
        id(module.weight)
        for module in model.modules()
        if isinstance(module, (Gemma3RMSNorm, Qwen3_5RMSNorm, Qwen3_5MoeRMSNorm))
    }
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if "lambda_" in name:
                parameter.copy_(noise * 0.3 + 0.6)
            elif "A_log" in name:  # half of a state is forgotten after a few to some hundred tokens
                parameter.copy_(noise - 2.5)
            elif "norm" in name or "ln_q" in name:
                parameter.copy_(
                    noise * 0.1
                    + (1 if name.endswith("weight") and id(parameter) not in zero_centred else 0)
                )
            elif parameter.dim() == 1:
                parameter.copy_(noise * 0.2)
            else:
                fan_in = parameter.shape[-1] if ".experts." in name else parameter[0].numel()
                parameter.copy_(
                    noise
                    * (
                        (
                            2.0
                            if "embed_tokens" in name or "lm_head" in name or "pos" in name
                            else 1.0
                        )
                        / fan_in**0.5
                    )
                )
        end = model.config.text_config.eos_token_id
        end = end[-1] if isinstance(end, list) else end
        for head in {model.lm_head.weight, model.get_input_embeddings().weight}:
            kept = head[end].clone()
            head[max(end - 4, 0) : end + 4] *= 0.3
            head[end] = kept * 1.6
            head[model.config.image_token_id] = 0
        if model.config.text_config.tie_word_embeddings:  # else a token would always predict itself
            model.lm_head.weight *= 0.25
            last = [
                norm
                for name, norm in model.named_parameters()
                if name.endswith(("language_model.norm.weight", "text_model.norm.weight"))
            ][0]
            last.add_(3) if id(last) in zero_centred else last.mul_(4)


def as_published(path):
    """config.json and preprocessor_config.json of Qwen2-VL in the spelling of transformers 4.45."""
    file = path / "config.json"
    data = json.loads(file.read_text())
    text, vision = data.pop("text_config"), data["vision_config"]
    rope = text.pop("rope_parameters")
    for key in ["layer_types", "dtype", "model_type"]:
        text.pop(key, None)
    for key in ["rope_parameters", "hidden_act", "dtype"]:
        vision.pop(key, None)
    vision |= dict(in_chans=vision.pop("in_channels"), spatial_patch_size=vision["patch_size"])
    data |= text | dict(
        torch_dtype=data.pop("dtype"),
        rope_theta=rope["rope_theta"],
        rope_scaling=dict(type="mrope", mrope_section=rope["mrope_section"]),
    )
    file.write_text(json.dumps(data, indent=2))
    file = path / "preprocessor_config.json"
    data = json.loads(file.read_text())
    size = data.pop("size")
    data |= dict(min_pixels=size["shortest_edge"], max_pixels=size["longest_edge"])
    file.write_text(json.dumps(data, indent=2))


def as_qwen3_vl(path):
    """config.json of Qwen3.5 in the spelling of Qwen3-VL before transformers 5."""
    file = path / "config.json"
    data = json.loads(file.read_text())
    text = data["text_config"]
    rope = text.pop("rope_parameters")
    for key in ["rope_theta", "partial_rotary_factor"]:
        text[key] = rope.pop(key)
    text["rope_scaling"] = rope
    data["vision_config"]["model_type"] = data["model_type"]
    data["torch_dtype"] = data.pop("dtype")
    file.write_text(json.dumps(data, indent=2))


# Tensors of published checkpoints that neither transformers nor lft reads.
MTP = [
    "mtp.fc.weight",
    "mtp.layers.0.self_attn.q_proj.weight",
    "mtp.layers.0.mlp.experts.0.up_proj.weight",
    "mtp.norm.weight",
]


def add_mtp(path):
    file = sorted(path.glob("*.safetensors"))[-1]
    tensors = load_file(file)
    generator = torch.Generator().manual_seed(3)
    for name in MTP:
        tensors[name] = torch.randn([6, 8], generator=generator)
    save_file(tensors, file, metadata={"format": "pt"})
    index = path / "model.safetensors.index.json"
    if index.exists():
        data = json.loads(index.read_text())
        data["weight_map"] |= {name: file.name for name in tensors}
        index.write_text(json.dumps(data, indent=2))


def load_model(path):
    """A checkpoint in float32."""
    config = json.loads((pathlib.Path(path) / "config.json").read_text())
    if config["model_type"] == "internvl_chat":
        return internvl_chat.load(path)
    # torch's grouped product refuses features that are no multiple of 16 bytes.
    more = dict(experts_implementation="eager") if config["model_type"] in MOE else {}
    return AutoModelForImageTextToText.from_pretrained(path, dtype=torch.float32, **more)


def build(name, path, seed=0):
    """Writes checkpoint `name` of SPECS into `path` (an HF model directory)
    and returns the path."""
    spec = copy.deepcopy(SPECS[name])
    path = pathlib.Path(path)
    path.mkdir(parents=True)
    smol, wide, gemma, intern = (
        spec["family"] in ("smolvlm", "idefics3"),
        spec["family"] in WIDE,
        spec["family"] == "gemma3",
        spec["family"] == "internvl",
    )
    tokenizer = (
        smol_tokenizer()
        if smol
        else wide_tokenizer(path, spec)
        if wide
        else gemma_tokenizer(path, spec)
        if gemma
        else qwen_tokenizer(
            INTERN_TOKENS if intern else QWEN_TOKENS,
            QWEN35_SPLIT if spec["family"].startswith("qwen3_5") else QWEN_SPLIT,
        )
    )
    vocab = spec.get("vocab", (tokenizer.get_vocab_size() + 63) // 64 * 64)
    config = (
        smol_config
        if smol
        else wide_config
        if wide
        else gemma_config
        if gemma
        else intern_config
        if intern
        else qwen_config
    )(spec, tokenizer, vocab)
    if wide:
        write_wide_processor(path, spec)
    elif gemma:
        write_gemma_processor(path, spec, tokenizer)
    elif intern:
        write_intern_processor(path, spec, tokenizer)
    else:
        write_processor(path, spec, tokenizer)
    model = CLASSES[spec["family"]](config)
    random_weights(model, spec.get("seed", seed))
    model = model.to(spec.get("dtype", torch.float32))
    model.config.dtype = spec.get("dtype", torch.float32)
    published = spec.get("stored") == "published"
    model.save_pretrained(
        path,
        max_shard_size="150KB" if spec.get("shards") else "5GB",
        save_original_format=not published,
    )
    if published:
        as_published_experts(path)
    if spec.get("flat"):
        as_published(path)
    if spec.get("old"):
        as_qwen3_vl(path)
    if spec.get("mtp"):
        add_mtp(path)
    if spec.get("original"):
        internvl_chat.convert(path, spec["tiles"])
    generation = path / "generation_config.json"
    if generation.exists():
        data = json.loads(generation.read_text())
        data["eos_token_id"] = config.text_config.eos_token_id
        generation.write_text(json.dumps(data, indent=2))
    return path
