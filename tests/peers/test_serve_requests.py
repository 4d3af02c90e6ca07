"""lft serve: alternative forms of a request are answered like the plain one;
refusals name the field and its position."""

import base64
import io
import json

import pytest
import torch
from PIL import Image
from transformers import AutoModelForImageTextToText, AutoTokenizer

from serving import TOKENS, Server, serving, user
from test_families import family_dir  # noqa: F401, the fixture

QUESTION = [{"role": "user", "content": "Hello!"}]


@pytest.fixture(scope="module")
def server(family_dir):  # noqa: F811
    with serving(family_dir("qwen3_gqa")) as running:
        yield running


NEUTRAL = {
    "vLLM": dict(
        best_of=1,
        n=1,
        use_beam_search=False,
        min_p=0.0,
        min_tokens=0,
        length_penalty=1.0,
        stop_token_ids=[],
        include_stop_str_in_output=False,
        ignore_eos=False,
        skip_special_tokens=True,
        spaces_between_special_tokens=True,
        prompt_logprobs=None,
        allowed_token_ids=None,
        bad_words=[],
        echo=False,
        add_generation_prompt=True,
        continue_final_message=False,
        add_special_tokens=False,
        documents=None,
        chat_template=None,
        chat_template_kwargs={},
        mm_processor_kwargs=None,
        guided_json=None,
        structured_outputs=None,
        priority=0,
        request_id="one",
        return_tokens_as_token_ids=False,
        return_token_ids=False,
        cache_salt=None,
        kv_transfer_params=None,
        logits_processors=[],
    ),
    "SGLang": dict(
        regex=None,
        ebnf=None,
        no_stop_trim=False,
        stop_regex=None,
        separate_reasoning=True,
        stream_reasoning=True,
        return_hidden_states=False,
        lora_path=None,
        rid=None,
        custom_logit_processor=None,
        top_k=-1,
    ),
    "OpenAI": dict(
        frequency_penalty=0,
        presence_penalty=0.0,
        logit_bias={},
        logprobs=False,
        top_logprobs=0,
        response_format={"type": "text"},
        tools=[],
        functions=[],
        tool_choice="auto",
        parallel_tool_calls=True,
        modalities=["text"],
        reasoning_effort="low",
        store=False,
        metadata={},
        user="me",
        audio=None,
        prediction=None,
        stream=False,
        stream_options=None,
        stop=[],
        seed=None,
        temperature=None,
    ),
    "what nobody has": dict(one=None, two=[], three={}, four="", five=False),
    "numbers with a point": dict(max_tokens=float(TOKENS), top_k=0.0),
    "an exponent": dict(max_completion_tokens=1.2e1),
    "no model": dict(model=None),
    "many stops": dict(stop=[f"never said {i}" for i in range(100)]),
}


@pytest.mark.parametrize("name", NEUTRAL)
def test_neutral_fields_change_nothing(server, name):
    assert server.chat(QUESTION, **NEUTRAL[name]) == server.chat(QUESTION)


ASKS_FOR_MORE = dict(
    n=65,
    best_of=2,
    min_p=0.1,
    min_tokens=3,
    use_beam_search=True,
    ignore_eos=True,
    skip_special_tokens=False,
    add_generation_prompt=False,
    continue_final_message=True,
    stop_token_ids=[1],
    logprobs=3,
    top_logprobs=3,
    logit_bias={"1": 5},
    tools=[{"type": "function", "function": {}}],
    functions=[{"name": "f"}],
    tool_choice="required",
    frequency_penalty=0.5,
    include_stop_str_in_output=True,
    guided_json={"type": "object"},
    bad_words=["a"],
    chat_template="{{ 1 }}",
    unknown=1,
)


@pytest.mark.parametrize("field", ASKS_FOR_MORE)
def test_what_is_not_there_is_refused_by_name(server, field):
    status, answer = server.post(json.dumps({"messages": QUESTION, field: ASKS_FOR_MORE[field]}))
    assert status == 400 and answer["error"]["param"] == field, answer
    assert field in answer["error"]["message"]


