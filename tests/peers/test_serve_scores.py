"""lft serve: log-probabilities, several answers, tools and plain completions, compared with
transformers."""

import concurrent.futures
import copy
import json
import pathlib

import pytest
import torch
from transformers import AutoModelForImageTextToText, AutoTokenizer

from serving import TOKENS, Server, serving, user, with_room
from test_families import family_dir  # noqa: F401, the fixture
from tools import ROOT

QUESTION = "Name three colours."
NAME = "qwen3_gqa"
TOP = 20
CLOSE = 1e-3


@pytest.fixture(scope="module")
def server(family_dir):  # noqa: F811
    with serving(family_dir(NAME)) as running:
        yield running


class Peer:
    def __init__(self, path):
        self.tokenizer = AutoTokenizer.from_pretrained(path)
        self.model = AutoModelForImageTextToText.from_pretrained(path, dtype=torch.float32).eval()
        self.ids = {}  # by bytes
        for token, number in self.tokenizer.get_vocab().items():
            self.ids[self.bytes_of(token)] = number

    def bytes_of(self, token):
        """GPT-2's characters for bytes."""
        known = [*range(33, 127), *range(161, 173), *range(174, 256)]
        spare = [byte for byte in range(256) if byte not in known]
        table = {chr(byte): byte for byte in known}
        table |= {chr(256 + place): byte for place, byte in enumerate(spare)}
        if any(character not in table for character in token):
            return token.encode()
        return bytes(table[character] for character in token)

    def prompt(self, messages, **more):
        text = self.tokenizer.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=True, **more
        )
        return self.tokenizer.encode(text, add_special_tokens=False)

    def scores(self, ids, answer):
        """Log-probabilities of each position of the answer, [tokens, vocabulary]."""
        with torch.no_grad():
            logits = self.model(input_ids=torch.tensor([ids + answer])).logits[0].double()
        return torch.log_softmax(logits, -1)[len(ids) - 1 : len(ids) + len(answer) - 1]

    def greedy(self, ids, count=TOKENS):
        out = self.model.generate(torch.tensor([ids]), max_new_tokens=count, do_sample=False)
        return out[0, len(ids) :].tolist()


@pytest.fixture(scope="module")
def peer(family_dir):  # noqa: F811
    return Peer(family_dir(NAME))


def check_scores(peer, entries, prompt):
    """Each chosen and each likely token has transformers' log-probability, and the likely ones are
    transformers' most likely ones; returns the ids."""
    answer = []
    for entry in entries:
        number = peer.ids.get(bytes(entry["bytes"]))
        if number is None:  # a row of the embedding without a token: the one with this probability
            row = peer.scores(prompt, [*answer, 0])[-1]
            number = (row[len(peer.ids) :] - entry["logprob"]).abs().argmin().item() + len(peer.ids)
        answer.append(number)
    want = peer.scores(prompt, answer)
    for row, number, entry in zip(want, answer, entries):
        assert abs(row[number].item() - entry["logprob"]) < CLOSE
        likely = [one["logprob"] for one in entry["top_logprobs"]]
        best = row.topk(len(likely)).values.tolist()
        assert likely == pytest.approx(best, abs=CLOSE)
        for one in entry["top_logprobs"]:
            if one["bytes"] == []:  # a row of the embedding without a token
                continue
            if one["bytes"] is None:  # a special token
                number = peer.tokenizer.convert_tokens_to_ids(one["token"])
            else:
                number = peer.ids[bytes(one["bytes"])]
            assert abs(row[number].item() - one["logprob"]) < CLOSE
    return answer


def scored(server, question=QUESTION, **more):
    body = dict(messages=[user(question)], max_tokens=TOKENS, logprobs=True, top_logprobs=TOP)
    status, answer = server.post(json.dumps(body | more))
    assert status == 200, answer
    return answer["choices"]


