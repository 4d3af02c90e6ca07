"""Tiny random checkpoints of the families beside LLaVA-1.5, with tokenizers and processors
of the published ones' form."""

import copy
import json
import pathlib

import torch
from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from transformers import (
    AutoTokenizer,
    CLIPVisionConfig,
    Gemma3Config,
    Gemma3ForConditionalGeneration,
    Gemma3ImageProcessor,
    Gemma3Processor,
    Idefics3Config,
    Idefics3ForConditionalGeneration,
    Idefics3Processor,
    LlamaConfig,
    LlavaConfig,
    LlavaForConditionalGeneration,
    LlavaImageProcessor,
    LlavaNextConfig,
    LlavaNextForConditionalGeneration,
    LlavaNextImageProcessor,
    LlavaNextProcessor,
    LlavaOnevisionConfig,
    LlavaOnevisionForConditionalGeneration,
    LlavaOnevisionImageProcessor,
    LlavaOnevisionProcessor,
    LlavaOnevisionVideoProcessor,
    LlavaProcessor,
    MistralConfig,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2VLImageProcessor,
    Qwen3VLConfig,
    Qwen3VLForConditionalGeneration,
    SiglipImageProcessor,
    SiglipVisionConfig,
    SmolVLMConfig,
    SmolVLMForConditionalGeneration,
)
from transformers.models.gemma3.modeling_gemma3 import Gemma3RMSNorm
from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil
from transformers.models.smolvlm.image_processing_pil_smolvlm import SmolVLMImageProcessorPil

from checkpoints import CORPUS, write_tokenizer

QWEN_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN_TOKENS = [
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    "<|image_pad|>",
    "<|video_pad|>",
]
WIDE_TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<image>", "<video>"]
GRID = [f"<row_{row}_col_{column}>" for row in range(1, 7) for column in range(1, 7)]
GEMMA_TOKENS = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>"]
GEMMA_TURNS = [
    "<start_of_turn>",
    "<end_of_turn>",
    "<start_of_image>",
    "<end_of_image>",
    "<image_soft_token>",
]
GEMMA_RUNS = ["\n" * count for count in range(1, 6)] + ["▁" * count for count in range(2, 5)]
SMOL_TOKENS = [
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<fake_token_around_image>",
    "<image>",
    "<end_of_utterance>",
    "<global-img>",
    *GRID,
]

