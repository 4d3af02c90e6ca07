"""lft serve: answers in progress survive a signal; idle and half-sent connections delay no one;
invalid requests are refused at once."""

import concurrent.futures
import contextlib
import json
import signal
import socket
import threading
import time
import urllib.request

import pytest

from serving import Server, serving, user

BODY = json.dumps({"messages": [user("Hello!")], "max_tokens": 5}).encode()
HEAD = (
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
)


@pytest.fixture(scope="module")
def server(model_dir):
    with serving(model_dir("plain")) as running:
        yield running


def connect(running):
    return socket.create_connection(("127.0.0.1", running.port), timeout=60)


def health(running):
    """Seconds that /health takes."""
    started = time.monotonic()
    with urllib.request.urlopen(f"http://127.0.0.1:{running.port}/health", timeout=60) as answer:
        assert answer.status == 200
    return time.monotonic() - started


LONG = dict(max_tokens=400, temperature=1.0, extra_body={"repetition_penalty": 1.0})


def long_answers(running, count):
    """Starts this many streams; returns functions that read each to its end once all have begun."""
    streams = [running.ask("Hello!", stream=True, seed=i, **LONG) for i in range(count)]
    for stream in streams:
        next(stream)
    return [
        lambda stream=stream: [chunk.choices[0].finish_reason for chunk in stream][-1]
        for stream in streams
    ]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stream_that_has_begun_outlives_a_signal(model_dir, number):
    running = Server(model_dir("plain"))
    rests = long_answers(running, 6)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        whole = pool.submit(running.ask, "Hello!", **LONG)
        time.sleep(0.1)
        running.process.send_signal(number)
        ends = [pool.submit(rest) for rest in rests]
        code, _, err = running.end(0)
        assert [end.result() for end in ends] == [end.result() for end in ends]
        assert {end.result() for end in ends} <= {"stop", "length"}
        assert whole.result().choices[0].finish_reason in ("stop", "length")
    assert code == 0, err


def test_a_second_signal_ends_at_once(model_dir):
    running = Server(model_dir("plain"), "--max-new-tokens", 100000)
    running.ask("Hello!", stream=True, **dict(LONG, max_tokens=100000))
    running.process.send_signal(signal.SIGTERM)
    time.sleep(0.3)
    started = time.monotonic()
    code, _, _ = running.end(signal.SIGTERM)
    assert code in (0, 128 + signal.SIGTERM) and time.monotonic() - started < 5


@contextlib.contextmanager
def many(running, count, data):
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            stack.enter_context(connect(running)).sendall(data)
        yield


HALF = {
    "idle": b"",
    "half a head": b"POST /v1/chat/completions HTTP/1.1\r\nHost: local",
    "half a body": HEAD + b"Content-Length: 1000\r\n\r\n{",
    "half a chunk": HEAD + b"Transfer-Encoding: chunked\r\n\r\n100\r\n{",
}


@pytest.mark.parametrize("name", HALF)
def test_300_connections_without_a_request_delay_neither_an_answer_nor_the_exit(model_dir, name):
    running = Server(model_dir("plain"))
    with many(running, 300, HALF[name]):
        assert health(running) < 2
        assert running.ask("Hello!").choices[0].message.content
        started = time.monotonic()
        code, _, err = running.end()
        assert code == 0 and time.monotonic() - started < 5, err


def test_more_connections_than_there_is_room_for_end_the_idle_ones(server):
    with many(server, 1100, b""):
        assert health(server) < 2
    assert server.ask("Hello!").choices[0].message.content


