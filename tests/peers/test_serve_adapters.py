"""lft serve: a base and several adapters in one server, chosen by the request's model."""

import concurrent.futures
import json

import pytest
import torch

import reference
from serving import TOKENS, Server, serving, user
from tools import lft

# LoRA on the decoder, LoRA with a projector trained whole, DoRA everywhere: each attaches
# differently.
ADAPTERS = ["llm", "llm_projector_whole", "dora_everywhere"]
NAMES = ["served", *ADAPTERS]
QUESTIONS = [("Hello!", None), ("What is in the picture?", "coffee.png"), ("And this?", "tiny.png")]


@pytest.fixture(scope="module")
def adapters(peft_adapter):
    return {name: peft_adapter("plain", name) for name in ADAPTERS}


@pytest.fixture(scope="module")
def server(model_dir, adapters):
    options = [value for name in ADAPTERS for value in ("--adapter", f"{name}={adapters[name]}")]
    with serving(model_dir("plain"), *options) as running:
        yield running


@pytest.fixture(scope="module")
def generated(model_dir, adapters, images):
    """(model, question) -> the answer of lft generate."""

    def answer(name, question, image):
        more = ["--adapter", adapters[name]] if name in adapters else []
        if image:
            more += ["--image", images / image]
        done = lft(
            *("generate", "--model", model_dir("plain"), "--prompt", question),
            *("--max-new-tokens", TOKENS, *more),
        )
        return done.stdout.removesuffix("\n")

    return {(name, one): answer(name, *one) for name in NAMES for one in QUESTIONS}


def plain(text):
    return text.replace("\r\n", "\n").replace("\r", "\n")


def test_each_model_answers_as_generate_alone_and_among_others(server, generated, images):
    assert len({generated[name, QUESTIONS[1]] for name in NAMES}) == len(NAMES)

    def ask(name, one):
        image = one[1] and images / one[1]
        return plain(server.ask(one[0], image, model=name).choices[0].message.content)

    asked = [(name, one) for name in NAMES for one in QUESTIONS]
    for each in asked:
        assert ask(*each) == generated[each], each
    with concurrent.futures.ThreadPoolExecutor(24) as pool:
        answers = list(pool.map(lambda i: ask(*asked[i % len(asked)]), range(72)))
    for i, answer in enumerate(answers):
        assert answer == generated[asked[i % len(asked)]], asked[i % len(asked)]


def test_logprobs_in_mixed_batches_are_those_of_peft(server, model_dir, adapters, images):
    row = dict(conversations=[dict(value="<image>\nWhat is it?"), dict(value="")])
    question = user("What is it?", images / "coffee.png")

    def entries(name):
        body = dict(model=name, messages=[question], max_tokens=TOKENS, logprobs=True)
        status, answer = server.post(json.dumps(body))
        assert status == 200, answer
        return answer["choices"][0]["logprobs"]["content"]

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        got = list(pool.map(lambda i: entries(NAMES[i % 4]), range(32)))
    for number, name in enumerate(NAMES):
        peer = reference.Peer(model_dir("plain"), adapters.get(name))
        ids, _, pixels = peer.encode(
            row | dict(image="coffee.png"), images, server_template(peer), "pad", generate=True
        )
        answer = []
        for i in range(TOKENS):
            scores = torch.log_softmax(peer.logits(ids + answer, pixels)[-1], -1)
            best = scores.argmax().item()
            for mixed in got[number::4]:
                if i < len(mixed):
                    assert mixed[i]["logprob"] == pytest.approx(scores[best].item(), abs=1e-3)
                else:
                    assert best == 2 or i >= len(mixed)
            if best == 2:
                break
            answer.append(best)
        assert {len(mixed) for mixed in got[number::4]} == {len(answer)}


def server_template(peer):
    """The checkpoint's template is one of LLaVA's forms."""
    return "llava-v1"


