"""Token ids equal the HF processor's for strings that break tokenizers,
for every tokenizer layout."""

import pytest

from cases import row
from tools import score, write_rows

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
    rows = [
        row(str(index), [(text, "ok"), ("and", text)])
        for index, text in enumerate(STRINGS)
        if text.strip()
    ]
    scored = score(
        tmp_path / "out.jsonl",
        model_dir(name),
        write_rows(tmp_path / "rows.jsonl", rows),
        tmp_path,
        "--template",
        template,
    )
    wrong = []
    for item, line in zip(rows, scored):
        ids, labels, _ = peer(name).encode(item, tmp_path, template)
        if (line["input_ids"], line["labels"]) != (ids, labels):
            wrong.append((STRINGS[int(item["id"])], line["input_ids"], ids, line["labels"], labels))
    assert not wrong
