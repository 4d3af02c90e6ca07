"""Prompts from the checkpoints' own chat templates and from published ones: token ids against
processor.apply_chat_template, supervised spans against the rule of recipes/README.md, over sixty
conversations."""

import functools
import hashlib
import itertools
import json
import re
import shutil

import jinja2
import pytest
from transformers import AutoTokenizer
from transformers.utils.chat_template_utils import render_jinja_template

import families
import jinja_published
from jinja_conversations import PLAIN_TOOL, WEATHER, assistant, call, system, text, tool, user
from prepared import read_prepared
from test_families import FAMILY_ROWS, FamilyPeer, make_recipe
from tools import lft, score, write_rows

MOST = 512  # positions of the tiny models
MARK = re.compile("[\ue000-\uefff]")  # around the words of a message
# A family's checkpoint, and the name of the published template of such checkpoints.
CHECKPOINTS = dict(
    qwen2_gqa="qwen2_vl",
    qwen25_gqa="qwen2_5_vl",
    qwen3_gqa="qwen3_vl",
    qwen35_gqa="qwen3_5",
    smol_tied="smolvlm",
    idefics3_shards="idefics3",
    gemma_gqa="gemma3",
    intern_gqa=None,
    chat_gqa=None,
    llava_qwen2_siglip=None,
    next_mistral="llava_next_mistral",
    onevision=None,
    llava_llama_siglip_bf16="llava",
)
WORDS = ["the cat", "7 of 12", "naïve", "中文", "two\nlines", "«x»", "  padded\t", "end. "]
SPECIAL = ["say <|im_end|> twice", "</s><s>[INST]", "<end_of_turn>\n<start_of_turn>model\n"]
FILES = ["tiny.png", "strip.png"]


def image(name):
    return dict(type="image", image=name)


def plain_talks():
    """Thirty-six: of several turns, with a system text, an empty one or none, with images
    first, between words and at the end."""
    shapes = itertools.product([None, "Be brief.", ""], range(1, 4), range(4))
    for number, (said, turns, place) in enumerate(shapes):
        messages = [] if said is None else [system(said)]
        for turn in range(turns):
            words = [text(WORDS[(number + turn + k) % len(WORDS)]) for k in range(2)]
            shown = image(FILES[(number + turn) % 2])
            parts = [
                words,
                [shown, *words],
                [words[0], shown, words[1]],
                [*words, shown, image(FILES[turn % 2])],
            ][place if turn == 0 else 0]
            messages += [user(parts), assistant(WORDS[(3 * number + turn) % len(WORDS)] + "!")]
        yield dict(messages=messages)


def other_talks():
    """Twenty-four: reasoning, tools, special tokens in texts."""
    for number in range(8):
        reasoning = dict(reasoning_content=f"Because of {WORDS[number]}.") if number % 2 else {}
        yield dict(
            messages=[
                user(f"Why {number}?"),
                assistant(f"So {number}.", reasoning_content="First\nsecond."),
                user("And now?"),
                assistant("Now.", **reasoning),
            ]
        )
    for number in range(8):
        arguments = [{"place": "Köln", "days": [1, 2]}, '{"place": "Ulm"}'][number % 2]
        yield dict(
            messages=[
                *([system("Use tools.")] if number % 4 > 1 else []),
                user("Weather?"),
                assistant("Looking." if number > 3 else "", tool_calls=[call("f", arguments)]),
                tool("rain", name="f"),
                assistant("Rain."),
            ],
            tools=[WEATHER, PLAIN_TOOL][: 1 + number % 2],
        )
    for number in range(8):
        special = SPECIAL[number % len(SPECIAL)]
        yield dict(messages=[user(special + str(number)), assistant("A " + special)])


TALKS = [
    dict(talk, id=f"t{number}") for number, talk in enumerate([*plain_talks(), *other_talks()])
]


def mark(kind, message):
    """Characters that no text has, around the words of a message."""
    return chr(0xE000 + 2 * message + kind)