MALFORMED = {
    "a negative length": HEAD + b"Content-Length: -5\r\n\r\n",
    "a length with a sign": HEAD + b"Content-Length: +5\r\n\r\n     ",
    "a length and a letter": HEAD + b"Content-Length: 5x\r\n\r\n     ",
    "an empty length": HEAD + b"Content-Length: \r\n\r\n",
    "a list of lengths": HEAD + b"Content-Length: 2, 2\r\n\r\n{}",
    "two lengths": HEAD + b"Content-Length: 2\r\nContent-Length: 4\r\n\r\n{}{}",
    "one length twice": HEAD + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}",
    "a length and chunks": HEAD + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}",
    "an unknown coding": HEAD + b"Transfer-Encoding: gzip\r\n\r\n{}",
    "a chunk without a size": HEAD + b"Transfer-Encoding: chunked\r\n\r\nx\r\n",
    "a chunk longer than its size": HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}}\r\n",
    "a space before the colon": HEAD + b"Content-Length : 2\r\n\r\n{}",
    "a folded header": HEAD + b"X: a\r\n b\r\nContent-Length: 2\r\n\r\n{}",
    "a line feed alone": HEAD.replace(b"\r\n", b"\n") + b"Content-Length: 2\n\n{}",
    "two hosts": HEAD + b"Host: localhost\r\nContent-Length: 2\r\n\r\n{}",
    "another version": b"GET /health HTTP/3.0\r\n\r\n",
    "no target": b"GET\r\n\r\n",
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_request_is_refused_at_once_and_ends_its_connection(server, name):
    started = time.monotonic()
    answer = server.raw(MALFORMED[name])
    assert answer.startswith(b"HTTP/1.1 400") and time.monotonic() - started < 5, answer[:200]
    assert len(json.loads(answer.split(b"\r\n\r\n", 1)[1])["error"]["message"]) > 10


def test_a_chunked_upload_is_read(server):
    def pieces():
        for at in range(0, len(BODY), 7):
            yield BODY[at : at + 7]

    status, answer = server.post(pieces(), {"Transfer-Encoding": "chunked"}, encode_chunked=True)
    assert status == 200, answer
    assert answer["choices"] == server.post(BODY)[1]["choices"]


def test_requests_one_after_the_other_and_at_once_on_one_connection(server):
    one = HEAD + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY
    last = one.replace(b"Host", b"Connection: close\r\nHost", 1)
    answer = server.raw(b"\r\n" + one + one + last)
    assert answer.count(b"HTTP/1.1 200") == 3 and answer.count(b'"finish_reason"') == 3
    with connect(server) as sock:  # byte by byte, with a pause in the middle
        for at in range(0, len(one), 40):
            sock.sendall(one[at : at + 40])
            time.sleep(0.01)
        assert sock.recv(100).startswith(b"HTTP/1.1 200")
    ask = HEAD + b"Expect: 100-continue\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"
    with connect(server) as sock:
        sock.sendall(ask % len(BODY))
        assert sock.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        sock.sendall(BODY)
        assert sock.recv(100).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:1", "127.0.0.1", "127.8.8.8:80", "[::1]:8000", "a.localhost"]
)
def test_names_of_this_machine_are_taken(server, host):
    assert server.raw(
        b"GET /health HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n" % host.encode()
    ).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil", "10.0.0.1"]
)
def test_another_host_is_refused(server, host):
    answer = server.raw(
        b"GET /v1/models HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n" % host.encode()
    )
    assert answer.startswith(b"HTTP/1.1 421") and host.encode() in answer


def test_a_server_at_all_addresses_is_called_by_any_and_by_its_name(model_dir):
    running = Server(model_dir("plain"), "--host", "0.0.0.0")

    def status(host):
        answer = running.raw(
            b"GET /health HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n" % host.encode()
        )
        return int(answer[9:12])

    try:
        hosts = ["10.1.2.3:8000", "[2001:db8::1]", socket.gethostname(), "localhost"]
        assert [status(host) for host in hosts] == [200] * 4
        assert status("evil.example") == 421
    finally:
        assert running.end()[0] == 0


def test_30_mb_of_text_take_little_memory_and_time(server):
    server.ask("Hello!")
    peak, stop = [server.memory()], threading.Event()

    def watch():
        while not stop.wait(0.01):
            peak.append(server.memory())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        for text in ("word " * 6_000_000, "a" * 30_000_000, "é" * 15_000_000):
            started = time.monotonic()
            body = json.dumps({"messages": [user(text)]}, ensure_ascii=False).encode()
            status, answer = server.post(body)
            assert status == 400 and "maximum context length" in answer["error"]["message"]
            assert time.monotonic() - started < 10
    finally:
        stop.set()
        watcher.join()
    assert max(peak) - peak[0] < 300 << 20, max(peak) - peak[0]