def test_logprobs_are_those_of_transformers(server, peer):
    choice = scored(server)[0]
    entries = choice["logprobs"]["content"]
    prompt = peer.prompt([user(QUESTION)])
    answer = check_scores(peer, entries, prompt)
    assert len(answer) >= 3 and all(len(entry["top_logprobs"]) == TOP for entry in entries)
    said = b"".join(bytes(entry["bytes"]) for entry in entries)
    assert said.decode(errors="replace") == choice["message"]["content"]
    for entry in entries:
        named = entry["token"].startswith("bytes:")
        assert named or entry["token"].encode() == bytes(entry["bytes"])
    without = scored(server, top_logprobs=0)[0]["logprobs"]["content"]
    assert [entry["top_logprobs"] for entry in without] == [[]] * len(entries)
    assert [e["logprob"] for e in without] == pytest.approx([e["logprob"] for e in entries])


def test_logprobs_of_samples_are_of_the_models_own_distribution(server, peer):
    """Temperature, top_k and the penalty change what is drawn, not what is reported."""
    drawn = dict(temperature=1.5, top_k=5, repetition_penalty=1.3, seed=11)
    check_scores(
        peer, scored(server, **drawn)[0]["logprobs"]["content"], peer.prompt([user(QUESTION)])
    )


def test_logprobs_do_not_depend_on_what_else_is_answered(server, peer):
    questions = [QUESTION, "Hello!", "Is <image> a tag?", "What is in the picture? " * 5]
    alone = {question: scored(server, question)[0]["logprobs"]["content"] for question in questions}
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        together = list(pool.map(lambda i: scored(server, questions[i % 4], seed=i), range(32)))
    for i, choices in enumerate(together):
        entries, want = choices[0]["logprobs"]["content"], alone[questions[i % 4]]
        assert [entry["token"] for entry in entries] == [entry["token"] for entry in want]
        for one, other in zip(entries, want):
            assert one["logprob"] == pytest.approx(other["logprob"], abs=CLOSE)


def streamed(server, **fields):
    """Text, log-probabilities and finish reason of each index of a stream, and the usage."""
    body = dict(messages=[user(QUESTION)], max_tokens=TOKENS) | fields
    stream = server.client.chat.completions.create(
        model="served", stream=True, stream_options={"include_usage": True}, **body
    )
    texts, scores, ends, usage = {}, {}, {}, None
    for chunk in stream:
        usage = chunk.usage or usage
        for choice in chunk.choices:
            at = choice.index
            assert at not in ends
            texts[at] = texts.get(at, "") + (choice.delta.content or "")
            if choice.logprobs:
                scores.setdefault(at, []).extend(
                    one.model_dump() for one in choice.logprobs.content
                )
            if choice.finish_reason:
                ends[at] = choice.finish_reason
    return texts, scores, ends, usage


def test_a_stream_has_the_same_logprobs(server):
    whole = scored(server)[0]
    texts, scores, ends, _ = streamed(server, logprobs=True, top_logprobs=TOP)
    assert texts[0] == whole["message"]["content"] and ends[0] == whole["finish_reason"]
    assert len(scores[0]) == len(whole["logprobs"]["content"])
    for one, other in zip(scores[0], whole["logprobs"]["content"]):
        assert one["bytes"] == other["bytes"]
        assert one["logprob"] == pytest.approx(other["logprob"], abs=1e-5)


def test_n_answers_are_independent_draws(server):
    fields = dict(n=5, temperature=1.5, seed=7, max_tokens=TOKENS)
    first, again = (
        server.client.chat.completions.create(model="served", messages=[user(QUESTION)], **fields)
        for _ in range(2)
    )
    texts = [choice.message.content for choice in first.choices]
    assert [choice.index for choice in first.choices] == list(range(5))
    assert texts == [choice.message.content for choice in again.choices]
    assert len(set(texts)) > 2
    one = server.chat([user(QUESTION)], **(fields | dict(n=1)))
    assert one[0] == texts[0] and first.usage.prompt_tokens == one[1]["prompt_tokens"]
    singles = [
        server.chat([user(QUESTION)], **(fields | dict(n=1, seed=7 + i)))[1]["completion_tokens"]
        for i in range(5)
    ]
    assert first.usage.completion_tokens == sum(singles)
    parts, _, ends, usage = streamed(server, **fields)
    assert [parts[i] for i in range(5)] == texts and len(ends) == 5
    assert usage == first.usage
    unseeded = scored(server, n=4, temperature=1.5)
    assert len({choice["message"]["content"] for choice in unseeded}) > 1