QWEN25_TEMPLATE = (
    "{% for message in messages %}{% if loop.first and message['role'] != 'system' %}"
    "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n{% endif %}"
    "<|im_start|>{{ message['role'] }}\n"
    "{% if message['content'] is string %}{{ message['content'] }}<|im_end|>\n{% else %}"
    "{% for content in message['content'] %}"
    "{% if content['type'] == 'image' or 'image' in content %}"
    "<|vision_start|><|image_pad|><|vision_end|>"
    "{% elif 'text' in content %}{{ content['text'] }}{% endif %}{% endfor %}"
    "<|im_end|>\n{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
QWEN3_TEMPLATE = QWEN25_TEMPLATE.replace(
    "{% if loop.first and message['role'] != 'system' %}"
    "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n{% endif %}",
    "",
)
SMOL_TEMPLATE = (
    "<|im_start|>{% for message in messages %}{{message['role'] | capitalize}}"
    "{% if message['content'][0]['type'] == 'image' %}{{':'}}{% else %}{{': '}}{% endif %}"
    "{% for line in message['content'] %}{% if line['type'] == 'text' %}{{line['text']}}"
    "{% elif line['type'] == 'image' %}{{ '<image>' }}{% endif %}{% endfor %}"
    "<end_of_utterance>\n{% endfor %}"
    "{% if add_generation_prompt %}{{ 'Assistant:' }}{% endif %}"
)
GEMMA_TEMPLATE = (
    "{{ bos_token }}\n"
    "{%- if messages[0]['role'] == 'system' -%}\n"
    "    {%- if messages[0]['content'] is string -%}\n"
    "        {%- set first_user_prefix = messages[0]['content'] + '\n\n' -%}\n"
    "    {%- else -%}\n"
    "        {%- set first_user_prefix = messages[0]['content'][0]['text'] + '\n\n' -%}\n"
    "    {%- endif -%}\n"
    "    {%- set loop_messages = messages[1:] -%}\n"
    "{%- else -%}\n"
    '    {%- set first_user_prefix = "" -%}\n'
    "    {%- set loop_messages = messages -%}\n"
    "{%- endif -%}\n"
    "{%- for message in loop_messages -%}\n"
    "    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}\n"
    '        {{ raise_exception("Conversation roles must alternate '
    'user/assistant/user/assistant/...") }}\n'
    "    {%- endif -%}\n"
    "    {%- if (message['role'] == 'assistant') -%}\n"
    '        {%- set role = "model" -%}\n'
    "    {%- else -%}\n"
    "        {%- set role = message['role'] -%}\n"
    "    {%- endif -%}\n"
    "    {{ '<start_of_turn>' + role + '\n' + (first_user_prefix if loop.first else \"\") }}\n"
    "    {%- if message['content'] is string -%}\n"
    "        {{ message['content'] | trim }}\n"
    "    {%- elif message['content'] is iterable -%}\n"
    "        {%- for item in message['content'] -%}\n"
    "            {%- if item['type'] == 'image' -%}\n"
    "                {{ '<start_of_image>' }}\n"
    "            {%- elif item['type'] == 'text' -%}\n"
    "                {{ item['text'] | trim }}\n"
    "            {%- endif -%}\n"
    "        {%- endfor -%}\n"
    "    {%- else -%}\n"
    '        {{ raise_exception("Invalid content type") }}\n'
    "    {%- endif -%}\n"
    "    {{ '<end_of_turn>\n' }}\n"
    "{%- endfor -%}\n"
    "{%- if add_generation_prompt -%}\n"
    "    {{'<start_of_turn>model\n'}}\n"
    "{%- endif -%}\n"
)
# As the llava-hf checkpoints have them: the images first, then the texts.
# IN_PLACE keeps each image where it stands.
VICUNA_TEMPLATE = (
    "{% for message in messages %}{% if message['role'] != 'system' %}"
    "{{ message['role'].upper() + ': ' }}{% endif %}"
    "{% for content in message['content'] | selectattr('type', 'equalto', 'image') %}"
    "{{ '<image>\n' }}{% endfor %}"
    "{% for content in message['content'] | selectattr('type', 'equalto', 'text') %}"
    "{{ content['text'] + ' ' }}{% endfor %}"
    "{% endfor %}{% if add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %}"
)
MISTRAL_TEMPLATE = (
    "{% for message in messages %}{% if message['role'] == 'system' %}"
    "{{ '<<SYS>>\n' + message['content'][0]['text'] + '\n<</SYS>>\n\n' }}"
    "{% elif message['role'] == 'user' %}{{ '[INST] ' }}"
    "{% for content in message['content'] | selectattr('type', 'equalto', 'image') %}"
    "{{ '<image>\n' }}{% endfor %}"
    "{% for content in message['content'] | selectattr('type', 'equalto', 'text') %}"
    "{{ content['text'] }}{% endfor %}{{ ' [/INST]' }}"
    "{% elif message['role'] == 'assistant' %}{{ ' ' + message['content'][0]['text'] + '</s> ' }}"
    "{% endif %}{% endfor %}"
)
ONEVISION_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' }}"
    "{% for content in message['content'] | selectattr('type', 'equalto', 'image') %}"
    "{{ '<image>\n' }}{% endfor %}"
    "{% for content in message['content'] | selectattr('type', 'equalto', 'text') %}"
    "{{ content['text'] }}{% endfor %}"
    "{{ '<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def train_byte_bpe(special, split):
    """A byte-level BPE with the pre-tokenizers `split`; special tokens behind the vocabulary,
    as the published ones have them."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(split)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=500,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
        min_frequency=2,
    )
    tokenizer.train_from_iterator(CORPUS.splitlines(), trainer)
    for token in special:
        tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False)])
    return tokenizer


def qwen_tokenizer(special=QWEN_TOKENS):
    tokenizer = train_byte_bpe(
        special,
        [
            pre_tokenizers.Split(Regex(QWEN_SPLIT), behavior="isolated", invert=False),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ],
    )
    tokenizer.normalizer = normalizers.NFC()
    return tokenizer


def smol_tokenizer():
    return train_byte_bpe(
        SMOL_TOKENS,
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ],
    )


def train_gemma_sentencepiece(path):
    """As Gemma's is made: writes tokenizer.model, whose turns and runs are symbols of their own;
    vocabulary and merges as transformers converts them."""
    import sentencepiece
    from transformers.convert_slow_tokenizer import generate_merges

    symbols = [*GEMMA_TOKENS[4:], *GEMMA_TURNS[:4], *GEMMA_RUNS]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS.splitlines()),
        model_prefix=str(path / "tokenizer"),
        model_type="bpe",
        vocab_size=520,
        byte_fallback=True,
        split_digits=True,
        allow_whitespace_only_pieces=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        add_dummy_prefix=False,
        character_coverage=1.0,
        user_defined_symbols=symbols,
        **{f"{name}_id": number for number, name in enumerate(["pad", "eos", "bos", "unk"])},
        **{f"{name}_piece": f"<{name}>" for name in ["pad", "eos", "bos", "unk"]},
        minloglevel=2,
        num_threads=1,
    )
    (path / "tokenizer.vocab").unlink()
    model = sentencepiece.SentencePieceProcessor(model_file=str(path / "tokenizer.model"))
    pieces = [model.id_to_piece(number) for number in range(model.get_piece_size())]
    vocab = {piece: number for number, piece in enumerate(pieces)}
    merges = generate_merges(
        vocab, [(piece, model.get_score(number)) for number, piece in enumerate(pieces)]
    )
    return vocab, merges


def train_gemma_bpe():
    first = [
        *GEMMA_TOKENS,
        *GEMMA_TURNS[:4],
        *GEMMA_RUNS,
        *(f"<0x{byte:02X}>" for byte in range(256)),
    ]
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    trainer = trainers.BpeTrainer(
        vocab_size=600, show_progress=False, min_frequency=2, special_tokens=first
    )
    tokenizer.train_from_iterator(
        [line[at : at + 40] for line in CORPUS.splitlines() for at in range(0, len(line), 40)],
        trainer,
    )
    model = json.loads(tokenizer.to_str())["model"]
    return model["vocab"], [tuple(merge) for merge in model["merges"]]


def gemma_tokenizer(path, spec):
    """As Gemma's: bytes for what it does not know, no prefix, runs of newlines and spaces as tokens
    of their own; the image's token last."""
    vocab, merges = (
        train_gemma_sentencepiece(path) if spec.get("sentencepiece") else train_gemma_bpe()
    )
    tokenizer = Tokenizer(
        models.BPE(vocab=vocab, merges=merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True)
    )
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.pre_tokenizer = pre_tokenizers.Split(
        " ", behavior="merged_with_previous", invert=False
    )
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    for token in [*GEMMA_TOKENS, *GEMMA_TURNS[:4]]:
        tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False)])
    tokenizer.add_tokens(
        [AddedToken(token, special=False, normalized=False) for token in GEMMA_RUNS]
    )
    tokenizer.add_special_tokens([AddedToken(GEMMA_TURNS[4], special=True, normalized=False)])
    begin = tokenizer.token_to_id("<bos>")
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<bos> $A", pair="<bos> $A <bos> $B", special_tokens=[("<bos>", begin)]
    )
    return tokenizer


