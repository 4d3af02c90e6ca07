"""lft serve: the openai client receives what lft generate prints;
malformed, huge or slow requests are refused; a signal drains."""

import concurrent.futures
import json
import shutil
import socket
import threading
import time

import openai
import pytest
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer

import reference
from serving import TOKENS, Server, serving, user
from tools import lft

PICTURES = ["chelsea.png", "coffee.png", "rocket.jpg", "tall.png", "turned.jpg", "tiny.png"]


@pytest.fixture(scope="module")
def server(model_dir):
    with serving(model_dir("plain"), "--request-time", 5) as running:
        yield running


def generated(model, question, image=None):
    images = [] if image is None else ["--image", image]
    out = lft(
        "generate", "--model", model, *images, "--prompt", question, "--max-new-tokens", TOKENS
    ).stdout
    return out.removesuffix("\n")


def test_200_requests_at_once_are_answered_as_generate_answers(server, model_dir, images):
    asked = [("What is in the picture?", images / name) for name in PICTURES] + [
        ("Hello!", None),
        ("Name three colours.", None),
    ]
    want = [generated(model_dir("plain"), *one) for one in asked]
    assert len(set(want)) > 4
    with concurrent.futures.ThreadPoolExecutor(200) as pool:
        answers = list(pool.map(lambda i: server.ask(*asked[i % len(asked)]), range(200)))
    for i, answer in enumerate(answers):
        choice = answer.choices[0]
        said = choice.message.content.replace("\r\n", "\n").replace(
            "\r", "\n"
        )  # as a pipe read as text returns it
        assert said == want[i % len(asked)], asked[i % len(asked)]
        assert (
            choice.finish_reason in ("stop", "length") and answer.usage.completion_tokens <= TOKENS
        )
        assert (choice.finish_reason == "length") == (answer.usage.completion_tokens == TOKENS)
        assert (
            answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
        )