def test_more_answers_than_fit_are_drawn_in_turn(family_dir):  # noqa: F811
    with serving(family_dir(NAME), "--batch", 3, "--queue", 4) as running:
        fields = dict(temperature=1.5, seed=3)
        many = scored(running, n=10, **fields)
        want = [scored(running, seed=3 + i, temperature=1.5)[0] for i in range(10)]
        assert [one["message"]["content"] for one in many] == [
            one["message"]["content"] for one in want
        ]


def test_a_stop_text_ends_only_its_draw(server):
    fields = dict(n=6, temperature=1.5, seed=20, max_tokens=30)
    texts = [choice["message"]["content"] for choice in scored(server, **fields)]
    stop = next(text[4:6] for text in texts if len(text) > 8 and "\ufffd" not in text[4:6])
    cut = [choice["message"]["content"] for choice in scored(server, stop=[stop], **fields)]
    assert cut == [text.split(stop)[0] for text in texts] and cut != texts


TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "The weather of a place",
            "parameters": {
                "type": "object",
                "properties": {"place": {"type": "string"}, "day": {"type": "integer"}},
                "required": ["place"],
            },
        },
    }
]
CALLS = [
    user(QUESTION),
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [
            {
                "type": "function",
                "id": "call_1",
                "function": {"name": "weather", "arguments": {"place": "Rome", "day": 2}},
            }
        ],
    },
    {"role": "tool", "tool_call_id": "call_1", "content": "sunny"},
]


def with_text_arguments(messages):
    messages = copy.deepcopy(messages)
    for message in messages:
        for call in message.get("tool_calls", []):
            call["function"]["arguments"] = json.dumps(call["function"]["arguments"])
    return messages


@pytest.mark.parametrize("template", ["qwen3.jinja", "qwen3_vl.jinja"])
@pytest.mark.parametrize("messages", [[user(QUESTION)], CALLS], ids=["a question", "a result"])
def test_tools_are_rendered_as_transformers_renders_them(
    family_dir,  # noqa: F811
    peer,
    template,
    messages,
    tmp_path,
):
    path = ROOT / ".deps/templates/trl/chat_templates" / template
    text = pathlib.Path(path).read_text()
    model = with_room(family_dir(NAME), tmp_path / "model")
    with serving(model, "--template", path) as running:
        prompt = peer.prompt(messages, tools=TOOLS, chat_template=text)
        answer, usage, _ = running.chat(messages, tools=TOOLS, tool_choice="auto")
        assert usage["prompt_tokens"] == len(prompt)
        assert answer == peer.tokenizer.decode(peer.greedy(prompt), skip_special_tokens=True)
        as_text = with_text_arguments(messages)  # as OpenAI's clients send them
        assert running.chat(as_text, tools=TOOLS, tool_choice="auto")[:2] == (answer, usage)
        without = running.chat(messages, tools=TOOLS, tool_choice="none")
        assert without == running.chat(messages)
        assert without[1]["prompt_tokens"] < usage["prompt_tokens"]


@pytest.mark.parametrize(
    "tools", [{}, {"type": "function"}, [5], [{"type": "function"}], [{"function": {"name": "f"}}]]
)
def test_malformed_tools_are_refused(server, tools):
    if not tools:  # an empty value is as if it were absent
        return
    status, answer = server.post(json.dumps(dict(messages=[user(QUESTION)], tools=tools)))
    assert status == 400 and answer["error"]["param"] == "tools", answer


def test_tools_without_a_place_in_the_template_are_refused(model_dir, tmp_path):
    template = tmp_path / "plain.jinja"
    template.write_text("{% for m in messages %}{{ m.role }}: {{ m.content }}</s>{% endfor %}")
    for more in [], ["--template", template]:
        running = Server(model_dir("plain"), *more)
        try:
            body = dict(messages=[user(QUESTION)], tools=TOOLS)
            status, answer = running.post(json.dumps(body))
            assert status == 400 and "tools" in answer["error"]["message"], answer
        finally:
            assert running.end()[0] == 0


COMPLETIONS = "/v1/completions"


def complete(server, prompt, **fields):
    body = dict(prompt=prompt, max_tokens=TOKENS) | fields
    status, answer = server.post(json.dumps(body), path=COMPLETIONS)
    assert status == 200, answer
    assert answer["object"] == "text_completion"
    return answer