def qwen_vision(kind, **changes):
    return dict(
        depth=4, num_heads=4, patch_size=14, temporal_patch_size=2, spatial_merge_size=2, **changes
    )


# family: which class; the rest are config arguments.
SPECS = {
    "qwen25_gqa": dict(
        family="qwen2_5_vl",
        text=dict(
            hidden_size=64,
            intermediate_size=112,
            num_hidden_layers=3,
            num_attention_heads=4,
            num_key_value_heads=2,
        ),
        vision=dict(
            depth=4,
            hidden_size=48,
            intermediate_size=72,
            num_heads=2,
            window_size=56,
            fullatt_block_indexes=[1, 3],
        ),
        mrope=[2, 3, 3],
        pixels=(28 * 28 * 4, 28 * 28 * 40),
    ),
    "qwen25_tied_bf16": dict(
        family="qwen2_5_vl",
        text=dict(
            hidden_size=48,
            intermediate_size=80,
            num_hidden_layers=2,
            num_attention_heads=3,
            num_key_value_heads=1,
        ),
        vision=dict(
            depth=3,
            hidden_size=32,
            intermediate_size=56,
            num_heads=2,
            window_size=112,
            fullatt_block_indexes=[2],
        ),
        mrope=[2, 3, 3],
        tie=True,
        dtype=torch.bfloat16,
        pixels=(28 * 28 * 4, 28 * 28 * 30),
    ),
    "qwen25_shards": dict(
        family="qwen2_5_vl",
        text=dict(
            hidden_size=64,
            intermediate_size=96,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=2,
            rms_norm_eps=1e-5,
        ),
        vision=dict(
            depth=2,
            hidden_size=40,
            intermediate_size=64,
            num_heads=2,
            window_size=56,
            fullatt_block_indexes=[0],
        ),
        mrope=[4, 6, 6],
        shards=True,
        pixels=(28 * 28 * 4, 28 * 28 * 50),
    ),
    "qwen3_gqa": dict(
        family="qwen3_vl",
        text=dict(
            hidden_size=64,
            intermediate_size=112,
            num_hidden_layers=4,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=24,
        ),
        vision=dict(
            depth=4,
            hidden_size=48,
            intermediate_size=72,
            num_heads=2,
            num_position_embeddings=64,
            deepstack_visual_indexes=[0, 2],
        ),
        mrope=[4, 4, 4],
        pixels=(32 * 32 * 4, 32 * 32 * 40),
    ),
    "qwen3_tied": dict(
        family="qwen3_vl",
        text=dict(
            hidden_size=48,
            intermediate_size=80,
            num_hidden_layers=3,
            num_attention_heads=3,
            num_key_value_heads=3,
            head_dim=16,
        ),
        vision=dict(
            depth=3,
            hidden_size=32,
            intermediate_size=56,
            num_heads=2,
            num_position_embeddings=144,
            deepstack_visual_indexes=[1],
        ),
        mrope=[4, 2, 2],
        tie=True,
        pixels=(32 * 32 * 4, 32 * 32 * 30),
    ),
    "qwen3_bf16_shards": dict(
        family="qwen3_vl",
        text=dict(
            hidden_size=64,
            intermediate_size=96,
            num_hidden_layers=3,
            num_attention_heads=2,
            num_key_value_heads=1,
            head_dim=32,
        ),
        vision=dict(
            depth=3,
            hidden_size=64,
            intermediate_size=96,
            num_heads=4,
            num_position_embeddings=256,
            deepstack_visual_indexes=[0, 1, 2],
        ),
        mrope=[6, 5, 5],
        dtype=torch.bfloat16,
        shards=True,
        pixels=(32 * 32 * 4, 32 * 32 * 50),
    ),
    "smol_tied": dict(
        family="smolvlm",
        text=dict(
            hidden_size=48,
            intermediate_size=96,
            num_hidden_layers=3,
            num_attention_heads=3,
            num_key_value_heads=1,
        ),
        vision=dict(
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=3,
            num_attention_heads=4,
            image_size=64,
            patch_size=8,
        ),
        scale=4,
        tie=True,
        longest=256,
    ),
    "smol_bf16": dict(
        family="smolvlm",
        text=dict(
            hidden_size=64,
            intermediate_size=112,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
        ),
        vision=dict(
            hidden_size=48,
            intermediate_size=72,
            num_hidden_layers=2,
            num_attention_heads=4,
            image_size=48,
            patch_size=6,
        ),
        scale=2,
        dtype=torch.bfloat16,
        longest=144,
    ),
    "idefics3_shards": dict(
        family="idefics3",
        text=dict(
            hidden_size=64,
            intermediate_size=96,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=2,
            rms_norm_eps=1e-6,
        ),
        vision=dict(
            hidden_size=32,
            intermediate_size=48,
            num_hidden_layers=3,
            num_attention_heads=2,
            image_size=56,
            patch_size=14,
        ),
        scale=2,
        shards=True,
        longest=168,
    ),
    # Windows far shorter than the texts, and than an image.
    "gemma_gqa": dict(
        family="gemma3",
        text=dict(
            hidden_size=56,
            intermediate_size=96,
            num_hidden_layers=4,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=16,
            query_pre_attn_scalar=16,
            sliding_window=11,
            sliding_window_pattern=3,
        ),
        vision=dict(
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=3,
            num_attention_heads=4,
            image_size=56,
            patch_size=7,
            vision_use_head=False,
        ),
        side=4,
    ),
    "gemma_bf16": dict(
        family="gemma3",
        text=dict(
            hidden_size=48,
            intermediate_size=72,
            num_hidden_layers=3,
            num_attention_heads=3,
            num_key_value_heads=1,
            head_dim=20,
            query_pre_attn_scalar=11,
            sliding_window=24,
            sliding_window_pattern=2,
            rope_local_base_freq=777.0,
        ),
        vision=dict(
            hidden_size=48,
            intermediate_size=72,
            num_hidden_layers=2,
            num_attention_heads=4,
            image_size=45,
            patch_size=5,
        ),
        side=3,
        dtype=torch.bfloat16,
    ),
    "gemma_shards": dict(
        family="gemma3",
        text=dict(
            hidden_size=64,
            intermediate_size=88,
            num_hidden_layers=3,
            num_attention_heads=2,
            num_key_value_heads=2,
            head_dim=24,
            query_pre_attn_scalar=32,
            sliding_window=40,
            attention_bias=True,
            rms_norm_eps=1e-5,
            layer_types=["full_attention", "sliding_attention", "sliding_attention"],
        ),
        vision=dict(
            hidden_size=32,
            intermediate_size=48,
            num_hidden_layers=3,
            num_attention_heads=2,
            image_size=60,
            patch_size=10,
        ),
        side=6,
        sentencepiece=True,
        tie=False,
        shards=True,
    ),
    "llava_mistral": dict(
        family="llava",
        decoder="mistral",
        tower="clip",
        text=dict(
            hidden_size=48,
            intermediate_size=96,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=16,
        ),
        vision=dict(
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=3,
            num_attention_heads=4,
            image_size=28,
            patch_size=7,
        ),
        shards=True,
    ),
    "llava_qwen2_siglip": dict(
        family="llava",
        decoder="qwen2",
        tower="siglip",
        text=dict(
            hidden_size=48,
            intermediate_size=80,
            num_hidden_layers=3,
            num_attention_heads=3,
            num_key_value_heads=1,
        ),
        vision=dict(
            hidden_size=32,
            intermediate_size=56,
            num_hidden_layers=3,
            num_attention_heads=2,
            image_size=42,
            patch_size=14,
        ),
        tie=True,
    ),
    "llava_llama_siglip_bf16": dict(
        family="llava",
        decoder="llama",
        tower="siglip",
        text=dict(
            hidden_size=64,
            intermediate_size=96,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=2,
        ),
        vision=dict(
            hidden_size=48,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            image_size=32,
            patch_size=8,
            vision_use_head=False,
        ),
        layer=[-1, 1],
        dtype=torch.bfloat16,
    ),
    "next_mistral": dict(
        family="llava_next",
        decoder="mistral",
        tower="clip",
        text=dict(
            hidden_size=64,
            intermediate_size=112,
            num_hidden_layers=3,
            num_attention_heads=4,
            num_key_value_heads=2,
        ),
        vision=dict(
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=3,
            num_attention_heads=4,
            image_size=28,
            patch_size=7,
        ),
        canvases=[[28, 56], [56, 28], [56, 56], [84, 28], [28, 84]],
    ),
    "next_llama_bf16": dict(
        family="llava_next",
        decoder="llama",
        tower="clip",
        text=dict(
            hidden_size=48,
            intermediate_size=80,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=4,
        ),
        vision=dict(
            hidden_size=48,
            intermediate_size=72,
            num_hidden_layers=2,
            num_attention_heads=4,
            image_size=30,
            patch_size=6,
        ),
        canvases=[[30, 60], [60, 30], [60, 60]],
        dtype=torch.bfloat16,
    ),
    "next_qwen2_shards": dict(
        family="llava_next",
        decoder="qwen2",
        tower="clip",
        text=dict(
            hidden_size=48,
            intermediate_size=96,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=1,
        ),
        vision=dict(
            hidden_size=32,
            intermediate_size=48,
            num_hidden_layers=3,
            num_attention_heads=2,
            image_size=42,
            patch_size=14,
        ),
        layer=[1, -1],
        canvases=[[42, 84], [84, 42], [84, 84], [126, 42]],
        shards=True,
    ),
    # Photographs of three tiles to a side: the features are shrunk.
    "onevision": dict(
        family="llava_onevision",
        decoder="qwen2",
        tower="siglip",
        text=dict(
            hidden_size=64,
            intermediate_size=112,
            num_hidden_layers=3,
            num_attention_heads=4,
            num_key_value_heads=2,
        ),
        vision=dict(
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=3,
            num_attention_heads=4,
            image_size=28,
            patch_size=7,
            vision_use_head=False,
        ),
        canvases=[[28 * rows, 28 * columns] for rows in (1, 2, 3) for columns in (1, 2, 3)],
        aspect="anyres_max_4",
    ),
    "onevision_tied_bf16": dict(
        family="llava_onevision",
        decoder="qwen2",
        tower="siglip",
        text=dict(
            hidden_size=48,
            intermediate_size=80,
            num_hidden_layers=2,
            num_attention_heads=3,
            num_key_value_heads=3,
        ),
        vision=dict(
            hidden_size=48,
            intermediate_size=72,
            num_hidden_layers=2,
            num_attention_heads=4,
            image_size=36,
            patch_size=6,
        ),
        canvases=[[36 * rows, 36 * columns] for rows in (1, 2, 3) for columns in (1, 2)],
        tie=True,
        dtype=torch.bfloat16,
    ),
    "onevision_shards": dict(
        family="llava_onevision",
        decoder="qwen2",
        tower="siglip",
        text=dict(
            hidden_size=64,
            intermediate_size=96,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=1,
            rms_norm_eps=1e-5,
        ),
        vision=dict(
            hidden_size=32,
            intermediate_size=48,
            num_hidden_layers=3,
            num_attention_heads=2,
            image_size=56,
            patch_size=14,
        ),
        layer=-2,
        canvases=[[56, 56], [56, 112], [112, 56], [112, 112], [168, 112]],
        aspect="anyres_max_1",
        shards=True,
    ),
}
WIDE = ("llava", "llava_next", "llava_onevision")


