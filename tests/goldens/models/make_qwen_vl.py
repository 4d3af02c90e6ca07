#!/usr/bin/env python3
"""Writes qwen_vl.json: what transformers and PEFT compute for tiny Qwen2-VL, Qwen2.5-VL, Qwen3-VL
and Qwen3.5 models, also with experts, whose weights are a hash of name and index, their tensor
names, and the processor's output for images.

No weights and no images are stored: fill() of make_llava.py and photo() here have equivalents
in tests/families/tiny_qwen.h. Run with the pinned peers:
  .deps/venv/bin/python tests/goldens/models/make_qwen_vl.py
"""

import copy
import json
import os
import tempfile

import numpy as np
import peft
import torch
import transformers
from make_llava import fill, rounded
from peft.tuners.lora.layer import ParamWrapper
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForImageTextToText
from transformers.models.qwen2_vl.image_processing_qwen2_vl import (
    Qwen2VLImageProcessor,
    smart_resize,
)

START, END, IMAGE, VIDEO, VOCAB = 58, 59, 60, 61, 64
TOKENS = dict(
    image_token_id=IMAGE, video_token_id=VIDEO, vision_start_token_id=START, vision_end_token_id=END
)
TEXT = dict(
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=3,
    num_attention_heads=4,
    num_key_value_heads=2,
    vocab_size=VOCAB,
    max_position_embeddings=256,
    rms_norm_eps=1e-5,
    bos_token_id=1,
    eos_token_id=2,
)
VISION = dict(
    depth=3, hidden_size=24, intermediate_size=20, num_heads=2, out_hidden_size=32, patch_size=4
)
FIRST_VISION = dict(depth=3, embed_dim=24, mlp_ratio=2, num_heads=2, hidden_size=32, patch_size=4)
CASES = {
    "qwen2_5_vl": dict(
        model_type="qwen2_5_vl",
        **TOKENS,
        text_config=dict(
            TEXT,
            model_type="qwen2_5_vl_text",
            rope_parameters=dict(rope_type="default", rope_theta=1000.0, mrope_section=[1, 1, 2]),
        ),
        vision_config=dict(
            VISION, model_type="qwen2_5_vl_vision", window_size=16, fullatt_block_indexes=[1]
        ),
    ),
    # Like the first published files: flat, and with other spellings.
    "qwen2_5_vl_flat_tied": dict(
        model_type="qwen2_5_vl",
        **TOKENS,
        **TEXT,
        tie_word_embeddings=True,
        rope_theta=500.0,
        rope_scaling=dict(type="mrope", mrope_section=[2, 1, 1]),
        vision_config=dict(
            VISION, hidden_size=36, num_heads=3, window_size=24, fullatt_block_indexes=[7, 15]
        ),
    ),
    "qwen2_vl": dict(
        model_type="qwen2_vl",
        **TOKENS,
        text_config=dict(
            TEXT,
            model_type="qwen2_vl_text",
            rope_parameters=dict(rope_type="default", rope_theta=1000.0, mrope_section=[2, 1, 1]),
        ),
        vision_config=dict(
            FIRST_VISION, model_type="qwen2_vl_vision", hidden_act="gelu", in_channels=3
        ),
    ),
    # As published.
    "qwen2_vl_flat_tied": dict(
        model_type="qwen2_vl",
        **TOKENS,
        **TEXT,
        tie_word_embeddings=True,
        rope_theta=500.0,
        rope_scaling=dict(type="mrope", mrope_section=[2, 1, 1]),
        vision_config=dict(
            FIRST_VISION, embed_dim=36, num_heads=3, mlp_ratio=3, in_chans=3, spatial_patch_size=4
        ),
    ),
    "qwen3_vl": dict(
        model_type="qwen3_vl",
        **TOKENS,
        text_config=dict(
            TEXT,
            model_type="qwen3_vl_text",
            head_dim=12,
            rope_parameters=dict(
                rope_type="default",
                rope_theta=1000.0,
                mrope_section=[2, 2, 2],
                mrope_interleaved=True,
            ),
        ),
        vision_config=dict(
            VISION,
            model_type="qwen3_vl_vision",
            num_position_embeddings=25,
            deepstack_visual_indexes=[0, 2],
        ),
    ),
    # The features for the last decoder layer must match the rows that it keeps.
    "qwen3_vl_bias_tied": dict(
        model_type="qwen3_vl",
        **TOKENS,
        tie_word_embeddings=True,
        text_config=dict(
            TEXT,
            model_type="qwen3_vl_text",
            hidden_size=30,
            num_hidden_layers=2,
            head_dim=8,
            num_key_value_heads=1,
            attention_bias=True,
            rope_theta=700.0,
            rope_scaling=dict(rope_type="default", mrope_section=[2, 1, 1], mrope_interleaved=True),
        ),
        vision_config=dict(
            VISION,
            model_type="qwen3_vl",
            out_hidden_size=30,
            num_position_embeddings=49,
            deepstack_visual_indexes=[0, 1],
        ),
    ),
    # The last layer is recurrent, and the only one with attention is between such layers.
    "qwen3_5": dict(
        model_type="qwen3_5",
        **TOKENS,
        text_config=dict(
            TEXT,
            model_type="qwen3_5_text",
            head_dim=24,
            full_attention_interval=2,
            linear_num_key_heads=2,
            linear_num_value_heads=6,
            linear_key_head_dim=6,
            linear_value_head_dim=10,
            rope_parameters=dict(
                rope_type="default",
                rope_theta=1000.0,
                mrope_section=[1, 1, 1],
                mrope_interleaved=True,
            ),
        ),
        vision_config=dict(VISION, model_type="qwen3_5_vision", num_position_embeddings=25),
    ),
    # In the spelling of Qwen3-VL.
    "qwen3_5_old_tied": dict(
        model_type="qwen3_5",
        **TOKENS,
        tie_word_embeddings=True,
        text_config=dict(
            TEXT,
            model_type="qwen3_5_text",
            hidden_size=30,
            num_hidden_layers=2,
            head_dim=8,
            num_key_value_heads=1,
            layer_types=["linear_attention", "full_attention"],
            linear_num_key_heads=3,
            linear_num_value_heads=3,
            linear_key_head_dim=8,
            linear_value_head_dim=4,
            linear_conv_kernel_dim=3,
            attention_bias=True,
            rope_theta=700.0,
            partial_rotary_factor=0.5,
            rope_scaling=dict(rope_type="default", mrope_section=[1, 1, 0], mrope_interleaved=True),
        ),
        vision_config=dict(
            VISION, model_type="qwen3_5", out_hidden_size=30, num_position_embeddings=49
        ),
    ),
    # The sizes of these three are some that give clear choices of experts (CLEAR).
    "qwen3_vl_moe": dict(
        model_type="qwen3_vl_moe",
        **TOKENS,
        text_config=dict(
            TEXT,
            model_type="qwen3_vl_moe_text",
            hidden_size=42,
            head_dim=12,
            num_experts=5,
            num_experts_per_tok=2,
            moe_intermediate_size=15,
            mlp_only_layers=[1],
            rope_parameters=dict(
                rope_type="default",
                rope_theta=1000.0,
                mrope_section=[2, 2, 2],
                mrope_interleaved=True,
            ),
        ),
        vision_config=dict(
            VISION,
            model_type="qwen3_vl_moe_vision",
            out_hidden_size=42,
            num_position_embeddings=25,
            deepstack_visual_indexes=[0, 2],
        ),
    ),
    "qwen3_vl_moe_step_tied": dict(
        model_type="qwen3_vl_moe",
        **TOKENS,
        tie_word_embeddings=True,
        text_config=dict(
            TEXT,
            model_type="qwen3_vl_moe_text",
            hidden_size=34,
            num_hidden_layers=2,
            head_dim=8,
            num_key_value_heads=1,
            attention_bias=True,
            num_local_experts=8,
            num_experts_per_tok=3,
            moe_intermediate_size=13,
            decoder_sparse_step=2,
            router_aux_loss_coef=0.02,
            rope_theta=700.0,
            rope_scaling=dict(rope_type="default", mrope_section=[2, 1, 1], mrope_interleaved=True),
        ),
        vision_config=dict(
            VISION,
            model_type="qwen3_vl_moe",
            out_hidden_size=34,
            num_position_embeddings=49,
            deepstack_visual_indexes=[0],
        ),
    ),
    "qwen3_5_moe": dict(
        model_type="qwen3_5_moe",
        **TOKENS,
        text_config=dict(
            {key: value for key, value in TEXT.items() if key != "intermediate_size"},
            model_type="qwen3_5_moe_text",
            head_dim=24,
            full_attention_interval=2,
            linear_num_key_heads=2,
            linear_num_value_heads=6,
            linear_key_head_dim=6,
            linear_value_head_dim=8,
            num_experts=7,
            num_experts_per_tok=2,
            moe_intermediate_size=14,
            shared_expert_intermediate_size=22,
            rope_parameters=dict(
                rope_type="default",
                rope_theta=1000.0,
                mrope_section=[1, 1, 1],
                mrope_interleaved=True,
            ),
        ),
        vision_config=dict(VISION, model_type="qwen3_5_moe_vision", num_position_embeddings=25),
    ),
}
# The least differences, over all tokens, between the last expert that computes a token and the
# first that does not: of probabilities, also with adapters, and of logits, so that rounding does
# not decide.
CLEAR = dict(probabilities=1e-4, logits=0.02)
EXPERTS = ("mlp.experts.gate_up_proj", "mlp.experts.down_proj")
BALANCE = 8  # the weight of the load balancing loss next to the sum over the tokens
# Sizes of the published Qwen2-VL-2B and Qwen2.5-VL-3B (whose files are flat), Qwen3-VL-2B,
# Qwen3.5-4B, Qwen3-VL-30B-A3B and Qwen3.5-35B-A3B.
PUBLISHED = {
    "qwen2_vl_2b": dict(
        model_type="qwen2_vl",
        image_token_id=151655,
        hidden_act="silu",
        hidden_size=1536,
        intermediate_size=8960,
        max_position_embeddings=32768,
        max_window_layers=28,
        num_attention_heads=12,
        num_hidden_layers=28,
        num_key_value_heads=2,
        rms_norm_eps=1e-6,
        rope_theta=1000000.0,
        sliding_window=32768,
        use_sliding_window=False,
        tie_word_embeddings=True,
        vocab_size=151936,
        rope_scaling=dict(type="mrope", mrope_section=[16, 24, 24]),
        vision_config=dict(
            depth=32,
            embed_dim=1280,
            mlp_ratio=4,
            num_heads=16,
            in_chans=3,
            hidden_size=1536,
            patch_size=14,
            spatial_merge_size=2,
            spatial_patch_size=14,
            temporal_patch_size=2,
        ),
    ),
    "qwen2_5_vl_3b": dict(
        model_type="qwen2_5_vl",
        image_token_id=151655,
        hidden_act="silu",
        hidden_size=2048,
        intermediate_size=11008,
        max_position_embeddings=128000,
        max_window_layers=70,
        num_attention_heads=16,
        num_hidden_layers=36,
        num_key_value_heads=2,
        rms_norm_eps=1e-6,
        rope_theta=1000000.0,
        sliding_window=32768,
        use_sliding_window=False,
        tie_word_embeddings=True,
        vocab_size=151936,
        rope_scaling=dict(type="mrope", mrope_section=[16, 24, 24]),
        vision_config=dict(
            depth=32,
            hidden_act="silu",
            hidden_size=1280,
            intermediate_size=3420,
            num_heads=16,
            in_chans=3,
            out_hidden_size=2048,
            patch_size=14,
            spatial_merge_size=2,
            spatial_patch_size=14,
            window_size=112,
            fullatt_block_indexes=[7, 15, 23, 31],
            tokens_per_second=2,
            temporal_patch_size=2,
        ),
    ),
    "qwen3_vl_2b": dict(
        model_type="qwen3_vl",
        image_token_id=151655,
        tie_word_embeddings=True,
        text_config=dict(
            model_type="qwen3_vl_text",
            hidden_size=2048,
            intermediate_size=6144,
            num_hidden_layers=28,
            num_attention_heads=16,
            num_key_value_heads=8,
            head_dim=128,
            vocab_size=151936,
            max_position_embeddings=262144,
            rope_theta=5000000,
            rms_norm_eps=1e-6,
            rope_scaling=dict(
                mrope_interleaved=True, mrope_section=[24, 20, 20], rope_type="default"
            ),
            tie_word_embeddings=True,
        ),
        vision_config=dict(
            model_type="qwen3_vl",
            depth=24,
            hidden_size=1024,
            intermediate_size=4096,
            num_heads=16,
            patch_size=16,
            spatial_merge_size=2,
            temporal_patch_size=2,
            out_hidden_size=2048,
            num_position_embeddings=2304,
            deepstack_visual_indexes=[5, 11, 17],
            hidden_act="gelu_pytorch_tanh",
            in_channels=3,
        ),
    ),
    "qwen3_5_4b": dict(
        model_type="qwen3_5",
        image_token_id=248056,
        tie_word_embeddings=True,
        text_config=dict(
            model_type="qwen3_5_text",
            attn_output_gate=True,
            eos_token_id=248044,
            full_attention_interval=4,
            head_dim=256,
            hidden_act="silu",
            hidden_size=2560,
            intermediate_size=9216,
            linear_conv_kernel_dim=4,
            linear_key_head_dim=128,
            linear_num_key_heads=16,
            linear_num_value_heads=32,
            linear_value_head_dim=128,
            mamba_ssm_dtype="float32",
            max_position_embeddings=262144,
            mtp_num_hidden_layers=1,
            num_attention_heads=16,
            num_hidden_layers=32,
            num_key_value_heads=4,
            rms_norm_eps=1e-6,
            tie_word_embeddings=True,
            vocab_size=248320,
            rope_parameters=dict(
                mrope_interleaved=True,
                mrope_section=[11, 11, 10],
                partial_rotary_factor=0.25,
                rope_theta=10000000,
                rope_type="default",
            ),
        ),
        vision_config=dict(
            model_type="qwen3_5",
            deepstack_visual_indexes=[],
            depth=24,
            hidden_act="gelu_pytorch_tanh",
            hidden_size=1024,
            in_channels=3,
            intermediate_size=4096,
            num_heads=16,
            num_position_embeddings=2304,
            out_hidden_size=2560,
            patch_size=16,
            spatial_merge_size=2,
            temporal_patch_size=2,
        ),
    ),
    "qwen3_vl_30b_a3b": dict(
        model_type="qwen3_vl_moe",
        image_token_id=151655,
        text_config=dict(
            model_type="qwen3_vl_moe_text",
            decoder_sparse_step=1,
            head_dim=128,
            hidden_size=2048,
            intermediate_size=6144,
            max_position_embeddings=262144,
            mlp_only_layers=[],
            moe_intermediate_size=768,
            norm_topk_prob=True,
            num_attention_heads=32,
            num_experts=128,
            num_experts_per_tok=8,
            num_hidden_layers=48,
            num_key_value_heads=4,
            rms_norm_eps=1e-6,
            rope_scaling=dict(
                mrope_interleaved=True, mrope_section=[24, 20, 20], rope_type="default"
            ),
            rope_theta=5000000,
            tie_word_embeddings=False,
            vocab_size=151936,
        ),
        vision_config=dict(
            model_type="qwen3_vl_moe",
            deepstack_visual_indexes=[8, 16, 24],
            depth=27,
            hidden_act="gelu_pytorch_tanh",
            hidden_size=1152,
            in_channels=3,
            intermediate_size=4304,
            num_heads=16,
            num_position_embeddings=2304,
            out_hidden_size=2048,
            patch_size=16,
            spatial_merge_size=2,
            temporal_patch_size=2,
        ),
    ),
    "qwen3_5_35b_a3b": dict(
        model_type="qwen3_5_moe",
        image_token_id=248056,
        tie_word_embeddings=False,
        text_config=dict(
            model_type="qwen3_5_moe_text",
            attn_output_gate=True,
            eos_token_id=248044,
            full_attention_interval=4,
            head_dim=256,
            hidden_act="silu",
            hidden_size=2048,
            linear_conv_kernel_dim=4,
            linear_key_head_dim=128,
            linear_num_key_heads=16,
            linear_num_value_heads=32,
            linear_value_head_dim=128,
            mamba_ssm_dtype="float32",
            max_position_embeddings=262144,
            moe_intermediate_size=512,
            mtp_num_hidden_layers=1,
            num_attention_heads=16,
            num_experts=256,
            num_experts_per_tok=8,
            num_hidden_layers=40,
            num_key_value_heads=2,
            rms_norm_eps=1e-6,
            router_aux_loss_coef=0.001,
            shared_expert_intermediate_size=512,
            vocab_size=248320,
            rope_parameters=dict(
                mrope_interleaved=True,
                mrope_section=[11, 11, 10],
                partial_rotary_factor=0.25,
                rope_theta=10000000,
                rope_type="default",
            ),
        ),
        vision_config=dict(
            model_type="qwen3_5_moe",
            deepstack_visual_indexes=[],
            depth=27,
            hidden_act="gelu_pytorch_tanh",
            hidden_size=1152,
            in_channels=3,
            intermediate_size=4304,
            num_heads=16,
            num_position_embeddings=2304,
            out_hidden_size=2048,
            patch_size=16,
            spatial_merge_size=2,
            temporal_patch_size=2,
        ),
    ),
}
PHOTOS = [(50, 30), (20, 71), (61, 17)]  # width, height
PROCESSOR = dict(
    patch_size=4,
    merge_size=2,
    temporal_patch_size=2,
    size=dict(shortest_edge=8 * 8 * 6, longest_edge=8 * 8 * 18),
    image_mean=[0.5, 0.4, 0.3],
    image_std=[0.25, 0.3, 0.2],
)
SIZES = [
    (1, 1),
    (5, 900),
    (14, 14),
    (42, 70),
    (43, 69),
    (100, 100),
    (640, 480),
    (333, 1000),
    (1001, 77),
    (4000, 3000),
    (9000, 6000),
    (30000, 160),
    (126, 42),
]
BOUNDS = [
    (28, 56 * 56, 28 * 28 * 16384),
    (28, 256 * 28 * 28, 1280 * 28 * 28),
    (32, 256 * 256, 4096 * 4096),
    (8, 8 * 8 * 6, 8 * 8 * 18),
]
WHOLE = (
    "patch_embed.proj.bias",
    "pos_embed.weight",
    "blocks.0.attn.qkv.bias",
    "blocks.2.norm1.weight",
    "merger.mlp.0.bias",
    "merger.linear_fc1.bias",
    "deepstack_merger_list.0.norm.weight",
    "deepstack_merger_list.1.linear_fc2.bias",
    "layers.0.self_attn.k_proj.bias",
    "layers.0.self_attn.q_norm.weight",
    "layers.1.self_attn.k_norm.weight",
    "layers.1.input_layernorm.weight",
    "layers.0.linear_attn.A_log",
    "layers.0.linear_attn.dt_bias",
    "layers.0.linear_attn.conv1d.weight",
    "layers.0.linear_attn.norm.weight",
    "mlp.gate.weight",
    "mlp.shared_expert_gate.weight",
)


