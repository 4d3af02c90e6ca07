"""lft serve: common clients receive the answers of the plain request, and use what they offer:
models, keys, log-probabilities, several answers, tools, completions."""

import asyncio
import sys

import litellm
import openai
import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAI

from serving import TOKENS, Server, serving, user, with_room
from tools import ROOT

sys.path.append(str(ROOT / ".deps" / "clients"))
from lm_eval.api.instance import Instance  # noqa: E402
from lm_eval.models.openai_completions import LocalChatCompletion  # noqa: E402

TALK = [
    {"role": "system", "content": "Be brief."},
    user("Hello!"),
    {"role": "assistant", "content": "Good day."},
    user("And now?"),
]


@pytest.fixture(scope="module")
def server(model_dir):
    with serving(model_dir("plain")) as running:
        yield running


@pytest.fixture(scope="module")
def want(server):
    """Text and usage of the plain request."""
    text, usage, _ = server.chat(TALK)
    assert text
    return text, usage


def base(server):
    return f"http://127.0.0.1:{server.port}/v1"


def test_openai_sync_and_async(server, want):
    fields = {"model": "served", "messages": TALK, "max_tokens": TOKENS}
    answer = server.client.chat.completions.create(**fields)
    assert answer.choices[0].message.content == want[0]
    assert answer.usage.model_dump(exclude_none=True) == want[1]

    async def ask_all():
        async with openai.AsyncOpenAI(base_url=base(server), api_key="none") as client:
            return await asyncio.gather(
                *[client.chat.completions.create(**fields) for _ in range(20)]
            )

    assert {each.choices[0].message.content for each in asyncio.run(ask_all())} == {want[0]}
    # The client's own object as a message of the next request.
    server.client.chat.completions.create(
        model="served", messages=[*TALK, answer.choices[0].message, user("Again?")], max_tokens=3
    )


@pytest.mark.parametrize("stream", [False, True])
def test_litellm(server, want, stream):
    answer = litellm.completion(
        model="openai/served",
        api_base=base(server),
        api_key="none",
        messages=TALK,
        max_tokens=TOKENS,
        stream=stream,
        **({"stream_options": {"include_usage": True}} if stream else {}),
    )
    if stream:
        chunks = list(answer)
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
        assert text == want[0]
        return
    assert answer.choices[0].message.content == want[0]
    assert answer.usage.completion_tokens == want[1]["completion_tokens"]
    litellm.completion(
        model="openai/served",
        api_base=base(server),
        api_key="none",
        messages=[*TALK, answer.choices[0].message.model_dump(), user("Again?")],
        max_tokens=3,
    )


def test_langchain(server, want, images):
    model = ChatOpenAI(
        base_url=base(server), api_key="none", model="served", max_tokens=TOKENS, temperature=0
    )
    talk = [
        SystemMessage("Be brief."),
        HumanMessage("Hello!"),
        AIMessage("Good day."),
        HumanMessage("And now?"),
    ]
    answer = model.invoke(talk)
    assert answer.content == want[0]
    assert answer.usage_metadata["output_tokens"] == want[1]["completion_tokens"]
    assert "".join(chunk.content for chunk in model.stream(talk)) == want[0]
    model.invoke([*talk, answer, HumanMessage("Again?")])  # with its own answer in the history
    question = user("What is it?", images / "coffee.png")
    seen = model.invoke([HumanMessage(content=question["content"])])
    assert seen.content == server.chat([question], temperature=0)[0]


KEY = "a-key-of-the-test"


@pytest.fixture(scope="module")
def several(model_dir, peft_adapter, tmp_path_factory):
    """A base and an adapter, with a key and a template that prints tools."""
    template = ROOT / ".deps/templates/trl/chat_templates/qwen2_5.jinja"
    model = with_room(model_dir("plain"), tmp_path_factory.mktemp("roomy") / "model")
    running = Server(
        *(model, "--adapter", f"tuned={peft_adapter('plain', 'llm')}"),
        *("--template", template),
        key=KEY,
        environment={"LFT_API_KEY": KEY},
    )
    yield running
    assert running.end()[0] == 0


def tool_json():
    parameters = {"type": "object", "properties": {"place": {"type": "string"}}}
    return {"type": "function", "function": {"name": "weather", "parameters": parameters}}


