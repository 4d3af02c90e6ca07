"""Writes the small tokenizers of this folder and ids.json, the ids and decoded texts
that transformers produces for them.

Run with transformers, tokenizers and sentencepiece installed (scripts/peers.txt):
  python make_tokenizers.py
Everything is derived from the words below with fixed seeds; the versions used are written into
ids.json.
"""

import io
import json
import random
import shutil
import tempfile
from pathlib import Path

import sentencepiece
import tokenizers
import transformers
from tokenizers import (
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from transformers import AutoTokenizer
from transformers.convert_slow_tokenizer import generate_merges, import_protobuf

HERE = Path(__file__).resolve().parent
SPACE = "\u2581"
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
WORDS = """a an the this that is are was what which where how many in on under beside picture \
image photo shows one two three cat dog bird tree
house street red green blue yellow small large round square circle triangle person people standing \
sitting holding near color colour number
answer question user assistant USER ASSISTANT chat between curious artificial intelligence \
gives helpful detailed polite answers
caf\u00e9 na\u00efve 12 345 6 don't it's they're \u4f60\u597d \u4e16\u754c""".split()


def corpus(seed, lines=400):
    rng = random.Random(seed)
    out = []
    for _ in range(lines):
        line = " ".join(rng.choice(WORDS) for _ in range(rng.randint(3, 14)))
        out.append(line[0].upper() + line[1:] + rng.choice([".", "?", "!", ":", ","]))
    return out


def train_spm(kind, vocab_size, **options):
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(corpus(1)),
        model_writer=out,
        model_type=kind,
        vocab_size=vocab_size,
        byte_fallback=True,
        character_coverage=1.0,
        num_threads=1,
        minloglevel=2,
        **options,
    )
    proto = import_protobuf().ModelProto()
    proto.ParseFromString(out.getvalue())
    proto.normalizer_spec.normalization_rule_tsv = ""  # a temporary file name
    return proto.SerializeToString(deterministic=True)


LLAMA_SPM = dict(
    normalization_rule_name="identity",
    remove_extra_whitespaces=False,
    split_digits=True,
    allow_whitespace_only_pieces=True,
)


def pieces(spm):
    proto = import_protobuf().ModelProto()
    proto.ParseFromString(spm)
    return [(p.piece, p.score) for p in proto.pieces]


def added(id, content, **flags):
    base = dict(
        id=id,
        content=content,
        single_word=False,
        lstrip=False,
        rstrip=False,
        normalized=False,
        special=True,
    )
    return {**base, **flags}


def bos_template(id, name="<s>"):
    def special(type_id):
        return {"SpecialToken": {"id": name, "type_id": type_id}}

    def text(which, type_id):
        return {"Sequence": {"id": which, "type_id": type_id}}

    return {
        "type": "TemplateProcessing",
        "single": [special(0), text("A", 0)],
        "pair": [special(0), text("A", 0), special(1), text("B", 1)],
        "special_tokens": {name: {"id": name, "ids": [id], "tokens": [name]}},
    }


def llama_decoder(strip=True):
    steps = [
        {"type": "Replace", "pattern": {"String": SPACE}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
    ]
    return {
        "type": "Sequence",
        "decoders": steps
        + ([{"type": "Strip", "content": " ", "start": 1, "stop": 0}] if strip else []),
    }


def llama_json(spm, merges_as_text=False, more=(), **parts):
    scored = pieces(spm)
    vocab = {piece: i for i, (piece, _) in enumerate(scored)}
    merges = [list(pair) for pair in generate_merges(vocab, scored)]
    size = len(vocab)
    tokens = [
        added(0, "<unk>"),
        added(1, "<s>"),
        added(2, "</s>"),
        added(size, "<image>"),
        added(size + 1, "<pad>"),
    ]
    tokens += [added(size + 2 + i, content, **flags) for i, (content, flags) in enumerate(more)]
    json_parts = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": tokens,
        "normalizer": None,
        "pre_tokenizer": None,
        "post_processor": bos_template(1),
        "decoder": llama_decoder(),
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": "<unk>",
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": True,
            "byte_fallback": True,
            "ignore_merges": False,
            "vocab": vocab,
            "merges": [" ".join(pair) for pair in merges] if merges_as_text else merges,
        },
    }
    model = parts.pop("model", {})
    json_parts.update(parts)
    json_parts["model"].update(model)
    return json_parts