def test_a_stream_says_the_same_in_pieces(server, images):
    whole = server.ask("What is in the picture?", images / "coffee.png")
    pieces = list(
        server.ask(
            "What is in the picture?",
            images / "coffee.png",
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    assert pieces[0].choices[0].delta.role == "assistant"
    assert (
        "".join(piece.choices[0].delta.content or "" for piece in pieces if piece.choices)
        == whole.choices[0].message.content
    )
    assert [piece.choices[0].finish_reason for piece in pieces if piece.choices][
        -1
    ] == whole.choices[0].finish_reason
    assert pieces[-1].usage == whole.usage


def test_an_answer_ends_before_a_stop_text(server):
    text = server.ask("Hello!").choices[0].message.content
    stop = text[len(text) // 2 : len(text) // 2 + 2]
    for stream in (False, True):
        answer = server.ask("Hello!", stop=[stop, "never said"], stream=stream)
        choices = [piece.choices[0] for piece in answer] if stream else answer.choices
        said = (
            "".join(c.delta.content or "" for c in choices)
            if stream
            else choices[0].message.content
        )
        assert said == text[: text.index(stop)] and choices[-1].finish_reason == "stop"


def test_draws_repeat_with_their_seed(server):
    def draw(seed):
        return (
            server.ask("Hello!", temperature=1.5, top_p=0.9, seed=seed).choices[0].message.content
        )

    assert draw(3) == draw(3) and len({draw(seed) for seed in range(4)}) > 1


def test_top_k_and_the_penalty_are_those_of_generate(server, model_dir):
    def served(**fields):
        return server.ask("Hello!", extra_body=fields, max_tokens=40).choices[0].message.content

    def said(*options):
        done = lft(
            "generate",
            "--model",
            model_dir("plain"),
            "--prompt",
            "Hello!",
            "--max-new-tokens",
            40,
            *options,
        )
        return done.stdout.removesuffix("\n")

    greedy, penalised = said(), said("--repetition-penalty", 4)
    assert penalised != greedy
    asked = [
        served(repetition_penalty=4),
        served(repetition_penalty=None),
        served(top_k=1, temperature=1.5),
    ]
    assert [text.replace("\r\n", "\n").replace("\r", "\n") for text in asked] == [
        penalised,
        greedy,
        greedy,
    ]
    drawn = {k: served(top_k=k, temperature=1.5, seed=3) for k in (-1, 0, 1 << 24, 2)}
    assert drawn[-1] == drawn[0] == drawn[1 << 24] != drawn[2]


def test_a_conversation_is_read_whole(server):
    first = user("Hello!")
    answer = {"role": "assistant", "content": "Good day."}
    two = server.client.chat.completions.create(
        model="served", messages=[first, answer, user("And now?")], max_tokens=TOKENS
    )
    assert two.usage.prompt_tokens > server.ask("And now?").usage.prompt_tokens + 3
    assert [model.id for model in server.client.models.list()] == ["served"]


BAD = {
    "no JSON": b"{",
    "no object": b"[]",
    "no messages": b'{"model": "served"}',
    "another model": b'{"model": "gpt", "messages": [{"role": "user", "content": "Q"}]}',
    "a file": (
        b'{"model": "served", "messages": [{"role": "user", "content": '
        b'[{"type": "image_url", "image_url": {"url": "/etc/passwd"}}]}]}'
    ),
    "an address": (
        b'{"model": "served", "messages": [{"role": "user", "content": '
        b'[{"type": "image_url", "image_url": {"url": "http://127.0.0.1/"}}]}]}'
    ),
    "no image": (
        b'{"model": "served", "messages": [{"role": "user", "content": '
        b'[{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]}]}'
    ),
    "tools": (
        b'{"model": "served", "messages": [{"role": "user", "content": "Q"}], '
        b'"tools": [{"type": "function"}]}'
    ),
    "65 answers": b'{"model": "served", "messages": [{"role": "user", "content": "Q"}], "n": 65}',
    "a temperature of text": (
        b'{"model": "served", "messages": [{"role": "user", "content": "Q"}], "temperature": "hot"}'
    ),
    "a top_k of text": (
        b'{"model": "served", "messages": [{"role": "user", "content": "Q"}], "top_k": "2"}'
    ),
    "half a top_k": (
        b'{"model": "served", "messages": [{"role": "user", "content": "Q"}], "top_k": 2.5}'
    ),
    "a top_k below all": (
        b'{"model": "served", "messages": [{"role": "user", "content": "Q"}], "top_k": -2}'
    ),
    "a penalty of 0": (
        b'{"model": "served", "messages": [{"role": "user", "content": "Q"}], '
        b'"repetition_penalty": 0}'
    ),
    "a penalty beyond all": (
        b'{"model": "served", "messages": [{"role": "user", "content": "Q"}], '
        b'"repetition_penalty": 1e9}'
    ),
    "a penalty of truth": (
        b'{"model": "served", "messages": [{"role": "user", "content": "Q"}], '
        b'"repetition_penalty": true}'
    ),
    "an unknown field": (
        b'{"model": "served", "messages": [{"role": "user", "content": "Q"}], "best_of": 3}'
    ),
    "deep": b'{"model": "served", "messages": ' + b"[" * 100000 + b"]" * 100000 + b"}",
    "no UTF-8": b'{"model": "served", "messages": [{"role": "user", "content": "\xff"}]}',
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_request_is_refused_by_name(server, name):
    status, answer = server.post(BAD[name])
    assert status == (404 if name == "another model" else 400), answer
    assert (
        len(answer["error"]["message"]) > 10 and answer["error"]["type"] == "invalid_request_error"
    )
    if "top_k" in name or "penalty" in name:
        assert (
            answer["error"]["param"] in ("top_k", "repetition_penalty")
            and answer["error"]["param"] in answer["error"]["message"]
        )


def test_malformed_huge_and_slow_requests_end_in_a_refusal_and_nothing_grows(server):
    head = (
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        b"Content-Type: application/json\r\n"
    )

    def status(data):
        answer = server.raw(data)
        assert answer.startswith(b"HTTP/1.1 4"), answer[:200]
        return int(answer[9:12])

    server.ask("Hello!")
    before = server.memory()
    assert status(b"\x00\xff nonsense\r\n\r\n") == 400
    assert status(b"GET /" + b"a" * 200000 + b" HTTP/1.1\r\n\r\n") in (414, 431)
    assert status(head + b"X: " + b"a" * 200000 + b"\r\n\r\n") in (400, 431)
    assert status(head + b"".join(b"X%d: y\r\n" % i for i in range(20000)) + b"\r\n") in (400, 431)
    assert status(head + b"Content-Length: 100000000000\r\n\r\n" + b" " * (1 << 20)) == 413
    assert status(head + b"\r\n") == 411
    assert status(head + b"Transfer-Encoding: chunked\r\n\r\n" + b"f" * 100000) == 400
    assert status(head + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n") == 400
    assert (
        status(head.replace(b"application/json", b"text/plain") + b"Content-Length: 2\r\n\r\n{}")
        == 415
    )
    assert status(head + b"Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}") == 415
    assert status(b"GET /nothing HTTP/1.1\r\nConnection: close\r\n\r\n") == 404
    assert status(b"DELETE /v1/models HTTP/1.1\r\nConnection: close\r\n\r\n") == 405
    # Slow ones: a head and a body that arrive byte by byte, and nothing at all.
    started = time.monotonic()
    answers = {}

    def drip(name, start):
        with socket.create_connection(("127.0.0.1", server.port), timeout=60) as sock:
            try:
                for byte in start + b" " * 100000:
                    sock.sendall(bytes([byte]))
                    time.sleep(0.05 if byte == 32 else 0)
            except OSError:
                pass
            try:
                answers[name] = sock.recv(100)
            except OSError:
                answers[name] = b"reset"

    threads = [
        threading.Thread(target=drip, args=one)
        for one in [
            ("head", b"GET /v1/models HTTP/1.1\r\nX: "),
            ("body", head + b"Content-Length: 100000\r\n\r\n"),
        ]
    ]
    for thread in threads:
        thread.start()
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as silent:
        assert silent.recv(10) == b""
    for thread in threads:
        thread.join()
    assert time.monotonic() - started < 30
    assert all(
        answer.startswith(b"HTTP/1.1 408") or answer == b"reset" for answer in answers.values()
    ), answers
    # 64 large requests at once, each refused for its content.
    large = b'{"model": "served", "messages": "' + b"x" * (8 << 20) + b'"}'
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        assert set(pool.map(lambda _: server.post(large)[0], range(64))) <= {400, 503}
    assert server.ask("Hello!").choices[0].message.content
    assert server.memory() - before < 256 << 20, (before, server.memory())


def test_clients_that_leave_cost_no_answer(server):
    body = json.dumps(
        {"model": "served", "messages": [user("Hello!")], "max_tokens": 1000, "temperature": 1}
    ).encode()
    for _ in range(30):
        with socket.create_connection(("127.0.0.1", server.port)) as sock:
            sock.sendall(
                b"POST /v1/chat/completions HTTP/1.1\r\nContent-Type: application/json\r\n"
                b"Content-Length: %d\r\n\r\n" % len(body) + body
            )
    started = time.monotonic()
    assert server.ask("Hello!").choices[0].message.content
    assert time.monotonic() - started < 20


def test_a_signal_ends_it_after_the_last_answer(model_dir):
    running = Server(model_dir("plain"), "--batch", 2, "--queue", 8)
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        asked = [pool.submit(running.ask, "Hello!", max_tokens=40) for _ in range(6)]
        while running.client.models.list().data == []:
            time.sleep(0.01)
        time.sleep(0.05)
        code, _, err = running.end()
        answers = [one.result().choices[0].message.content for one in asked]
    assert code == 0 and len(set(answers)) == 1 and answers[0], err
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", running.port), timeout=2)


def test_more_than_may_wait_are_told_to_come_again(model_dir):
    running = Server(model_dir("plain"), "--batch", 1, "--queue", 1)
    with concurrent.futures.ThreadPoolExecutor(30) as pool:

        def code(_):
            try:
                running.ask("Hello!", max_tokens=100, temperature=1)
                return 200
            except openai.RateLimitError:
                return 429

        codes = list(pool.map(code, range(30)))
    assert running.end()[0] == 0
    assert codes.count(200) >= 2 and codes.count(429) > 0


def test_a_port_in_use_is_named(server, model_dir):
    done = lft("serve", "--model", model_dir("plain"), "--port", server.port, code=6)
    assert "cannot listen there" in done.stderr and str(server.port) in done.stderr


def test_an_answer_that_is_not_finite_is_an_error(model_dir, images, tmp_path):
    """A token that overflows the first layer's MLP: a request with it ends with a 500 with that
    reason, plain and streamed, with a temperature too; other requests are answered."""
    model = tmp_path / "model"
    shutil.copytree(model_dir("plain"), model)
    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    question, bad = "What is in the picture?", "zebra"
    others = question + "Hello! USER: ASSISTANT: " + reference.SYSTEM
    token = (set(tokenizer.encode(bad).ids) - set(tokenizer.encode(others).ids)).pop()
    weights = load_file(model / "model.safetensors")
    layer = "language_model.model.layers.0."  # the last hidden dimension is used only by this token
    table = weights["language_model.model.embed_tokens.weight"]
    table[:, -1] = 0
    table[token, -1] = 8
    for name in (
        layer + "self_attn.o_proj.weight",
        "multi_modal_projector.linear_2.weight",
        "multi_modal_projector.linear_2.bias",
    ):
        weights[name][-1] = 0
    up, down = (weights[f"{layer}mlp.{name}_proj.weight"] for name in ("up", "down"))
    up[0], up[0, -1], down[:, 0] = 0, 3e38, 0
    save_file(weights, model / "model.safetensors", metadata={"format": "pt"})
    running = Server(model)
    try:
        body = dict(model="served", messages=[user(bad)], max_tokens=TOKENS)
        for temperature in (0, 0.8):
            with concurrent.futures.ThreadPoolExecutor(3) as pool:
                good = [pool.submit(running.ask, "Hello!") for _ in range(2)]
                status, answer = pool.submit(
                    running.post, json.dumps(dict(body, temperature=temperature))
                ).result()
            assert status == 500, answer
            message = answer["error"]["message"]
            assert "the model's output is not finite" in message
            assert "layers.0.mlp.up_proj" in message
            for one in good:
                assert one.result().choices[0].message.content == generated(model, "Hello!")
        with pytest.raises(openai.APIError, match="not finite"):
            list(running.ask(bad, stream=True))
        assert running.ask(question, images / "coffee.png").choices[0].message.content
    finally:
        code, _, err = running.end()
    assert code == 0 and "the model's output is not finite" in err, err
    wrong = lft("generate", "--model", model, "--prompt", bad, code=5)
    assert "layers.0.mlp.up_proj" in wrong.stderr and wrong.stdout == ""
