"""Prompts and tokens of the families beside LLaVA-1.5 against transformers' Jinja and tokenizers, over odd texts and long ones."""

import functools
import random

import pytest
from safetensors.torch import load_file

import families
from cases import row
from test_families import FamilyPeer, make_recipe, messages_of
from tools import lft, write_rows

TEXTS = {
    "code": 'def f(x):\n\treturn {"k": [x ** 2, 1e-9]}  # ok\r\n\n\n    for (int i = 0; i < 10; ++i) { a[i] += b->c; }',
    "emoji": "👩‍👩‍👧‍👦 👍🏽 🇩🇪 ☕️ and 🤷‍♂️!!",
    "cjk": "今天天气很好。漢字かな交じり文、한국어 조합 각",
    "arabic": "السلام عليكم، كيف حالك؟ ١٢٣",
    "composed": "café naïve Ångström ñ ü ǘ ệ",
    "decomposed": "cafe\u0301 nai\u0308ve A\u030angstro\u0308m n\u0303 u\u0308\u0301 e\u0323\u0302 \u1112\u1161\u11ab x\u0301\u0323 \u0301",
    "compatible": "ﬁ ① Ⅳ ½ ㎏ Ω \u212b \u2126 \uf900 \u0958",
    "digits": "12345678901234567890 3.14159 1,000,000 ٣٤٥ Ⅻ 2²",
    "spaces": "a  b   c\u00a0d\u2003e\t\tf \n\n\n g   ",
    "words": "I'll they've WE'RE don't It's 'S 'LL x'y",
    "long": "0123456789 the cat, the dog; e\u0301 中 " * 4000,
}
NAMES = ["qwen25_gqa", "qwen3_gqa", "smol_tied"]
MOST = 512


@pytest.fixture(scope="module")
def family_dir(tmp_path_factory):
    return functools.cache(lambda name: families.build(name, tmp_path_factory.mktemp("families") / name))


def prepared(name, folder, rows, images, tmp_path):
    """What lft makes of the rows, none of it computed with: [(ids, labels)]."""
    data = write_rows(tmp_path / "rows.jsonl", rows)
    lft("prepare", make_recipe(name, tmp_path / "run", folder, data, images), "--out", tmp_path / "prepared")
    shard = load_file(tmp_path / "prepared" / "shard-00000.safetensors")
    ends = shard["offsets"].tolist()
    return [(shard["input_ids"][a:b].tolist(), shard["labels"][a:b].tolist()) for a, b in zip(ends, ends[1:])]


@pytest.mark.parametrize("name", NAMES)
def test_tokens_of_odd_texts(name, family_dir, images, tmp_path):
    peer = FamilyPeer(name, family_dir(name))
    rows = [row(key, [(text, "Yes.")]) for key, text in TEXTS.items()]
    rows += [row(f"answer {key}", [("Say it.", text)]) for key, text in TEXTS.items() if key != "long"]
    for item, (ids, labels) in zip(rows, prepared(name, family_dir(name), rows, images, tmp_path)):
        want, want_labels, _ = peer.encode(item, images)
        assert ids == want[:MOST], item["id"]
        assert labels == want_labels[:MOST], item["id"]


def conversations(seed):
    """Fifty: with a system text, of several turns, with several images, with text alone."""
    draw, rows = random.Random(seed), []
    words = ["the cat", "7 of 12", "naïve", "中文", "(a)", "two\nlines", "«x»", "end."]
    files = ["tiny.png", "strip.png", "turned.jpg"]
    for number in range(50):
        turns, used = [], []
        for turn in range(draw.randint(1, 4)):
            question = " ".join(draw.choices(words, k=draw.randint(1, 5)))
            if number % 3 != 0 and turn == 0:
                used = draw.choices(files, k=draw.randint(1, 2))
                marks = "<image>\n" * len(used) if number % 2 else "<image>" * len(used)
                question = marks + question if number % 5 else question + " " + marks.strip() + " so"
            turns.append((question, " ".join(draw.choices(words, k=draw.randint(1, 4)))))
        rows.append(row(f"c{number}", turns, used or None) | ({"system": "Answer briefly, in English."} if number % 4 == 0 else {}))
    return rows


@pytest.mark.parametrize("name", NAMES)
def test_fifty_conversations_are_the_models_own_jinja(name, family_dir, images, tmp_path):
    peer, rows = FamilyPeer(name, family_dir(name)), conversations(11)
    plain = peer.inputs

    def with_system(item, root, generate=False):
        render = peer.tokenizer.apply_chat_template
        if "system" not in item:
            return plain(item, root, generate)
        first = [dict(role="system", content=[dict(type="text", text=item["system"])])]
        peer.tokenizer.apply_chat_template = lambda messages, **more: render(first + messages, **more)
        try:
            return plain(item, root, generate)
        finally:
            peer.tokenizer.apply_chat_template = render

    peer.inputs = with_system
    assert any("system" in item for item in rows) and any(len(messages_of(item)) > 4 for item in rows)
    for item, (ids, labels) in zip(rows, prepared(name, family_dir(name), rows, images, tmp_path)):
        want, want_labels, _ = peer.encode(item, images)
        assert ids == want[:MOST], item["id"]
        assert labels == want_labels[:MOST], item["id"]