def marked(value, message):
    """Strings in the value with marks around what trim leaves of them."""
    if isinstance(value, str):
        core = value.strip()
        return value.replace(core, mark(0, message) + core + mark(1, message), 1) if core else value
    if isinstance(value, list):
        return [marked(each, message) for each in value]
    if isinstance(value, dict):
        return {
            key: each if key in ("type", "id", "image") else marked(each, message)
            for key, each in value.items()
        }
    return value


def marked_messages(messages):
    fields = ("content", "reasoning_content", "tool_calls")
    return [
        {key: marked(value, number) if key in fields else value for key, value in item.items()}
        for number, item in enumerate(messages)
    ]


def in_parts(messages):
    """In processor form: a text is a list of one part."""
    return [
        dict(item, content=[text(item["content"])])
        if isinstance(item["content"], str) and not (item.get("tool_calls") and not item["content"])
        else item
        for item in messages
    ]


@pytest.fixture(scope="module")
def family_dir(tmp_path_factory):
    return functools.cache(
        lambda name: families.build(name, tmp_path_factory.mktemp("families") / name)
    )


def prepared(name, model, rows, images, tmp_path, **data):
    """id -> (ids, labels) from lft for the rows; bad ones are left out."""
    rules = dict(max_tokens=2048, on_bad_sample="skip", max_bad=len(rows))
    rules |= dict(special_tokens_in_text="text") | data
    recipe = make_recipe(
        name, tmp_path / "run", model, write_rows(tmp_path / "rows.jsonl", rows), images, data=rules
    )
    lft("prepare", recipe, "--out", tmp_path / "prepared")
    return {
        sample.id: (sample.ids, sample.labels)
        for sample in read_prepared(tmp_path / "prepared", pixels=False)
        if sample.ids
    }


# The token that ends an answer, by decoder; LLaVA's templates over Llama end no turn.
ENDS = dict(
    qwen2_vl="<|im_end|>",
    qwen2_5_vl="<|im_end|>",
    qwen3_vl="<|im_end|>",
    qwen3_5="<|im_end|>",
    smolvlm="<end_of_utterance>",
    idefics3="<end_of_utterance>",
    gemma3="<end_of_turn>",
    internvl="<|im_end|>",
    qwen2="<|im_end|>",
    mistral="</s>",
)


class Reference:
    """transformers' rendering of a conversation with a template, and its supervised part."""

    def __init__(self, peer, template):
        self.peer, self.template = peer, template
        self.marks = bool(re.search(r"{%-?\s*generation", template))

    def render(self, talk, messages):
        """The text, and the spans that {% generation %} marks."""
        (shown,), marked = render_jinja_template(
            conversations=[messages],
            tools=talk.get("tools"),
            chat_template=self.template,
            return_assistant_tokens_mask=self.marks,
            **self.peer.tokenizer.special_tokens_map,
        )
        return shown, marked[0] if marked else []

    def prompt(self, talk, end, added):
        """The text, and the supervised texts. None if it is refused."""
        messages = in_parts(talk["messages"])
        try:
            shown, spans = self.render(talk, marked_messages(messages))
        except (jinja2.TemplateError, TypeError):
            return None
        for number, item in enumerate(messages):  # an omitted answer is refused
            if item["role"] == "assistant" and mark(0, number) not in shown:
                return None
        return self.ended(shown, spans, talk["messages"], end, added)

    def ended(self, shown, spans, messages, end, added):
        words = []  # per answer in the text: first and last position, with its marks
        for number, item in enumerate(messages):
            if item["role"] == "assistant" and mark(0, number) in shown:
                words.append(
                    [shown.index(mark(0, number)), shown.rindex(mark(1, number)) + 1, number]
                )
        out, learnt, at = "", [], 0
        for first, last, number in words:
            lead = str(messages[number].get("content") or "")
            lead = lead[: len(lead) - len(lead.lstrip())]
            if lead and shown[:first].endswith(lead):
                first -= len(lead)
            trail = str(messages[number].get("content") or "")
            trail = trail[len(trail.rstrip()) :]
            if trail and shown[last:].startswith(trail):
                last += len(trail)
            stop = MARK.search(shown, last)
            found = shown.find(end, last, stop.start() if stop else len(shown)) if end else -1
            close = last if found < 0 else found + len(end)
            extra = added if found < 0 else ""
            for begin, finish in spans:
                if begin <= first < finish:
                    first, close = begin, finish
            out += shown[at:close] + extra
            learnt.append(shown[first:close] + extra)
            at = close
        return MARK.sub("", out + shown[at:]), [MARK.sub("", each) for each in learnt]


