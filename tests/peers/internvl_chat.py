"""InternVL in its original layout, which transformers 5.17 reads only with the checkpoint's own
code: the same modules under the same names, so that PEFT gives adapters the names that it gives
there. Checkpoints are converted from transformers' layout (convert)."""

import json
import pathlib

import torch
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import AutoModelForCausalLM, GenerationMixin, InternVLConfig, PreTrainedModel
from transformers.activations import ACT2FN

SYSTEM = "你是书生·万象，英文名是InternVL，是由上海人工智能实验室、清华大学及多家合作单位联合开发的多模态大语言模型。"
# The prompts of chat() in the checkpoints' code, whose conversation is "internvl2_5".
CHAT_TEMPLATE = (
    "{%- if messages[0].role != 'system' -%}"
    "{{ '<|im_start|>system\n" + SYSTEM + "<|im_end|>\n' }}{%- endif -%}"
    "{%- for message in messages -%}{{ '<|im_start|>' + message.role + '\n' }}"
    "{%- if message.content is string -%}{{ message.content }}{%- else -%}"
    "{%- for part in message.content -%}"
    "{{ '<IMG_CONTEXT>\n' if part.type == 'image' else part.text }}{%- endfor -%}{%- endif -%}"
    "{{ '<|im_end|>\n' }}{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\n' }}{%- endif -%}"
)
# A template of texts alone, as in tokenizer_config.json of InternVL3.
TEXT_TEMPLATE = (
    "{%- if messages[0]['role'] == 'system' -%}"
    "{{- '<|im_start|>system\n' + messages[0]['content'] + '<|im_end|>\n' }}{%- else -%}"
    "{{- '<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n' }}{%- endif -%}"
    "{%- for message in messages -%}"
    "{%- if message.role != 'system' or not loop.first -%}"
    "{{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}"
    "{%- endif -%}{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\n' }}{%- endif -%}"
)
PARTS = [
    ("vision_tower.embeddings.cls_token", "vision_model.embeddings.class_embedding"),
    ("vision_tower.embeddings.position_embeddings", "vision_model.embeddings.position_embedding"),
    (
        "vision_tower.embeddings.patch_embeddings.projection",
        "vision_model.embeddings.patch_embedding",
    ),
    ("vision_tower.encoder.layer.", "vision_model.encoder.layers."),
    (".attention.projection_layer", ".attn.proj"),
    (".attention.", ".attn."),
    (".layernorm_before", ".norm1"),
    (".layernorm_after", ".norm2"),
    (".lambda_", ".ls"),
    ("multi_modal_projector.layer_norm", "mlp1.0"),
    ("multi_modal_projector.linear_1", "mlp1.1"),
    ("multi_modal_projector.linear_2", "mlp1.3"),
]


class RmsNorm(nn.Module):
    def __init__(self, size, eps):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(size)), eps

    def forward(self, x):
        mean = x.float().pow(2).mean(-1, keepdim=True)
        return self.weight * (x * torch.rsqrt(mean + self.eps))


class Embeddings(nn.Module):
    def __init__(self, config):
        super().__init__()
        side, patch = config.image_size[0], config.patch_size[0]
        d, places = config.hidden_size, (side // patch) ** 2 + 1
        self.class_embedding = nn.Parameter(torch.zeros(1, 1, d))
        self.patch_embedding = nn.Conv2d(3, d, patch, patch)
        self.position_embedding = nn.Parameter(torch.zeros(1, places, d))

    def forward(self, pixels):
        patches = self.patch_embedding(pixels).flatten(2).transpose(1, 2)
        first = self.class_embedding.expand(len(patches), 1, -1)
        return torch.cat([first, patches], 1) + self.position_embedding


class Attention(nn.Module):
    def __init__(self, config):
        super().__init__()
        d = config.hidden_size
        self.heads = config.num_attention_heads
        self.qkv = nn.Linear(d, 3 * d, bias=config.attention_bias)
        self.proj = nn.Linear(d, d)
        self.norms = config.use_qk_norm
        if self.norms:
            self.q_norm, self.k_norm = RmsNorm(d, 1e-6), RmsNorm(d, 1e-6)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        if self.norms:
            q, k = self.q_norm(q), self.k_norm(k)
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in (q, k, v))
        mixed = nn.functional.scaled_dot_product_attention(q, k, v)
        return self.proj(mixed.transpose(1, 2).flatten(2))