def metaspace(scheme, split=False):
    return {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": scheme, "split": split}


LEGACY = {
    "type": "Sequence",
    "normalizers": [
        {"type": "Prepend", "prepend": SPACE},
        {"type": "Replace", "pattern": {"String": " "}, "content": SPACE},
    ],
}
CONFIG = {
    "tokenizer_class": "LlamaTokenizer",
    "bos_token": "<s>",
    "eos_token": "</s>",
    "unk_token": "<unk>",
    "pad_token": "<pad>",
    "legacy": False,
    "add_bos_token": True,
    "add_eos_token": False,
    "clean_up_tokenization_spaces": False,
}


def byte_level(pre_tokenizer, ignore_merges, post=True):
    tokenizer = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=500,
        special_tokens=[],
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator(corpus(2), trainer)
    out = json.loads(tokenizer.to_str())
    size = len(out["model"]["vocab"])
    names = ["<|begin_of_text|>", "<|eot_id|>", "<image>", "<pad>"]
    out["added_tokens"] = [added(size + i, name) for i, name in enumerate(names)]
    level = {
        "type": "ByteLevel",
        "add_prefix_space": True,
        "trim_offsets": False,
        "use_regex": True,
    }
    out["post_processor"] = (
        {"type": "Sequence", "processors": [level, bos_template(size, names[0])]} if post else level
    )
    return out


def write(name, tokenizer=None, spm=None, **files):
    folder = HERE / name
    folder.mkdir()
    if tokenizer is not None:
        (folder / "tokenizer.json").write_text(
            json.dumps(tokenizer, ensure_ascii=False, separators=(",", ":")) + "\n"
        )
    if spm is not None:
        (folder / "tokenizer.model").write_bytes(spm)
    for key, value in files.items():
        (folder / f"{key}.json").write_text(json.dumps(value, ensure_ascii=False, indent=1) + "\n")


def texts():
    rng = random.Random(3)
    fixed = [
        "",
        " ",
        "  ",
        "\n",
        "a",
        " a",
        "a ",
        "  a  b   c ",
        "\t\ttab\tand\nnewline\r\n\r\n end",
        SPACE,
        SPACE + "a",
        SPACE * 3 + " a",
        "a" + SPACE + "b",
        "Hello world",
        "The picture shows a cat.",
        "USER: <image>\nWhat is this? ASSISTANT: a cat</s>",
        "USER: <image>\nHow many? ASSISTANT: two</s>USER: Where? ASSISTANT: on the street</s>",
        "A chat between a curious user and an artificial intelligence assistant. USER: <image>\n"
        "<image>\nWhich one? ASSISTANT:",
        "<image>",
        " <image> ",
        "<image><image>",
        "a<image>b",
        "a <image> b",
        "</s>USER:",
        "<s>",
        "x<s>y</s>z",
        "<pad>",
        "<unk>",
        "<imag",
        "<image",
        "don't, it's THEY'RE we\u2019ll I'M",
        "12345678 3.14 1e-5 1,000",
        "\u4f60\u597d\u4e16\u754c \u4e16\u754c\u3002",
        "\U0001f600 \U0001f468\u200d\U0001f469\u200d\U0001f467 ok",
        "e\u0301 cafe\u0301 caf\u00e9 na\u00efve",
        "\u0627\u0644\u0633\u0644\u0627\u0645 \u05e9\u05dc\u05d5\u05dd",
        "\x00a\x00",
        "\x01\x02\x7f\x1b[0m",
        "\u00a0nbsp\u3000wide\u2028line\u200bzero\u180e\u0085",
        "\ufb01\uff21\uff22\u2460\u00bd",
        "\ufffd",
        "\U0010ffff\ufffe",
        "<0x0A> <0xE2>",
        "<x> <y>z <Y> < x >",
        "foo <ls> bar<rs>  baz <w>w<w> <w> w<w>.",
        "big<norm> <norm>thing <norm>",
        "<plain>a <plain>",
        "word" * 100,
        "a" * 1000,
        " " * 300 + "x",
        "\n" * 50,
        ("The cat sat on the street. " * 20).strip(),
        "".join(chr(c) for c in range(32, 127)),
    ]
    alphabet = (
        "a|the| |  |\n|\t|cat|USER:|</s>|<image>|\u2581|\u00e9|\u4f60|\U0001f600|"
        "'s|12|.|!?|<x>|<w>|<ls>|<rs>|<norm>|\u0301|\x00"
    ).split("|")
    return fixed + [
        "".join(rng.choice(alphabet) for _ in range(rng.randint(1, 18))) for _ in range(40)
    ]


def make():
    spm = train_spm("bpe", 620, **LLAMA_SPM)
    flags = [
        ("<ls>", dict(lstrip=True)),
        ("<rs>", dict(rstrip=True)),
        ("<w>", dict(single_word=True)),
        ("<norm>", dict(normalized=True, special=False)),
        ("<plain>", dict(special=False)),
        ("<x>", dict(special=False, lstrip=True, rstrip=True)),
        ("<Y>", dict(normalized=True, special=True)),
    ]
    write(
        "llama_legacy",
        llama_json(spm, merges_as_text=True, normalizer=LEGACY),
        tokenizer_config=CONFIG,
    )
    write(
        "llama_legacy_model",
        llama_json(spm, normalizer=LEGACY, more=flags),
        spm,
        tokenizer_config=CONFIG,
    )
    write(
        "metaspace_always",
        llama_json(spm, pre_tokenizer=metaspace("always"), more=flags),
        tokenizer_config=CONFIG,
    )
    write(
        "metaspace_first_model",
        llama_json(spm, pre_tokenizer=metaspace("first")),
        spm,
        tokenizer_config=CONFIG,
    )
    older = {"type": "Metaspace", "replacement": SPACE, "add_prefix_space": True}
    write(
        "metaspace_split",
        llama_json(spm, pre_tokenizer=older, decoder=older, post_processor=None),
        tokenizer_config=CONFIG,
    )

    # Tokens only in tokenizer_config.json, flags changed there, a decoder without Strip;
    # the rules of the adjacent model file must not matter.
    rules = {k: v for k, v in LLAMA_SPM.items() if k != "normalization_rule_name"}
    with tempfile.NamedTemporaryFile("w", suffix=".tsv") as tsv:
        tsv.write(
            "".join(
                f"{ord(a):X}\t{' '.join(f'{ord(c):X}' for c in b)}\n"
                for a, b in [("\ufb01", "fi"), ("\uff21", "A"), ("\u00a0", " "), ("\u00e9", "e")]
            )
        )
        tsv.flush()
        nfkc = train_spm(
            "bpe",
            500,
            **{**rules, "normalization_rule_tsv": tsv.name, "remove_extra_whitespaces": True},
        )
    never = llama_json(nfkc, pre_tokenizer=metaspace("never"), decoder=llama_decoder(strip=False))
    never["added_tokens"] = never["added_tokens"][:3]
    slots = {"0": "<unk>", "1": "<s>", "2": "</s>", "500": "<image>", "501": "<pad>", "502": "<x>"}
    decoder = {
        key: {k: v for k, v in added(0, name).items() if k != "id"} for key, name in slots.items()
    }
    decoder["2"]["rstrip"] = True
    write(
        "metaspace_never_model",
        never,
        nfkc,
        tokenizer_config={
            **CONFIG,
            "added_tokens_decoder": decoder,
            "image_token": "<image>",
            "extra_special_tokens": ["<w>"],
        },
    )

    # Bytes missing from the vocabulary: unknown tokens, fused and not.
    unknown = llama_json(spm, pre_tokenizer=metaspace("first"), model={"fuse_unk": False})
    for byte in range(0x80, 0x100, 3):
        unknown["model"]["vocab"][f"<gone{byte}>"] = unknown["model"]["vocab"].pop(
            f"<0x{byte:02X}>"
        )
    write(
        "unknown_bytes",
        unknown,
        special_tokens_map={
            "bos_token": {
                "content": "<s>",
                "lstrip": False,
                "normalized": False,
                "rstrip": False,
                "single_word": False,
            },
            "eos_token": "</s>",
            "pad_token": "<pad>",
        },
        added_tokens={"<image>": 620, "<pad>": 621, "<later>": 622},
    )

    split = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(LLAMA3), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    write(
        "byte_level_llama3",
        byte_level(split, ignore_merges=True),
        tokenizer_config={
            "bos_token": "<|begin_of_text|>",
            "eos_token": "<|eot_id|>",
            "pad_token": "<pad>",
        },
    )
    write(
        "byte_level_gpt2",
        byte_level(
            pre_tokenizers.ByteLevel(add_prefix_space=True), ignore_merges=False, post=False
        ),
        tokenizer_config={"eos_token": "<|eot_id|>"},
    )

    write(
        "model_only",
        spm=spm,
        added_tokens={"<image>": 620, "<pad>": 621},
        special_tokens_map={"pad_token": "<pad>", "additional_special_tokens": ["<image>"]},
    )
    write(
        "model_only_not_legacy",
        spm=spm,
        tokenizer_config={**CONFIG, "added_tokens_decoder": {"620": decoder["500"]}},
    )
    write(
        "model_only_unigram",
        spm=train_spm("unigram", 420, normalization_rule_name="identity"),
        added_tokens={"<image>": 420},
        special_tokens_map={"additional_special_tokens": ["<image>"]},
    )


def hf_row(tokenizer, text):
    """Decoded texts, only where they differ from the input text."""
    ids = tokenizer(text)["input_ids"]
    row = {
        "ids": ids,
        "decoded": tokenizer.decode(ids, skip_special_tokens=True),
        "decoded_all": tokenizer.decode(ids, skip_special_tokens=False),
    }
    return {key: value for key, value in row.items() if value != text}


def hf_rows(folder):
    with (
        tempfile.TemporaryDirectory() as scratch
    ):  # as loaded by LlavaProcessor: the configuration selects the class that reads the files
        shutil.copytree(folder, scratch, dirs_exist_ok=True)
        (Path(scratch) / "config.json").write_text(
            json.dumps({"model_type": "llava", "text_config": {"model_type": "llama"}})
        )
        tokenizer = AutoTokenizer.from_pretrained(scratch)
    assert type(tokenizer).__name__ == "TokenizersBackend", type(tokenizer)
    return [hf_row(tokenizer, text) for text in texts()]


def spm_rows(folder, legacy):
    """LLaVA's slow LlamaTokenizer, removed in transformers 5: special tokens split off,
    the library for the rest, BOS first."""
    model = sentencepiece.SentencePieceProcessor(model_file=str(folder / "tokenizer.model"))
    specials = {"<unk>": 0, "<s>": 1, "</s>": 2, "<image>": model.get_piece_size()}
    if model.get_piece_size() == 620:
        specials["<pad>"] = 621  # named by tokenizer_config.json or special_tokens_map.json
    rows = []
    for text in texts():
        ids, first, rest = [1], True, text
        while rest:
            found = min(((rest.find(s), s) for s in specials if s in rest), default=(len(rest), ""))
            if found[0] > 0:
                ids += encode_stretch(model, rest[: found[0]], first, legacy)
            if found[1]:
                ids.append(specials[found[1]])
            first, rest = False, rest[found[0] + len(found[1]) :]
        rows.append({"ids": ids})
    return rows


def encode_stretch(model, text, first, legacy):
    if legacy:
        return model.encode(text)
    marked = model.encode(
        "<unk>" + (" " if first else "") + text
    )  # the library puts its prefix before the mark
    mark = model.encode("<unk>")
    assert marked[: len(mark)] == mark
    return marked[len(mark) :]


def main():
    for old in HERE.iterdir():
        if old.is_dir():
            shutil.rmtree(old)
    make()
    out = {
        "made_by": {m.__name__: m.__version__ for m in (transformers, tokenizers, sentencepiece)},
        "texts": texts(),
        "tokenizers": {},
    }
    for folder in sorted(p for p in HERE.iterdir() if p.is_dir()):
        if folder.name.startswith("model_only"):
            out["tokenizers"][folder.name] = spm_rows(
                folder, legacy="not_legacy" not in folder.name
            )
        else:
            out["tokenizers"][folder.name] = hf_rows(folder)
    (HERE / "ids.json").write_text(json.dumps(out, ensure_ascii=True, separators=(",", ":")) + "\n")


main()