def images_of(talk):
    return [
        part["image"]
        for item in talk["messages"]
        if isinstance(item["content"], list)
        for part in item["content"]
        if part["type"] == "image"
    ]


def runs_of(tokenizer, labels):
    """The texts of runs of supervised tokens."""
    groups = itertools.groupby(labels, lambda label: label != -100)
    return [tokenizer.decode(list(run)) for learnt, run in groups if learnt]


def check(name, peer, jinja, model, images, tmp_path, talks, mode="text", **data):
    """Returns the number of compared conversations."""
    rows = [dict(talk) for talk in talks]
    got = prepared(
        name,
        model,
        rows,
        images,
        tmp_path,
        special_tokens_in_text=mode,
        unknown_keys="warn",
        **data,
    )
    reference, compared = Reference(peer, jinja), 0
    spec = families.SPECS[name]
    wide = spec["family"] in families.WIDE
    end = ENDS.get(spec["decoder"] if wide else spec["family"])
    for talk in talks:
        want = reference.prompt(talk, end, peer.tokenizer.eos_token)
        assert (want is None) == (talk["id"] not in got), (talk, want)
        if want is None:
            continue
        shown, learnt = want
        item = dict(image=images_of(talk))
        take = peer.wide_inputs if wide else peer.inputs_of
        ids, labels = got[talk["id"]]
        want_ids = take(shown, item, images)[0]
        assert ids == want_ids[:MOST], talk
        compared += 1
        if len(want_ids) > MOST:
            continue
        said = runs_of(peer.tokenizer, labels)
        assert [bare(each) for each in said] == [bare(each) for each in learnt], talk
    return compared


def bare(words):
    """Decoders put spaces next to tokens."""
    return re.sub(r"\s", "", words)


def is_special(talk):
    return any(special in json.dumps(talk["messages"][0]) for special in map(quoted, SPECIAL))


def quoted(words):
    return json.dumps(words)[1:-1]


# The published template of InternVL is one of texts alone.
CASES = [
    (name, published)
    for name in CHECKPOINTS
    for published in (False, True)
    if not (published and families.SPECS[name]["family"] == "internvl")
]


@pytest.mark.parametrize("name, published", CASES)
def test_sixty_conversations(name, published, family_dir, images, tmp_path):
    kind = CHECKPOINTS[name]
    if published and kind is None:
        kind = "llava"  # other decoders: any template of the family
    peer = FamilyPeer(name, family_dir(name))
    template, data = peer.tokenizer.chat_template, {}
    if published:
        template = jinja_published.templates()[jinja_published.FAMILIES[kind]]
        file = tmp_path / "published.jinja"
        file.write_text(template, encoding="utf-8")
        data = dict(template=str(file))
    plain = [talk for talk in TALKS if not is_special(talk)]
    special = [talk for talk in TALKS if is_special(talk)]
    assert len(plain) + len(special) == 60
    args = (name, peer, template, family_dir(name), images)
    compared = check(*args, tmp_path, plain, **data)
    (tmp_path / "special").mkdir()
    compared += check(*args, tmp_path / "special", special, mode="special", **data)
    assert compared >= 30


