"""lft serve: API keys, other origins, log lines, and the codes of errors."""

import http.client
import json
import re
import time

import openai
import pytest

from serving import Server, serving, user
from tools import lft

SECRET = "WordsOfThePrompt"
BODY = json.dumps({"messages": [user(SECRET)], "max_tokens": 3})
SITE = "http://localhost:3000"


@pytest.fixture(scope="module")
def guarded(model_dir):
    options = ["--api-key", "first-key", "--cors", SITE]
    environment = {"LFT_API_KEY": " second-key , third-key"}
    running = Server(model_dir("plain"), *options, key="first-key", environment=environment)
    yield running
    code, _, err = running.end()
    assert code == 0, err
    assert "first-key" not in err and "second-key" not in err


def bearer(key, scheme="Bearer"):
    return {"Authorization": f"{scheme} {key}"}


def test_a_key_of_the_options_or_the_environment_is_needed(guarded):
    for key in ("first-key", "second-key", "third-key"):
        assert guarded.post(BODY, bearer(key))[0] == 200
        assert guarded.post(BODY, bearer(key, "bearer"))[0] == 200
        assert guarded.get("/v1/models", bearer(key))[0] == 200
    assert guarded.ask("Hello!").choices[0].finish_reason
    for headers in [
        {},
        bearer(""),
        bearer("first-ke"),
        bearer("first-key2"),
        bearer("second-key , third-key"),
        bearer("first-key", "Basic"),
        {"Authorization": "first-key"},
        {"X-Api-Key": "first-key"},
    ]:
        for path in ("/v1/chat/completions", "/v1/completions", "/v1/nothing"):
            status, answer = guarded.post(BODY, headers, path=path)
            assert status == 401, headers
            assert answer["error"]["code"] == "invalid_api_key"
            assert answer["error"]["type"] == "invalid_request_error"
            assert "Authorization: Bearer" in answer["error"]["message"]
        assert guarded.get("/v1/models", headers)[1]["WWW-Authenticate"] == "Bearer"
    assert guarded.get("/health")[0] == 200
    wrong = openai.OpenAI(base_url=guarded.client.base_url, api_key="wrong", max_retries=0)
    with pytest.raises(openai.AuthenticationError):
        wrong.models.list()


@pytest.mark.parametrize("key", ["", "two words", "ключ"])
def test_a_malformed_key_is_refused(model_dir, key):
    arguments = ["serve", "--model", model_dir("plain"), "--port", 0, "--api-key", key]
    done = lft(*arguments, code=2)
    assert "API key" in done.stderr and "--api-key" in done.stderr


def preflight(running, origin, path="/v1/chat/completions", **more):
    headers = {
        "Origin": origin,
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization, content-type, x-stainless-os",
    }
    return running.get(path, headers | more, method="OPTIONS")


def test_pages_of_the_named_origin_may_use_it(guarded):
    status, headers, text = preflight(guarded, SITE)
    assert status == 204 and text == ""
    assert headers["Access-Control-Allow-Origin"] == SITE and headers["Vary"] == "Origin"
    assert "POST" in headers["Access-Control-Allow-Methods"]
    assert "x-stainless-os" in headers["Access-Control-Allow-Headers"]
    private = {"Access-Control-Request-Private-Network": "true"}
    assert preflight(guarded, SITE, **private)[1]["Access-Control-Allow-Private-Network"] == "true"
    status, headers, _ = guarded.get("/v1/models", bearer("first-key") | {"Origin": SITE})
    assert status == 200 and headers["Access-Control-Allow-Origin"] == SITE
    status, headers, _ = guarded.get("/v1/models", {"Origin": SITE})  # a page may read refusals
    assert status == 401 and headers["Access-Control-Allow-Origin"] == SITE
    for origin in (
        "http://localhost:3001",
        "https://localhost:3000",
        "http://evil.example",
        "null",
    ):
        status, headers, _ = preflight(guarded, origin)
        assert status >= 400 and "Access-Control-Allow-Origin" not in headers
        _, headers, _ = guarded.get("/v1/models", bearer("first-key") | {"Origin": origin})
        assert "Access-Control-Allow-Origin" not in headers
    assert preflight(guarded, SITE, path="/nowhere")[0] in (401, 404)
    rebound = http.client.HTTPConnection("127.0.0.1", guarded.port, timeout=60)
    rebound.putrequest("OPTIONS", "/v1/models", skip_host=True)
    for name, value in {
        "Host": "evil.example",
        "Origin": SITE,
        "Access-Control-Request-Method": "GET",
    }.items():
        rebound.putheader(name, value)
    rebound.endheaders()
    assert rebound.getresponse().status == 421


def test_no_origin_is_allowed_without_the_option_and_all_with_a_star(model_dir):
    with serving(model_dir("plain")) as running:
        status, headers, _ = preflight(running, SITE)
        assert status == 405 and not any("Access-Control" in name for name in headers)
        assert "Access-Control-Allow-Origin" not in running.get("/health", {"Origin": SITE})[1]
    with serving(model_dir("plain"), "--cors", "*") as running:
        for origin in ("null", SITE, "https://elsewhere.example"):
            assert preflight(running, origin)[1]["Access-Control-Allow-Origin"] == origin
            status, answer = running.post(BODY, {"Origin": origin})
            assert status == 200, answer