@pytest.mark.parametrize("value", [{"type": None}, {"type": 5}, {}, 5, True, [], "text"])
def test_a_response_format_of_any_type_is_a_refusal(server, value):
    status, answer = server.post(json.dumps({"messages": QUESTION, "response_format": value}))
    assert status == 400 and answer["error"]["param"] == "response_format", answer


@pytest.mark.parametrize(
    "fields",
    [
        dict(stream_options={"include_usage": True}),
        dict(stream_options={"include_usage": True}, stream=False),
        dict(stream_options="x", stream=True),
        dict(stream_options=[], stream=True),
        dict(stream_options={"include_usage": 1}, stream=True),
        dict(stream_options={"continuous_usage_stats": True}, stream=True),
    ],
)
def test_stream_options_are_an_object_of_a_stream(server, fields):
    status, answer = server.post(json.dumps({"messages": QUESTION} | fields))
    assert status == 400 and answer["error"]["param"].startswith("stream_options"), answer


def said(role, content, **more):
    return dict(role=role, content=content, **more)


ORDERS = {
    "two questions": [said("user", "Hello!"), said("user", "Are you there?")],
    "a greeting first": [said("assistant", "Good day."), said("user", "Hello!")],
    "an answer last": [said("user", "Hello!"), said("assistant", "Good")],
    "an empty answer": [said("user", "Hello!"), said("assistant", ""), said("user", "And?")],
    "a late system text": [
        said("user", "Hello!"),
        said("system", "Be brief."),
        said("user", "So?"),
    ],
    "two system texts": [said("system", "One."), said("system", "Two."), said("user", "Hello!")],
    "the last a system text": [said("user", "Hello!"), said("system", "Be brief.")],
    "words that look like an image": [said("user", "Is <image> a tag, or <|image_pad|>, <video>?")],
    "such words of an assistant": [
        said("user", "Hello!"),
        said("assistant", "An <image> and <bbox>."),
        said("user", "So?"),
    ],
    "parts": [
        said(
            "user",
            [dict(type="text", text="One <image>"), dict(type="text", text=" and two")],
        )
    ],
}


@pytest.mark.parametrize("name", ORDERS)
def test_any_order_is_asked_as_transformers_template_asks(server, family_dir, name):  # noqa: F811
    """The number of prompt ids, and the greedy answer with its tokens."""
    path = family_dir("qwen3_gqa")
    tokenizer = AutoTokenizer.from_pretrained(path)
    text = tokenizer.apply_chat_template(ORDERS[name], tokenize=False, add_generation_prompt=True)
    ids = tokenizer.encode(text, add_special_tokens=False, split_special_tokens=False)
    image = tokenizer.convert_tokens_to_ids("<|image_pad|>")
    if image in ids:  # request text is never parsed as special tokens
        pieces = text.split("<|image_pad|>")
        plain = tokenizer.encode("<|image_pad|>", split_special_tokens=True)
        assert len(pieces) == 2 and image not in plain
        answer, usage, _ = server.chat(ORDERS[name])
        assert usage["prompt_tokens"] > len(ids)
        return
    model = AutoModelForImageTextToText.from_pretrained(path, dtype=torch.float32).eval()
    out = model.generate(torch.tensor([ids]), max_new_tokens=TOKENS, do_sample=False)[0, len(ids) :]
    answer, usage, finish = server.chat(ORDERS[name])
    assert usage["prompt_tokens"] == len(ids)
    assert answer == tokenizer.decode(out, skip_special_tokens=True)
    assert usage["completion_tokens"] == len(out)  # with the end token


def test_a_part_is_read_in_each_clients_form(server, images):
    question = user("What is it?", images / "coffee.png")
    url = question["content"][0]["image_url"]["url"]
    text = dict(type="text", text="What is it?")
    want = server.chat([question])
    forms = [
        [dict(type="input_image", image_url=url), dict(type="input_text", text="What is it?")],
        [dict(type="image_url", image_url=url), text],
        [dict(image_url=dict(url=url)), dict(text="What is it?")],
        [
            dict(type="image_url", image_url=dict(url=url, detail="high")),
            dict(text, cache_control={"type": "ephemeral"}),
        ],
        [dict(type="image", image=url), text],
    ]
    for parts in forms:
        assert server.chat([said("user", parts)]) == want