def test_an_adapter_carries_its_template(family_dir, images, tmp_path):
    """Trained with a template other than the checkpoint's, it is evaluated with its own; the
    difference is reported, and another file instead of it is refused."""
    model = tmp_path / "model"
    shutil.copytree(family_dir("qwen3_gqa"), model)
    own = AutoTokenizer.from_pretrained(model).chat_template
    trained = own.replace("<|im_start|>{{", "<|im_start|> {{", 1)
    assert trained != own
    file = tmp_path / "mine.jinja"
    file.write_text(trained)
    rows = write_rows(tmp_path / "rows.jsonl", FAMILY_ROWS[:4])
    recipe = make_recipe(
        *["qwen3_gqa", tmp_path / "run", model, rows, images],
        data=dict(template=str(file)),
        train=dict(max_steps=3, batch_size=2),
    )
    lft("train", recipe)
    adapter = tmp_path / "run/adapter"
    notes = json.loads((adapter / "lft_adapter.json").read_text())
    assert (adapter / "chat_template.jinja").read_text() == trained
    assert notes["template"] == "chat_template.jinja"
    assert notes["template_sha256"] == hashlib.sha256(trained.encode()).hexdigest()

    def ids(name, *more):
        lines = score(tmp_path / f"{name}.jsonl", model, rows, images, *more)
        return [line["input_ids"] for line in lines]

    asked = ids("adapter", "--adapter", adapter)
    assert asked == ids("file", "--template", file) != ids("own")
    said = lft("generate", "--model", model, "--adapter", adapter, "--prompt", "Q").stderr
    assert "is not the adapter's, which is used: its line " in said

    merged = tmp_path / "merged"
    lft("merge", "--adapter", adapter, "--out", merged)
    assert AutoTokenizer.from_pretrained(merged).chat_template == trained
    lines = score(tmp_path / "merged.jsonl", merged, rows, images)
    assert [line["input_ids"] for line in lines] == asked

    # The folder of another program's adapter has the template and no notes.
    other = tmp_path / "other"
    shutil.copytree(adapter, other)
    (other / "lft_adapter.json").unlink()
    assert ids("other", "--adapter", other) == asked
    lft("merge", "--adapter", other, "--out", tmp_path / "other-merged")
    assert AutoTokenizer.from_pretrained(tmp_path / "other-merged").chat_template == trained

    (adapter / "chat_template.jinja").write_text(own)
    error = lft("generate", "--model", model, "--adapter", adapter, "--prompt", "Q", code=3).stderr
    assert "the chat template is not the one of the training" in error


def test_preview_under_two_templates(family_dir, images, tmp_path):
    rows = write_rows(tmp_path / "rows.jsonl", FAMILY_ROWS[:1])
    recipe = make_recipe("qwen3_gqa", tmp_path / "run", family_dir("qwen3_gqa"), rows, images)
    said = lft("preview", recipe, "-n", 1, "--template", "chatml").stdout
    assert "under --template chatml: the prompts differ from byte " in said
    assert said.count("sample ") == 2 and "You are a helpful assistant." in said
    same = lft("preview", recipe, "-n", 1, "--template", "qwen3-vl").stdout
    assert "under --template qwen3-vl: the same prompt, token for token" in same
    lft("preview", recipe, "--template", "chatlm", code=2)


def test_every_form_of_a_row_is_one_prompt(family_dir, images, tmp_path):
    """One conversation as rows of LLaVA, OpenAI and TRL."""
    question, answer = "What is it?", "A cat."
    parts = [image("tiny.png"), text(question)]
    forms = [
        dict(
            image="tiny.png",
            conversations=[
                {"from": "human", "value": "<image>\n" + question},
                {"from": "gpt", "value": answer},
            ],
        ),
        dict(messages=[user(parts), assistant(answer)]),
        dict(messages=[user(parts), assistant([text(answer)])]),
        dict(prompt=[user(parts)], completion=[assistant(answer)]),
        dict(prompt="<image>\n" + question, completion=answer, images=["tiny.png"]),
    ]
    for name in ("qwen25_gqa", "gemma_gqa", "onevision"):
        made = []
        for number, form in enumerate(forms):
            folder = tmp_path / f"{name}-{number}"
            folder.mkdir()
            made.append(prepared(name, family_dir(name), [dict(form, id="r")], images, folder)["r"])
        assert all(each == made[0] for each in made), name