@pytest.mark.parametrize(
    "origin", ["localhost", "http://", "http://a.example/", "ftp", "http://A b"]
)
def test_what_is_no_origin_is_refused(model_dir, origin):
    done = lft("serve", "--model", model_dir("plain"), "--port", 0, "--cors", origin, code=2)
    assert "--cors" in done.stderr and "http://localhost:3000" in done.stderr


@pytest.fixture(scope="module")
def server(model_dir):
    with serving(model_dir("plain")) as running:
        yield running


LINE = r"^(\S+) (\S+) (\d+)( \(.+\))?(, served)?(, \d+ tokens in)?(, \d+ out)?, \d+\.\d{3} s$"


def log_lines(server):
    return [line for line in server.log().splitlines() if re.search(r", \d+\.\d{3} s$", line)]


def test_each_request_has_one_log_line_without_its_text(server):
    requests = [
        lambda: server.post(BODY)[1]["usage"],
        lambda: list(server.ask(SECRET, stream=True, stream_options={"include_usage": True}))[-1],
        lambda: server.post(
            json.dumps({"prompt": SECRET, "max_tokens": 2}), path="/v1/completions"
        ),
        lambda: server.post(json.dumps({"messages": SECRET})),
        lambda: server.post(json.dumps({"messages": [user(SECRET)], SECRET: 1})),
        lambda: server.post(json.dumps({"messages": [user(SECRET)], "model": SECRET})),
        lambda: server.post(SECRET),
        lambda: server.get("/nothing?" + SECRET),
        lambda: server.get("/health"),
        lambda: server.get("/v1/models/served"),
        lambda: server.raw(b"nonsense\r\n\r\n"),
        lambda: server.raw(
            b"GET /a\x1b[31m HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        ),
    ]
    answers = []
    for request in requests:
        answers.append(request())
        deadline = time.monotonic() + 60  # the line is written after the answer is sent
        while len(log_lines(server)) < len(answers) and time.monotonic() < deadline:
            time.sleep(0.01)
    usage, streamed = answers[0], answers[1].usage
    log = server.log()
    assert SECRET not in log and "\x1b" not in log
    lines = log_lines(server)
    assert len(lines) == 12, log
    for line in lines[:10]:
        assert re.match(LINE, line), line
    begin = [line.rsplit(", ", 1)[0] for line in lines]
    chat = "POST /v1/chat/completions"
    tokens = f"{usage['prompt_tokens']} tokens in, {usage['completion_tokens']} out"
    assert begin[0] == f"{chat} 200, served, {tokens}"
    tokens = f"{streamed.prompt_tokens} tokens in, {streamed.completion_tokens} out"
    assert begin[1] == f"{chat} 200, served, {tokens}"
    assert begin[2].startswith("POST /v1/completions 200, served, ") and begin[2].endswith("2 out")
    assert begin[3] == f"{chat} 400 (messages: invalid_type)"
    assert begin[4].startswith(f"{chat} 400 (") and "unsupported_parameter" in begin[4]
    assert begin[5] == f"{chat} 404 (model: model_not_found)"
    assert begin[6] == f"{chat} 400"
    assert begin[7] == "GET /nothing 404 (unknown_url)"
    assert begin[8] == "GET /health 200" and begin[9] == "GET /v1/models/served 200, served"
    assert begin[10] == begin[11] == "a request that was not read 400"


CODES = [
    ({}, "messages", "missing_required_parameter"),
    ({"messages": [user("Q")], "temperature": "hot"}, "temperature", "invalid_type"),
    ({"messages": [user("Q")], "temperature": 5}, "temperature", "invalid_value"),
    ({"messages": [user("Q")], "n": 0}, "n", "invalid_value"),
    ({"messages": [user("Q")], "n": 65}, "n", "invalid_value"),
    ({"messages": [user("Q")], "logprobs": 3}, "logprobs", "invalid_type"),
    ({"messages": [user("Q")], "top_logprobs": 3}, "top_logprobs", "invalid_value"),
    (
        {"messages": [user("Q")], "logprobs": True, "top_logprobs": 21},
        "top_logprobs",
        "invalid_value",
    ),
    ({"messages": [user("Q")], "best_of": 3}, "best_of", "unsupported_parameter"),
    (
        {"messages": [user("Q")], "response_format": {"type": "json_schema"}},
        "response_format",
        "unsupported_parameter",
    ),
    ({"messages": [user("word " * 3000)]}, "messages", "context_length_exceeded"),
    ({"messages": [user("word " * 300000)]}, "messages", "context_length_exceeded"),
    ({"messages": [user("Q")], "model": "x"}, "model", "model_not_found"),
]


@pytest.mark.parametrize("body, field, code", CODES)
def test_errors_have_openais_codes(server, body, field, code):
    status, answer = server.post(json.dumps(body))
    assert status == (404 if code == "model_not_found" else 400)
    error = answer["error"]
    assert error["code"] == code and error["type"] == "invalid_request_error", answer
    assert error["param"] in (field, None), answer


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/embeddings", "/chat/completions"])
def test_a_missing_path_is_named_with_those_that_exist(server, path):
    status, answer = server.post(BODY, path=path)
    error = answer["error"]
    assert status == 404 and error["code"] == "unknown_url" and f'"{path}"' in error["message"]
    for known in ("/v1/chat/completions", "/v1/completions", "/v1/models/{id}", "/health"):
        assert known in error["message"]
    assert ("/v1" in path[:4]) != ("base_url" in error["message"])
    status, headers, text = server.get("/v1/chat/completions")
    assert status == 405 and json.loads(text)["error"]["code"] == "method_not_supported"
    assert headers["Allow"] == "POST"