def photo(width, height):
    x, y, c = (
        np.arange(width)[None, :, None],
        np.arange(height)[:, None, None],
        np.arange(3)[None, None, :],
    )
    return ((x * 7 + y * 13 + c * 50 + x * y % 31) % 256).astype(np.uint8)


def fnv(values):
    h = 2166136261
    for v in values:
        h = (h ^ int(v)) * 16777619 % 2**32
    return h


def some(features):
    return rounded(features.flatten()[::7])


def canonical(name):
    for old, new in (
        ("model.visual.merger", "multi_modal_projector.merger"),
        ("model.visual.deepstack", "multi_modal_projector.deepstack"),
        ("model.visual.", "vision_tower."),
        ("model.language_model.", "language_model.model."),
        ("lm_head.", "language_model.lm_head."),
    ):
        if name.startswith(old):
            name = new + name[len(old) :]
            return name + ".weight" if name.endswith(EXPERTS) else name
    raise ValueError(name)


def config_of(case):
    kind = dict(case)
    return AutoConfig.for_model(kind.pop("model_type"), **json.loads(json.dumps(kind)))


def build(case):
    config = config_of(case)
    model = AutoModelForImageTextToText.from_config(
        config, attn_implementation="eager", experts_implementation="eager"
    )
    model = model.float().eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            shape = (-1, parameter.shape[-1]) if name.endswith(EXPERTS) else parameter.shape
            parameter.copy_(fill(canonical(name), parameter.view(shape).shape).view_as(parameter))
    return model


