"""lft serve: common clients receive the answers of the plain request."""

import asyncio
import sys

import litellm
import openai
import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langchain_openai import ChatOpenAI

from serving import TOKENS, serving, user
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