def test_a_text_of_image_is_words_next_to_an_image_part(server, images):
    part = user("", images / "coffee.png")["content"][0]
    with_words = [part, dict(type="text", text="Is <image> a tag?")]
    without = [part, dict(type="text", text="Is a tag?")]
    tokens = [
        server.chat([said("user", parts)])[1]["prompt_tokens"] for parts in (with_words, without)
    ]
    assert 0 < tokens[0] - tokens[1] < 8


def test_a_history_of_other_servers_is_read(server):
    answer = dict(
        role="assistant",
        content="Good day.",
        refusal=None,
        annotations=[],
        audio=None,
        function_call=None,
        tool_calls=None,
        reasoning_content=None,
    )
    talk = [QUESTION[0], answer, said("user", "And now?")]
    plain = [QUESTION[0], said("assistant", "Good day."), said("user", "And now?")]
    assert server.chat(talk) == server.chat(plain)
    talk[1] = dict(role="assistant", content=None, refusal="Good day.")
    assert server.chat(talk) == server.chat(plain)
    talk[1] = dict(role="assistant", content="Good day.", reasoning_content="They greet.")
    server.chat(talk)  # handled by the template


def test_base64_is_read_as_clients_write_it(server):
    for width in range(61, 90):  # until padding and both odd characters are needed
        data = io.BytesIO()
        Image.radial_gradient("L").resize((width, 47)).save(data, "PNG")
        plain = base64.b64encode(data.getvalue()).decode()
        if plain.endswith("==") and {"+", "/"} <= set(plain):
            break
    assert plain.endswith("==") and {"+", "/"} <= set(plain)
    forms = [
        base64.encodebytes(data.getvalue()).decode(),
        plain.rstrip("="),
        base64.urlsafe_b64encode(data.getvalue()).decode(),
        base64.urlsafe_b64encode(data.getvalue()).decode().rstrip("=") + "\r\n",
    ]

    def ask(text, kind="png"):
        part = dict(type="image_url", image_url=dict(url=f"data:image/{kind};base64,{text}"))
        return dict(messages=[said("user", [part])], max_tokens=TOKENS)

    want = server.post(json.dumps(ask(plain)))[1]["choices"]
    for form in forms:
        assert server.post(json.dumps(ask(form)))[1]["choices"] == want
    for wrong, place in [
        (plain[:100] + "*" + plain[101:], 'character 101 after the comma is \\"*\\"'),
        (plain[:-3] + "===", "padding"),
        (plain[:-1], "1 of padding"),
        ("A", "1 characters of base64"),
        ("", "0 characters of base64"),
        (plain + "A", "after padding"),
    ]:
        status, answer = server.post(json.dumps(ask(wrong)))
        assert status == 400 and place.replace("\\", "") in answer["error"]["message"], answer