def check_choices(model, mask, logits):
    """From now on, routers must choose clearly."""

    def check(router, _, out):
        kept = out[0].detach().float()[mask.flatten() == 1]
        for values, least in ((kept, logits), (kept.softmax(-1), CLEAR["probabilities"])):
            sorted_values = values.sort(-1, descending=True)[0]
            gap = (sorted_values[:, router.top_k - 1] - sorted_values[:, router.top_k]).min()
            assert gap > least, f"near a tie: {gap.item()}, expected more than {least}"

    return [
        module.register_forward_hook(check)
        for name, module in model.named_modules()
        if name.endswith("mlp.gate")
    ]


def batch_of(grids):
    """Row 0: an image between text. Row 1: text only, shorter (padded on the right).
    Row 2: two images."""
    image = [[START] + [IMAGE] * int(h * w // 4) + [END] for _, h, w in grids]
    rows = [
        [1, 5, 9] + image[0] + [7, 8, 2, 11, 3],
        [1, 20, 21, 22, 2],
        image[1] + [4] + image[2] + [33, 34, 2],
    ]
    labels = [
        [-100] * (len(rows[0]) - 3) + rows[0][-3:],
        [-100, -100, 21, -100, 2],
        [-100] * (len(rows[2]) - 2) + rows[2][-2:],
    ]
    width = max(map(len, rows))
    return (
        torch.tensor([r + [0] * (width - len(r)) for r in rows]),
        torch.tensor([r + [-100] * (width - len(r)) for r in labels]),
        torch.tensor([[1] * len(r) + [0] * (width - len(r)) for r in rows]),
        [len(r) for r in rows],
    )


def names_of(model):
    """Tensors written by save_pretrained and PEFT, by canonical name."""
    with tempfile.TemporaryDirectory() as folder:
        # As published; transformers would save the experts of Qwen3.5 one by one.
        experts = any(name.endswith(EXPERTS) for name, _ in model.named_parameters())
        model.save_pretrained(folder, save_original_format=not experts)
        stored = load_file(folder + "/model.safetensors")
    in_memory = {id(p): n for n, p in model.named_parameters()}
    by_value = {
        tuple(p.shape) + (p.double().sum().item(),): canonical(in_memory[id(p)])
        for p in model.parameters()
    }
    names = {
        by_value[tuple(t.shape) + (t.double().sum().item(),)]: key for key, t in stored.items()
    }
    assert len(names) == len(stored) == len(in_memory), (len(names), len(stored), len(in_memory))
    return names


def fill_adapter(parameter, key, experts):
    """lft's B of experts is [expert * out, rank], PEFT's is [out, rank * expert]."""
    if not key.endswith("lora_B.weight") or experts == 1:
        return parameter.copy_(fill(key, tuple(parameter.shape)))
    out, columns = parameter.shape
    ours = fill(key, (experts * out, columns // experts)).view(experts, out, -1)
    return parameter.copy_(ours.permute(1, 2, 0).reshape(out, columns))


def adapted_by_peft(model, logprobs_of):
    """PEFT's names of the linear layers and experts, and its results with an adapter on each."""
    names = [name for name, _ in model.named_parameters() if name.endswith(EXPERTS)]
    adapted = peft.get_peft_model(
        model,
        peft.LoraConfig(
            r=3,
            lora_alpha=7,
            lora_dropout=0.0,
            target_modules="all-linear",
            target_parameters=list(EXPERTS) if names else None,
        ),
    )
    adapters = {}
    wrapped = {
        name.removeprefix("base_model.model."): module
        for name, module in adapted.named_modules()
        if isinstance(module, ParamWrapper)
    }
    for full, parameter in adapted.named_parameters():
        if "lora_" in full:
            full = full.removeprefix("base_model.model.").replace(".default", "")
            module, end = full.rsplit(".lora_", 1)
            experts = 1
            if module in wrapped:
                experts = wrapped[module].num_experts
                module = module.removesuffix(".base_layer") + "." + wrapped[module].parameter_name
            key = canonical(f"{module}.lora_{end}")
            adapters[key] = parameter
            with torch.no_grad():
                fill_adapter(parameter, key, experts)
    logprobs = logprobs_of(adapted)
    (-logprobs.sum()).backward()
    with tempfile.TemporaryDirectory() as folder:
        adapted.save_pretrained(folder)
        modules = [
            k.removeprefix("base_model.model.").removesuffix(".lora_A.weight")
            for k in load_file(folder + "/adapter_model.safetensors")
            if "lora_A" in k and ".experts." not in k
        ]
    return dict(
        **(dict(peft_experts=sorted(names)) if names else {}),
        peft=sorted(modules),
        lora_logprobs=rounded(logprobs),
        lora_gradient_norms={
            k: float(f"{p.grad.norm().item():.7g}") for k, p in sorted(adapters.items())
        },
    )


def bfloat16_deviation(model, inputs, logprobs_of):
    """The median, over models whose weights differ by a thousandth, of the largest difference
    between a log-probability in bfloat16 and in float32."""
    half = dict(inputs, pixel_values=inputs["pixel_values"].bfloat16())
    found = []
    for seed in range(41):
        torch.manual_seed(seed)
        other = copy.deepcopy(model)
        with torch.no_grad():
            for parameter in other.parameters():
                parameter.mul_(1 + 1e-3 * torch.randn_like(parameter))
            exact = logprobs_of(other(**inputs).logits.float())
            rounded_ = logprobs_of(other.bfloat16()(**half).logits.float())
        found.append((rounded_ - exact).abs().max())
    return float(f"{torch.stack(found).median().item():.3g}")


def main():
    processor = Qwen2VLImageProcessor(**PROCESSOR)
    plain = processor(
        [torch.from_numpy(photo(*p)).permute(2, 0, 1) for p in PHOTOS],
        do_rescale=False,
        do_normalize=False,
        return_tensors="pt",
    )
    ready = processor(
        [torch.from_numpy(photo(*p)).permute(2, 0, 1) for p in PHOTOS], return_tensors="pt"
    )
    grids = ready["image_grid_thw"]
    images, start = [], 0
    for _, h, w in grids.tolist():
        part = plain["pixel_values"][start : start + h * w].reshape(
            h // 2, w // 2, 2, 2, 3, 2, 4, 4
        )
        assert torch.equal(part[:, :, :, :, :, 0], part[:, :, :, :, :, 1])
        pixels = (
            part[:, :, :, :, :, 0]
            .permute(4, 0, 2, 5, 1, 3, 6)
            .reshape(3, h * 4, w * 4)
            .to(torch.uint8)
        )
        images.append(
            dict(
                height=h * 4,
                width=w * 4,
                fnv=fnv(pixels.flatten().tolist()),
                first=pixels.flatten()[:12].tolist(),
            )
        )
        start += h * w
    resized = [
        dict(
            side=f,
            least=low,
            most=high,
            sizes=[[w, h, *reversed(smart_resize(h, w, f, low, high))] for w, h in SIZES],
        )
        for f, low, high in BOUNDS
    ]
    golden = dict(
        made_with=(
            f"transformers {transformers.__version__}, peft {peft.__version__}, torch "
            f"{torch.__version__}"
        ),
        photos=PHOTOS,
        processor=PROCESSOR,
        images=images,
        resized=resized,
        cases={},
    )
    for name, case in CASES.items():
        model = build(case)
        ids, labels, mask, lengths = batch_of(grids.tolist())
        inputs = dict(
            input_ids=ids,
            attention_mask=mask,
            pixel_values=ready["pixel_values"],
            image_grid_thw=grids,
            mm_token_type_ids=(ids == IMAGE).int(),
        )
        checks = check_choices(model, mask, CLEAR["logits"])
        seen = {}
        hook = model.model.language_model.register_forward_pre_hook(
            lambda m, a, k: seen.update(k), with_kwargs=True
        )
        logits = model(**inputs).logits.float()
        hook.remove()
        positions = seen["position_ids"][-3:]
        kept = labels[:, 1:] != -100

        def logprobs_of(logits):
            return torch.log_softmax(logits[:, :-1], -1)[kept].gather(
                1, labels[:, 1:][kept][:, None]
            )[:, 0]

        logprobs = logprobs_of(logits)
        (-logprobs.sum()).backward()
        found = model.get_image_features(ready["pixel_values"], grids)
        gradients = {
            canonical(k): p.grad for k, p in model.named_parameters() if p.grad is not None
        }
        entry = dict(
            config=case,
            input_ids=ids.tolist(),
            labels=labels.tolist(),
            lengths=lengths,
            logprobs=rounded(logprobs),
            positions=[
                [positions[a][r][:n].tolist() for r, n in enumerate(lengths)] for a in range(3)
            ],
            last_logits=rounded(torch.stack([logits[r, n - 1] for r, n in enumerate(lengths)])),
            features=some(torch.cat(list(found.pooler_output))),
            deep=[some(d) for d in getattr(found, "deepstack_features", None) or []],
            gradient_norms={
                k: float(f"{g.norm().item():.7g}") for k, g in sorted(gradients.items())
            },
            gradients={k: rounded(g) for k, g in sorted(gradients.items()) if k.endswith(WHOLE)},
        )
        entry["stored"] = names_of(model)
        if checks:
            model.zero_grad()
            out = model(**inputs, output_router_logits=True)
            (BALANCE * out.aux_loss - logprobs_of(out.logits.float()).sum()).backward()
            entry["balance_loss"] = float(f"{out.aux_loss.item():.7g}")
            entry["balanced_gradient_norms"] = {
                canonical(k): float(f"{p.grad.norm().item():.7g}")
                for k, p in sorted(model.named_parameters())
            }
        for check in checks:
            check.remove()
        if name.startswith("qwen3_5"):
            entry["bfloat16_deviation"] = bfloat16_deviation(model, inputs, logprobs_of)
        check_choices(model, mask, 0)
        entry.update(adapted_by_peft(model, lambda m: logprobs_of(m(**inputs).logits.float())))
        golden["cases"][name] = entry
    golden["published"] = []
    for config in PUBLISHED.values():
        with torch.device("meta"):
            shapes = [
                p.numel()
                for p in AutoModelForImageTextToText.from_config(config_of(config)).parameters()
            ]
        golden["published"].append(dict(config=config, tensors=len(shapes), parameters=sum(shapes)))
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "qwen_vl.json")
    with open(path, "w") as f:
        json.dump(golden, f, separators=(",", ":"))
    print(path, os.path.getsize(path))


if __name__ == "__main__":
    main()
