"""Tokenizers in the published form, trained on a few sentences."""

import json

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
from transformers import PreTrainedTokenizerFast

from checkpoints import CORPUS, write_tokenizer

QWEN_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# Qwen3.5: marks belong to the letters before them.
QWEN35_SPLIT = QWEN_SPLIT.replace(r"\p{L}+", r"[\p{L}\p{M}]+").replace(
    r"[^\s\p{L}\p{N}]", r"[^\s\p{L}\p{M}\p{N}]"
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
INTERN_TOKENS = [
    *"<|endoftext|> <|im_start|> <|im_end|> <img> </img> <IMG_CONTEXT> <video>".split()
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


def train_byte_bpe(special, split):
    """A byte-level BPE with the pre-tokenizers `split`; special tokens after the vocabulary,
    as in the published ones."""
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


def qwen_tokenizer(special=QWEN_TOKENS, split=QWEN_SPLIT):
    tokenizer = train_byte_bpe(
        special,
        [
            pre_tokenizers.Split(Regex(split), behavior="isolated", invert=False),
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
    """Built like Gemma's: writes tokenizer.model, whose turns and runs are separate symbols;
    returns vocabulary and merges as converted by transformers."""
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
    """Like Gemma's: byte fallback, no prefix, runs of newlines and spaces as separate
    tokens; the image token last."""
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