def test_models_are_listed_and_described(server):
    listed = server.client.models.list().data
    assert [model.id for model in listed] == NAMES
    for name in NAMES:
        model = server.client.models.retrieve(name)
        assert model.id == name and model.object == "model" and model.owned_by == "lft"
    assert server.client.models.retrieve("llm").parent == "served"
    for path in ("/v1/models/other", "/v1/models/llm/more", "/v1/models/%00", "/v1/models/" * 500):
        status, _, text = server.get(path)
        assert status in (404, 414), path
    status, _, text = server.get("/v1/models/other")
    assert json.loads(text)["error"]["code"] == "model_not_found"
    assert server.get("/v1/models/llm", method="DELETE")[0] == 405


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
def test_the_model_must_be_one_of_them(server, path):
    body = dict(messages=[user("Q")]) if "chat" in path else dict(prompt="Q")
    for model, status, code in [
        ("other", 404, "model_not_found"),
        ("", 400, "missing_required_parameter"),
        (None, 400, "missing_required_parameter"),
        (5, 400, "invalid_type"),
    ]:
        got, answer = server.post(json.dumps(body | dict(model=model)), path=path)
        error = answer["error"]
        assert (got, error["code"], error["param"]) == (status, code, "model"), answer
        if status == 404 or code.startswith("missing"):
            assert ", ".join(NAMES) in error["message"]


def test_one_adapter_alone_replaces_its_base(model_dir, adapters, generated):
    with serving(model_dir("plain"), "--adapter", adapters["llm"]) as running:
        assert [model.id for model in running.client.models.list()] == ["served"]
        said = running.ask("Hello!").choices[0].message.content
        assert plain(said) == generated["llm", QUESTIONS[0]]
        running.chat([user("Hello!")], model=None)  # one model needs no name
        status, answer = running.post(json.dumps(dict(model="x", messages=[user("Q")])))
        assert status == 404 and answer["error"]["code"] == "model_not_found"


def test_adapters_without_names_have_those_of_their_directories(model_dir, adapters):
    options = ["--adapter", adapters["llm"], "--adapter", adapters["dora_everywhere"]]
    with serving(model_dir("plain"), *options) as running:
        assert [model.id for model in running.client.models.list()] == [
            "served",
            adapters["llm"].name,
            adapters["dora_everywhere"].name,
        ]


@pytest.mark.parametrize(
    "options, words",
    [
        (["a={llm}", "a={dora}"], ["two models have one name", '"a"']),
        (["served={llm}"], ["two models have one name", '"served"']),
        (["={llm}"], ["without a name"]),
        (["a="], ["without a name or a directory"]),
        (["a=/nowhere", "b={llm}"], ["/nowhere"]),
    ],
)
def test_wrong_adapters_are_refused_before_anything_is_served(model_dir, adapters, options, words):
    values = [
        value.format(llm=adapters["llm"], dora=adapters["dora_everywhere"]) for value in options
    ]
    given = [word for value in values for word in ("--adapter", value)]
    code = 3 if "nowhere" in values[0] else 2
    done = lft(
        "serve", "--model", model_dir("plain"), "--name", "served", "--port", 0, *given, code=code
    )
    for word in words:
        assert word in done.stderr, done.stderr


def test_an_error_of_one_adapter_does_not_end_the_others(server):
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        good = [pool.submit(server.ask, "Hello!", model=name) for name in NAMES]
        bad = server.post(
            json.dumps(dict(model="llm", prompt=[5] * 9000, max_tokens=5)), path="/v1/completions"
        )
        assert bad[0] == 400
        for one in good:
            assert one.result().choices[0].message.content


def test_a_signal_drains_all_models(model_dir, adapters):
    running = Server(
        model_dir("plain"), "--adapter", f"a={adapters['llm']}", "--adapter",
        f"b={adapters['dora_everywhere']}", "--batch", 3,
    )  # fmt: skip
    with concurrent.futures.ThreadPoolExecutor(9) as pool:
        asked = [
            pool.submit(running.ask, "Hello!", model=name, max_tokens=40)
            for name in ("served", "a", "b") * 3
        ]
        while running.client.models.list().data == []:
            pass
        code, _, err = running.end()
        answers = [one.result().choices[0].message.content for one in asked]
    assert code == 0 and all(answers), err
    assert answers[:3] * 3 == answers