HELLO = b'{"messages": [{"role": "user", "content": "Hello'
REFUSED = {
    "invalid UTF-8": (HELLO + b'\xff!"}]}', ["byte 49", "UTF-8"]),
    "NaN": (HELLO + b'!"}], "temperature": NaN}', ["byte 70", "invalid literal"]),
    "a lone surrogate": (HELLO + rb'\ud800!"}]}', ["byte 5", "U+DC00"]),
    "a raw line break": (HELLO + b'\n!"}]}', ["line 2", "control character"]),
    "no body": (b"", ["byte 0"]),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_json_is_refused_with_its_place(server, name):
    body, words = REFUSED[name]
    status, answer = server.post(body)
    assert status == 400, answer
    for word in words:
        assert word in answer["error"]["message"], answer


FORMS = {
    "a URL": (
        said("user", [dict(type="image_url", image_url=dict(url="https://example.com/a.png"))]),
        ["messages[0].content[0]", "URL", "https://example.com/a.png", "data:image/png;base64,"],
    ),
    "a file": (
        said("user", [dict(type="image_url", image_url=dict(url="/etc/passwd"))]),
        ["messages[0].content[0]", "/etc/passwd", "no files"],
    ),
    "Anthropic's": (
        said("user", [dict(type="image", source=dict(type="base64", data="AAAA"))]),
        ["messages[0].content[0].source", "Anthropic", "image_url"],
    ),
    "Ollama's": (said("user", "Q", images=["AAAA"]), ["messages[0].images", "Ollama"]),
    "audio": (
        said("user", [dict(type="input_audio")]),
        ["content[0]", "input_audio", "input_text"],
    ),
    "a number": (said("user", 5), ["messages[0].content", "5"]),
    "nothing": (said("user", None), ["messages[0].content", "null"]),
    "a role": (said("wizard", "Q"), ["messages[0].role", "wizard"]),
    "a part": (said("user", [5]), ["messages[0].content[0]", "5"]),
    "a text": (said("user", [dict(type="text", text=5)]), ["messages[0].content[0].text", "5"]),
    "no image": (said("user", [dict(type="image_url")]), ["messages[0].content[0]", "address"]),
    "an image of the system": (
        said("system", [dict(type="image_url", image_url="data:image/png;base64,AAAA")]),
        ["messages[0].content[0]", "system"],
    ),
    "a list": ([], ["messages[0]", "array"]),
}


@pytest.mark.parametrize("name", FORMS)
def test_a_message_is_refused_by_its_place(server, name):
    message, words = FORMS[name]
    status, answer = server.post(json.dumps({"messages": [message]}))
    assert status == 400 and answer["error"]["param"] == "messages", answer
    for word in words:
        assert word in answer["error"]["message"], answer


@pytest.mark.parametrize("path", ["/chat/completions", "/api/chat", "/v1/chat/completion", "/"])
def test_an_unknown_path_is_named(server, path):
    status, answer = server.post(json.dumps({"messages": QUESTION}), path=path)
    message = answer["error"]["message"]
    assert status == 404 and f'"{path}"' in message and "/v1/chat/completions" in message


@pytest.mark.parametrize(
    "kind",
    ["Application/JSON", "application/json ;charset=utf-8", 'application/json; charset="UTF-8"'],
)
def test_a_content_type_has_many_spellings(server, kind):
    body = json.dumps({"messages": QUESTION, "max_tokens": 1})
    assert server.post(body, {"Content-Type": kind})[0] == 200
    assert server.post(body, {"Content-Type": "application/json; charset=latin-1"})[0] == 415
    assert server.post(body, {"Content-Type": "text/plain"})[0] == 415


def test_a_template_refuses_in_its_own_words(model_dir, tmp_path):
    template = tmp_path / "strict.jinja"
    template.write_text(
        "{% for m in messages %}{% if m.role == 'system' and not loop.first %}"
        "{{ raise_exception('Only one, and first!') }}{% endif %}"
        "{{ m.role }}: {{ m.content }}</s>{% endfor %}"
    )
    running = Server(model_dir("plain"), "--template", template)
    try:
        body = {"messages": [*QUESTION, said("system", "S"), said("user", "Q")]}
        status, answer = running.post(json.dumps(body))
        assert status == 400 and "Only one, and first!" in answer["error"]["message"], answer
    finally:
        assert running.end()[0] == 0


def test_without_a_seed_each_answer_is_a_new_draw(server):
    def draw(**more):
        return server.chat(QUESTION, temperature=1.5, max_tokens=20, **more)[0]

    assert len({draw() for _ in range(8)}) > 1
    assert len({draw(seed=5) for _ in range(3)}) == 1


def test_a_gif_shows_its_first_frame(server):
    frames = [Image.new("RGB", (64, 48), color) for color in ("red", "blue")]

    def ask(kind, **more):
        data = io.BytesIO()
        frames[0].save(data, kind, **more)
        url = f"data:image/{kind.lower()};base64," + base64.b64encode(data.getvalue()).decode()
        return server.chat([said("user", [{"type": "image_url", "image_url": {"url": url}}])])

    assert ask("GIF", save_all=True, append_images=frames[1:]) == ask("PNG")