TEXT = "<|im_start|>user\nThe quick brown fox<|im_end|>\n<|im_start|>assistant\n"


def test_a_completion_continues_text_or_ids(server, peer):
    text = TEXT
    ids = peer.tokenizer.encode(text)
    want = peer.greedy(ids)
    said = peer.tokenizer.decode(want, skip_special_tokens=True)
    for prompt in (text, ids, [text], [ids]):
        answer = complete(server, prompt)
        assert answer["choices"][0]["text"] == said
        assert answer["usage"]["prompt_tokens"] == len(ids)
        assert answer["usage"]["completion_tokens"] == len(want)
    by_client = server.client.completions.create(model="served", prompt=text, max_tokens=TOKENS)
    assert by_client.choices[0].text == said
    stream = server.client.completions.create(
        model="served", prompt=text, max_tokens=TOKENS, stream=True
    )
    assert "".join(chunk.choices[0].text for chunk in stream if chunk.choices) == said
    assert complete(server, text, echo=True)["choices"][0]["text"] == text + said
    assert complete(server, "Hello", max_tokens=None)["usage"]["completion_tokens"] <= 16


def test_several_prompts_have_n_answers_each(server):
    prompts = ["The quick", "A slow brown"]
    both = complete(server, prompts, n=2, temperature=1.5, seed=5)
    assert [choice["index"] for choice in both["choices"]] == [0, 1, 2, 3]
    for i, prompt in enumerate(prompts):
        one = complete(server, prompt, n=2, temperature=1.5, seed=5 + 2 * i)
        assert [choice["text"] for choice in one["choices"]] == [
            choice["text"] for choice in both["choices"][2 * i : 2 * i + 2]
        ]


def test_logprobs_of_a_completion(server, peer):
    choice = complete(server, TEXT, logprobs=5)["choices"][0]
    scores, ids = choice["logprobs"], peer.tokenizer.encode(TEXT)
    answer = peer.greedy(ids)[: len(scores["tokens"])]
    want = peer.scores(ids, answer)
    got = scores["token_logprobs"]
    assert got == pytest.approx([row[i].item() for row, i in zip(want, answer)], abs=CLOSE)
    for row, top in zip(want, scores["top_logprobs"]):
        assert max(top.values()) == pytest.approx(row.max().item(), abs=CLOSE) and len(top) <= 5
    assert scores["text_offset"][0] == 0 and len(scores["text_offset"]) == len(answer)


BAD_PROMPTS = {
    "nothing": {},
    "null": dict(prompt=None),
    "a number": dict(prompt=5),
    "no list": dict(prompt=[]),
    "a list of lists of texts": dict(prompt=[["a"]]),
    "ids and texts": dict(prompt=[1, "a"]),
    "an empty text": dict(prompt=""),
    "negative ids": dict(prompt=[-1]),
    "unknown ids": dict(prompt=[10**6]),
    "half an id": dict(prompt=[1, 2.5]),
    "an image": dict(prompt="<|vision_start|><|image_pad|><|vision_end|>What is it?"),
    "too long a text": dict(prompt="word " * 20000),
    "too many ids": dict(prompt=[5] * 5000),
    "too many answers": dict(prompt=["a"] * 30, n=3),
    "messages": dict(prompt="a", messages=[user(QUESTION)]),
    "echo and logprobs": dict(prompt="a", echo=True, logprobs=2),
    "too many logprobs": dict(prompt="a", logprobs=21),
    "logprobs as of chat": dict(prompt="a", logprobs=True),
    "a suffix": dict(prompt="a", suffix="b"),
    "a better one": dict(prompt="a", best_of=3),
}


@pytest.mark.parametrize("name", BAD_PROMPTS)
def test_a_bad_completion_is_refused_by_name(server, name):
    status, answer = server.post(json.dumps(BAD_PROMPTS[name]), path=COMPLETIONS)
    error = answer["error"]
    assert status == 400 and error["param"] and len(error["message"]) > 10, answer
    assert error["code"] in (
        "missing_required_parameter",
        "invalid_type",
        "invalid_value",
        "unsupported_parameter",
        "context_length_exceeded",
    )
    assert ("too long" in name or "too many ids" in name) == (
        error["code"] == "context_length_exceeded"
    )
    assert complete(server, "Hello", max_tokens=1)