class Mlp(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.act = ACT2FN[config.hidden_act]
        self.fc1 = nn.Linear(config.hidden_size, config.intermediate_size)
        self.fc2 = nn.Linear(config.intermediate_size, config.hidden_size)

    def forward(self, x):
        return self.fc2(self.act(self.fc1(x)))


class Layer(nn.Module):
    def __init__(self, config):
        super().__init__()
        d, eps = config.hidden_size, config.layer_norm_eps
        norm = RmsNorm if config.norm_type == "rms_norm" else nn.LayerNorm
        self.attn, self.mlp = Attention(config), Mlp(config)
        self.norm1, self.norm2 = norm(d, eps=eps), norm(d, eps=eps)
        self.ls1, self.ls2 = nn.Parameter(torch.ones(d)), nn.Parameter(torch.ones(d))

    def forward(self, x):
        x = x + self.attn(self.norm1(x)) * self.ls1
        return x + self.mlp(self.norm2(x)) * self.ls2


class VisionModel(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.embeddings = Embeddings(config)
        self.encoder = nn.Module()
        self.encoder.layers = nn.ModuleList(Layer(config) for _ in range(config.num_hidden_layers))

    def forward(self, pixels):
        x = self.embeddings(pixels)
        for layer in self.encoder.layers:
            x = layer(x)
        return x[:, 1:]


class InternVLChatModel(PreTrainedModel, GenerationMixin):
    config_class = InternVLConfig

    def __init__(self, config):
        super().__init__(config)
        self.scale = round(1 / config.downsample_ratio)
        merged = config.vision_config.hidden_size * self.scale**2
        hidden = config.text_config.hidden_size
        self.vision_model = VisionModel(config.vision_config)
        self.language_model = AutoModelForCausalLM.from_config(config.text_config)
        self.mlp1 = nn.Sequential(
            nn.LayerNorm(merged), nn.Linear(merged, hidden), nn.GELU(), nn.Linear(hidden, hidden)
        )

    def shuffled(self, x):
        """pixel_shuffle() of ps_version v2."""
        side = round(x.shape[1] ** 0.5)
        n, s, d = len(x), self.scale, x.shape[2]
        x = x.view(n, side, side // s, d * s).transpose(1, 2)
        x = x.reshape(n, side // s, side // s, d * s * s).transpose(1, 2)
        return x.reshape(n, -1, d * s * s)

    def forward(self, input_ids, pixel_values=None, **_):
        embeds = self.language_model.get_input_embeddings()(input_ids)
        if pixel_values is not None:
            features = self.mlp1(self.shuffled(self.vision_model(pixel_values)))
            places = (input_ids == self.config.image_token_id).unsqueeze(-1)
            embeds = embeds.masked_scatter(places, features)
        return self.language_model(inputs_embeds=embeds)


def load(path):
    """The checkpoint in float32."""
    path = pathlib.Path(path)
    data = json.loads((path / "config.json").read_text())
    assert data["model_type"] == "internvl_chat"
    vision = data["vision_config"]
    config = InternVLConfig(
        text_config=data["llm_config"],
        vision_config=dict(
            {key: vision[key] for key in SHARED},
            attention_bias=vision["qkv_bias"],
            use_qk_norm=vision["qk_normalization"],
        ),
        downsample_ratio=data["downsample_ratio"],
        image_token_id=data["image_token_id"],
        tie_word_embeddings=data["tie_word_embeddings"],
    )
    model = InternVLChatModel(config).float()
    tensors = {
        key: value.float()
        for file in sorted(path.glob("*.safetensors"))
        for key, value in load_file(file).items()
    }
    missing, unexpected = model.load_state_dict(tensors, strict=False)
    tied = {"language_model.lm_head.weight"} if data["tie_word_embeddings"] else set()
    assert set(missing) <= tied and not unexpected, (missing, unexpected)
    model.language_model.tie_weights()
    return model.eval()


SHARED = [
    "hidden_act",
    "hidden_size",
    "image_size",
    "intermediate_size",
    "layer_norm_eps",
    "norm_type",
    "num_attention_heads",
    "num_hidden_layers",
    "patch_size",
]


def convert(path, tiles):
    """Rewrites a checkpoint in transformers' layout, as the original ones are published."""
    write_tensors(path)
    data = json.loads((path / "config.json").read_text())
    vision, side = data["vision_config"], data["vision_config"]["image_size"][0]
    vision |= dict(image_size=side, patch_size=vision["patch_size"][0])
    fewest, most = tiles
    config = dict(
        architectures=["InternVLChatModel"],
        auto_map=dict(AutoModel="modeling_internvl_chat.InternVLChatModel"),
        downsample_ratio=data["downsample_ratio"],
        dynamic_image_size=True,
        force_image_size=side,
        image_token_id=data["image_token_id"],  # the published ones have their tokenizer's
        llm_config=data["text_config"],
        max_dynamic_patch=most,
        min_dynamic_patch=fewest,
        model_type="internvl_chat",
        ps_version="v2",
        select_layer=-1,
        template="internvl2_5",
        tie_word_embeddings=data["tie_word_embeddings"],
        torch_dtype=data["dtype"],
        use_thumbnail=True,
        vision_config=dict(
            {key: vision[key] for key in SHARED},
            model_type="intern_vit_6b",
            qk_normalization=vision["use_qk_norm"],
            qkv_bias=vision["attention_bias"],
        ),
    )
    (path / "config.json").write_text(json.dumps(config, indent=2))
    processor = dict(
        crop_size=side,
        do_center_crop=True,
        do_normalize=True,
        do_resize=True,
        feature_extractor_type="CLIPFeatureExtractor",
        image_mean=[0.485, 0.456, 0.406],
        image_std=[0.229, 0.224, 0.225],
        resample=3,
        size=side,
    )
    (path / "preprocessor_config.json").write_text(json.dumps(processor, indent=2))
    for name in ["processor_config.json", "chat_template.jinja"]:
        (path / name).unlink()
    file = path / "tokenizer_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | dict(chat_template=TEXT_TEMPLATE)))


def write_tensors(path):
    """In one file, or in two with an index."""
    tensors, files = {}, sorted(path.glob("*.safetensors"))
    for file in files:
        tensors |= load_file(file)
        file.unlink()
    tensors = renamed(tensors)
    if len(files) == 1:
        save_file(tensors, files[0], metadata=dict(format="pt"))
        return
    names, weight_map = sorted(tensors), {}
    for number in (0, 1):
        file = f"model-0000{number + 1}-of-00002.safetensors"
        part = {name: tensors[name] for name in names[number::2]}
        save_file(part, path / file, metadata=dict(format="pt"))
        weight_map |= dict.fromkeys(part, file)
    size = sum(tensor.nbytes for tensor in tensors.values())
    index = dict(metadata=dict(total_size=size), weight_map=weight_map)
    (path / "model.safetensors.index.json").write_text(json.dumps(index))


def renamed(tensors):
    out = {}
    for key, value in tensors.items():
        for old, new in PARTS:
            key = key.replace(old, new)
        out[key] = value
    for key in [key for key in out if ".attn.q_proj." in key]:
        parts = [out.pop(key.replace("q_proj", f"{part}_proj")) for part in "qkv"]
        out[key.replace("q_proj", "qkv")] = torch.cat(parts)
    return out