def qwen_config(spec, tokenizer, vocab):
    size = 14 if spec["family"] == "qwen2_5_vl" else 16
    vision = dict(
        spec["vision"],
        patch_size=size,
        temporal_patch_size=2,
        spatial_merge_size=2,
        out_hidden_size=spec["text"]["hidden_size"],
    )
    rope = dict(rope_type="default", rope_theta=10000.0, mrope_section=spec["mrope"])
    if spec["family"] == "qwen3_vl":
        rope["mrope_interleaved"] = True
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
    kind = Qwen2_5_VLConfig if spec["family"] == "qwen2_5_vl" else Qwen3VLConfig
    return kind(
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


CLASSES = dict(
    gemma3=Gemma3ForConditionalGeneration,
    llava=LlavaForConditionalGeneration,
    llava_next=LlavaNextForConditionalGeneration,
    llava_onevision=LlavaOnevisionForConditionalGeneration,
    qwen2_5_vl=Qwen2_5_VLForConditionalGeneration,
    qwen3_vl=Qwen3VLForConditionalGeneration,
    smolvlm=SmolVLMForConditionalGeneration,
    idefics3=Idefics3ForConditionalGeneration,
)
TEMPLATES = dict(
    gemma3=GEMMA_TEMPLATE,
    qwen2_5_vl=QWEN25_TEMPLATE,
    qwen3_vl=QWEN3_TEMPLATE,
    smolvlm=SMOL_TEMPLATE,
    idefics3=SMOL_TEMPLATE,
)


def template_of(spec):
    """The chat template that such a checkpoint is published with."""
    if spec["family"] not in WIDE:
        return TEMPLATES[spec["family"]]
    return dict(llama=VICUNA_TEMPLATE, mistral=MISTRAL_TEMPLATE, qwen2=ONEVISION_TEMPLATE)[
        spec["decoder"]
    ]


def wide_tokenizer(path, spec):
    """Writes and returns the tokenizer of a LLaVA's decoder: Qwen2's form,
    or Llama's and Mistral's."""
    if spec["decoder"] != "qwen2":
        write_tokenizer(path, dict(prefix="normalizer"))
        return Tokenizer.from_file(str(path / "tokenizer.json"))
    tokenizer = qwen_tokenizer(WIDE_TOKENS)
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<|im_end|>", pad_token="<|endoftext|>"
    ).save_pretrained(path)
    return tokenizer


