"""Token ids equal the HF processor's for strings that break tokenizers,
for every tokenizer layout."""

import json
import random
import shutil

import pytest
import yaml
from tokenizers import Tokenizer

import checkpoints
from cases import row
from prepared import read_prepared
from tools import lft, score, write_rows

STRINGS = [
    "plain words",
    " a leading space",
    "a trailing space ",
    "  two  spaces   and    more     ",
    "tabs\tand\nlines\n\n\r\nend",
    "\n",
    "▁",
    "a▁b ▁ c",
    "▁▁x",
    "naïve café ñandú straße",
    "cafe\u0301 (combining)",
    "中文字符，日本語テキスト",
    "emoji 🙂👩‍👩‍👧‍👦🏳️‍🌈 and 🇨🇳",
    "\u202eright to left\u202c",
    "zero\u200bwidth\u200d\ufeffjoin",
    "no\u00a0break\u3000space\u2028line",
    "control \x01\x02\x1b[31m bytes \x7f",
    "nul \x00 inside",
    "private \ue000 and \U0010ffff",
    "number 1234567890 3.14159",
    "<0x41> is not a byte token <0x0A>",
    "</s>",
    "a</s>b",
    "x </s> y",
    "<s>",
    "<s> a <unk> b <pad>",
    "</s></s>USER: hi",
    "< image > <IMAGE> <imag",
    "code: for (int i=0;i<n;++i) { a[i] |= 0xFF; }",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "The picture shows a cup of coffee" * 5,
    "'\"`´‘’“”…—–",
]


@pytest.mark.parametrize(
    "name", ["plain", "gqa_tied", "head_dim_bias", "llama3_rope", "sentencepiece"]
)
@pytest.mark.parametrize("template", ["plain", "llava-v1"])
def test_ids_equal_the_processors(name, template, peer, model_dir, tmp_path):
    asked = ["--template", template]
    rows = [
        row(str(index), [(text, "ok"), ("and", text)])
        for index, text in enumerate(STRINGS)
        if text.strip()
    ]
    recipe = dict(
        version=1,
        output_dir=str(tmp_path / "run"),
        model=dict(path=str(model_dir(name))),
        data=dict(
            train=str(write_rows(tmp_path / "rows.jsonl", rows)),
            template=template,
            unknown_keys="warn",
            special_tokens_in_text="special",
        ),
    )
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    lft("prepare", tmp_path / "recipe.yaml", "--out", tmp_path / "prepared")
    samples = read_prepared(tmp_path / "prepared", pixels=False)
    scored = score(
        tmp_path / "out.jsonl", model_dir(name), tmp_path / "rows.jsonl", tmp_path, *asked
    )
    wrong = []
    for item, sample, line in zip(rows, samples, scored, strict=True):
        ids, labels, _ = peer(name).encode(item, tmp_path, template)
        if (sample.ids, sample.labels) != (ids, labels):
            wrong.append((STRINGS[int(item["id"])], sample.ids, ids, sample.labels, labels))
        # Without a recipe text is plain: only special tokens in the texts differ.
        words = STRINGS[int(item["id"])]
        is_special = any(token in words for token in ("<s>", "</s>", "<unk>", "<pad>"))
        if (line["input_ids"], line["labels"]) != (ids, labels) and not is_special:
            wrong.append((words, line["input_ids"], ids, line["labels"], labels))
        if is_special:
            assert line["input_ids"] != ids, words
    assert not wrong


def reordered(merges):
    """Like transformers' merges for a tokenizer.model: runs of spaces before all others."""
    is_run = [not "".join(merge).strip("▁") for merge in merges]
    return [
        merge for wanted in (True, False) for merge, run in zip(merges, is_run) if run == wanted
    ]


def as_mistral(tokenizer):
    tokenizer["normalizer"] = None
    tokenizer["pre_tokenizer"] = dict(
        type="Metaspace", replacement="▁", prepend_scheme="always", split=False
    )


def as_gemma(tokenizer):
    tokenizer["normalizer"] = dict(type="Replace", pattern=dict(String=" "), content="▁")
    tokenizer["pre_tokenizer"] = dict(
        type="Split", pattern=dict(String=" "), behavior="MergedWithPrevious", invert=False
    )
    flags = dict.fromkeys(["special", "normalized", "single_word", "lstrip", "rstrip"], False)
    ids = [token["id"] for token in tokenizer["added_tokens"]]
    runs = ["\n" * count for count in range(2, 6)]
    tokenizer["added_tokens"] += [
        dict(id=max(*ids, *tokenizer["model"]["vocab"].values()) + 1 + number, content=run, **flags)
        for number, run in enumerate(runs)
    ]


FORMS = dict(
    llama=lambda tokenizer: None,
    runs_first=lambda tokenizer: tokenizer["model"].update(
        merges=reordered(tokenizer["model"]["merges"])
    ),
    mistral=as_mistral,
    gemma=as_gemma,
)


def mixed_texts():
    """Texts of many scripts, runs of white space, emoji and control characters; lines of 100 kB."""
    draw = random.Random(4)
    alphabets = [(0x21, 0x7E), (0x1, 0x20), (0xA0, 0x24F), (0x300, 0x36F), (0x370, 0x5F4)]
    alphabets += [(0x620, 0x6FF), (0x900, 0xDFF), (0x2000, 0x206F), (0x3040, 0x30FF)]
    alphabets += [(0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0xE000, 0xE010), (0x1F300, 0x1FAFF)]
    pieces = [*STRINGS, *checkpoints.CORPUS.split(), " ", "  ", "\n\n", "▁", "<0x0A>", "</s>"]
    texts = list(STRINGS)
    for _ in range(150):
        first, last = draw.choice(alphabets)
        words = [chr(draw.randint(first, last)) for _ in range(60)] + draw.choices(pieces, k=20)
        draw.shuffle(words)
        texts.append(draw.choice(["", " "]).join(words))
    long = ["a", " ", "中", "The picture "]
    return texts + [unit * (100_000 // len(unit.encode())) for unit in long]


@pytest.mark.parametrize("form", FORMS)
def test_ids_are_those_of_tokenizer_json(form, model_dir, tmp_path):
    """A tokenizer.model with merges in another order is next to it."""
    model = tmp_path / "model"
    shutil.copytree(model_dir("sentencepiece"), model)
    assert (model / "tokenizer.model").exists()
    tokenizer = json.loads((model / "tokenizer.json").read_text())
    FORMS[form](tokenizer)
    (model / "tokenizer.json").write_text(json.dumps(tokenizer))
    config = json.loads((model / "config.json").read_text())
    config["text_config"]["max_position_embeddings"] = 400_000
    (model / "config.json").write_text(json.dumps(config))
    texts = mixed_texts()
    rows = [row(str(number), [("?", text + "x")]) for number, text in enumerate(texts)]
    recipe = dict(
        version=1,
        output_dir=str(tmp_path / "run"),
        model=dict(path=str(model)),
        data=dict(
            train=str(write_rows(tmp_path / "rows.jsonl", rows)),
            template="plain",
            max_tokens=400_000,
            special_tokens_in_text="special",
        ),
    )
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    lft("prepare", tmp_path / "recipe.yaml", "--out", tmp_path / "prepared")
    peer = Tokenizer.from_file(str(model / "tokenizer.json"))
    samples = read_prepared(tmp_path / "prepared", pixels=False)
    wrong = [
        text[:80]
        for text, sample in zip(texts, samples, strict=True)
        if sample.ids != peer.encode(f"?{text}x</s>").ids
    ]
    assert not wrong