def test_openai_before_and_after(several):
    client = several.client
    assert [model.id for model in client.models.list()] == ["served", "tuned"]
    assert client.models.retrieve("tuned").id == "tuned"
    texts = {}
    for model in ("served", "tuned"):
        answer = client.chat.completions.create(
            model=model,
            messages=TALK,
            max_tokens=TOKENS,
            n=2,
            logprobs=True,
            top_logprobs=4,
            tools=[tool_json()],
        )
        assert answer.model == model and len(answer.choices) == 2
        assert all(len(one.top_logprobs) == 4 for one in answer.choices[0].logprobs.content)
        assert answer.choices[0].message.tool_calls is None
        texts[model] = answer.choices[0].message.content
        assert answer.choices[1].message.content == texts[model]  # greedy
    assert texts["served"] != texts["tuned"]
    with pytest.raises(openai.NotFoundError) as raised:
        client.chat.completions.create(model="other", messages=TALK)
    assert raised.value.code == "model_not_found" and raised.value.param == "model"
    with pytest.raises(openai.NotFoundError) as raised:
        client.models.retrieve("other")
    with pytest.raises(openai.NotFoundError, match="/v1/embeddings"):
        client.embeddings.create(model="served", input="Hello!")
    with pytest.raises(openai.NotFoundError, match="/v1/responses"):
        client.responses.create(model="served", input="Hello!")
    with pytest.raises(openai.BadRequestError, match="response_format"):
        client.chat.completions.create(
            model="served", messages=TALK, response_format={"type": "json_object"}
        )
    with pytest.raises(openai.AuthenticationError) as raised:
        client.with_options(api_key="wrong").models.list()
    assert raised.value.code == "invalid_api_key"


def test_litellm_with_a_key_and_more(several):
    common = dict(api_base=base(several), api_key=KEY, max_tokens=TOKENS)
    answer = litellm.completion(
        model="openai/tuned", messages=TALK, logprobs=True, top_logprobs=2, n=2, **common
    )
    want = several.client.chat.completions.create(model="tuned", messages=TALK, max_tokens=TOKENS)
    assert [one.message.content for one in answer.choices] == [want.choices[0].message.content] * 2
    assert len(answer.choices[0].logprobs.content[0].top_logprobs) == 2
    litellm.completion(model="openai/tuned", messages=TALK, tools=[tool_json()], **common)
    plain = litellm.text_completion(
        model="text-completion-openai/tuned", prompt="The quick", **common
    )
    wanted = several.client.completions.create(model="tuned", prompt="The quick", max_tokens=TOKENS)
    assert plain.choices[0].text == wanted.choices[0].text
    with pytest.raises(litellm.AuthenticationError):
        litellm.completion(model="openai/tuned", messages=TALK, **(common | dict(api_key="wrong")))
    with pytest.raises(litellm.NotFoundError):
        litellm.completion(model="openai/other", messages=TALK, **common)
    with pytest.raises(litellm.ContextWindowExceededError):
        long = [user("word " * 5000)]
        litellm.completion(model="openai/tuned", messages=long, **common)


@tool
def weather(place: str) -> str:
    """The weather of a place."""
    return place


def test_langchain_with_a_key_and_more(several):
    common = dict(base_url=base(several), api_key=KEY, model="tuned", max_tokens=TOKENS)
    model = ChatOpenAI(temperature=0, logprobs=True, top_logprobs=3, **common)
    answer = model.invoke([HumanMessage("Hello!")])
    scores = answer.response_metadata["logprobs"]["content"]
    assert len(scores[0]["top_logprobs"]) == 3
    said = b"".join(bytes(one["bytes"]) for one in scores).decode(errors="replace")
    assert said == answer.content
    with_tools = model.bind_tools([weather]).invoke([HumanMessage("Hello!")])
    more = with_tools.usage_metadata["input_tokens"] - answer.usage_metadata["input_tokens"]
    assert more > 20 and with_tools.tool_calls == []  # calls are text
    two = ChatOpenAI(temperature=1.5, n=2, seed=3, **common).generate([[HumanMessage("Hello!")]])
    assert len(two.generations[0]) == 2
    text = OpenAI(temperature=0, **common).invoke("The quick")
    wanted = several.client.completions.create(model="tuned", prompt="The quick", max_tokens=TOKENS)
    assert text == wanted.choices[0].text


def test_lm_eval(server, want):
    model = LocalChatCompletion(
        base_url=base(server) + "/chat/completions",
        model="served",
        tokenizer_backend=None,
        num_concurrent=1,
        max_retries=1,
    )
    context = model.apply_chat_template(TALK)
    options = {"until": ["never said", "nor this"], "max_gen_toks": TOKENS, "do_sample": False}
    asked = [
        Instance(request_type="generate_until", doc={}, arguments=(context, options), idx=i)
        for i in range(2)
    ]
    assert model.generate_until(asked, disable_tqdm=True) == [want[0]] * 2