def write_wide_processor(path, spec):
    """The processor of a LLaVA of another tower or decoder,
    whose tokenizer lies in `path` already."""
    tokenizer = AutoTokenizer.from_pretrained(path)
    tokenizer.chat_template = template_of(spec)
    side, patch = spec["vision"]["image_size"], spec["vision"]["patch_size"]
    siglip = spec["tower"] == "siglip"
    strategy = "full" if siglip else "default"
    square = dict(height=side, width=side)
    if spec["family"] == "llava_onevision":
        LlavaOnevisionProcessor(
            LlavaOnevisionImageProcessor(
                size=square,
                image_grid_pinpoints=spec["canvases"],
                image_mean=[0.5] * 3,
                image_std=[0.5] * 3,
            ),
            tokenizer,
            LlavaOnevisionVideoProcessor(size=square),
            num_image_tokens=(side // patch) ** 2,
            vision_feature_select_strategy=strategy,
            vision_aspect_ratio=spec.get("aspect", "anyres_max_9"),
        ).save_pretrained(path)
        return
    if spec["family"] == "llava_next":
        images = LlavaNextImageProcessor(
            size=dict(shortest_edge=side), crop_size=square, image_grid_pinpoints=spec["canvases"]
        )
        kind = LlavaNextProcessor
    else:
        images = (
            SiglipImageProcessor(size=square, resample=3)
            if siglip
            else LlavaImageProcessor(size=dict(shortest_edge=side), crop_size=square)
        )
        kind = LlavaProcessor
    kind(
        images,
        tokenizer,
        patch_size=patch,
        vision_feature_select_strategy=strategy,
        num_additional_image_tokens=0 if siglip else 1,
    ).save_pretrained(path)


def write_gemma_processor(path, spec, tokenizer):
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<bos>",
        eos_token="<eos>",
        pad_token="<pad>",
        unk_token="<unk>",
        extra_special_tokens=dict(
            image_token="<image_soft_token>",
            boi_token="<start_of_image>",
            eoi_token="<end_of_image>",
        ),
        chat_template=GEMMA_TEMPLATE,
    )
    side = spec["vision"]["image_size"]
    Gemma3Processor(
        Gemma3ImageProcessor(size=dict(height=side, width=side)),
        fast,
        chat_template=GEMMA_TEMPLATE,
        image_seq_length=spec["side"] ** 2,
    ).save_pretrained(path)


def write_processor(path, spec, tokenizer):
    """Tokenizer and image processor files as save_pretrained writes them."""
    smol = spec["family"] in ("smolvlm", "idefics3")
    end = "<end_of_utterance>" if smol else "<|im_end|>"
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<|im_start|>" if smol else None,
        eos_token=end,
        pad_token="<|im_end|>" if smol else "<|endoftext|>",
        unk_token="<|endoftext|>",
        chat_template=TEMPLATES[spec["family"]],
    )
    fast.save_pretrained(path)
    if not smol:
        patch = 14 if spec["family"] == "qwen2_5_vl" else 16
        shortest, longest = spec["pixels"]
        mean = dict(image_mean=[0.5] * 3, image_std=[0.5] * 3) if patch == 16 else {}
        Qwen2VLImageProcessor(
            patch_size=patch,
            merge_size=2,
            temporal_patch_size=2,
            size=dict(shortest_edge=shortest, longest_edge=longest),
            **mean,
        ).save_pretrained(path)
        return
    kind = SmolVLMImageProcessorPil if spec["family"] == "smolvlm" else Idefics3ImageProcessorPil
    side = spec["vision"]["image_size"]
    images = kind(
        size=dict(longest_edge=spec["longest"]),
        max_image_size=dict(longest_edge=side),
        do_image_splitting=True,
    )
    sequence = (side // spec["vision"]["patch_size"]) ** 2 // spec["scale"] ** 2
    Idefics3Processor(
        images, fast, image_seq_len=sequence, chat_template=TEMPLATES[spec["family"]]
    ).save_pretrained(path)


def random_weights(model, seed):
    """Unit-variance activations all the way down, as checkpoints.random_weights has them;
    special tokens are never the likeliest but for the one that ends answers."""
    generator = torch.Generator().manual_seed(seed)
    zero_centred = {
        id(module.weight) for module in model.modules() if isinstance(module, Gemma3RMSNorm)
    }
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if "norm" in name or "ln_q" in name:
                parameter.copy_(
                    noise * 0.1
                    + (1 if name.endswith("weight") and id(parameter) not in zero_centred else 0)
                )
            elif parameter.dim() == 1:
                parameter.copy_(noise * 0.2)
            else:
                fan_in = parameter[0].numel()
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


def build(name, path, seed=0):
    """Writes checkpoint `name` of SPECS into `path` (an HF model directory)
    and returns the path."""
    spec = copy.deepcopy(SPECS[name])
    path = pathlib.Path(path)
    path.mkdir(parents=True)
    smol, wide, gemma = (
        spec["family"] in ("smolvlm", "idefics3"),
        spec["family"] in WIDE,
        spec["family"] == "gemma3",
    )
    tokenizer = (
        smol_tokenizer()
        if smol
        else wide_tokenizer(path, spec)
        if wide
        else gemma_tokenizer(path, spec)
        if gemma
        else qwen_tokenizer()
    )
    vocab = spec.get("vocab", (tokenizer.get_vocab_size() + 63) // 64 * 64)
    config = (
        smol_config if smol else wide_config if wide else gemma_config if gemma else qwen_config
    )(spec, tokenizer, vocab)
    if wide:
        write_wide_processor(path, spec)
    elif gemma:
        write_gemma_processor(path, spec, tokenizer)
    else:
        write_processor(path, spec, tokenizer)
    model = CLASSES[spec["family"]](config)
    random_weights(model, seed)
    model = model.to(spec.get("dtype", torch.float32))
    model.config.dtype = spec.get("dtype", torch.float32)
    model.save_pretrained(path, max_shard_size="150KB" if spec.get("shards") else "5GB")
    generation = path / "generation_config.json"
    if generation.exists():
        data = json.loads(generation.read_text())
        data["eos_token_id"] = config.text_config.eos_token_id
        generation.write_text(json.dumps(data, indent=2))
    return path
