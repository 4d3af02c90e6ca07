"""A running lft serve and its plain clients."""

import base64
import contextlib
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile

import openai

from tools import BINARY

TOKENS = 12


class Server:
    """A running lft serve on a free port. Its log is in a file: a pipe that nobody reads would
    stop it."""

    def __init__(self, model, *more, key="none", environment=None):
        self.log_file = tempfile.TemporaryFile("w+", errors="replace")
        self.process = subprocess.Popen(
            [BINARY, "serve", "--model", model, "--port", "0", "--name", "served", *map(str, more)],
            stdout=subprocess.PIPE,
            stderr=self.log_file,
            text=True,
            env=dict(os.environ, OMP_NUM_THREADS="1") | (environment or {}),
        )
        line = self.process.stdout.readline()
        assert line.startswith("serving served") and " at http://" in line, line + self.log()
        self.port = int(line.split("/v1;")[0].rsplit(":", 1)[1])
        self.client = openai.OpenAI(
            base_url=f"http://127.0.0.1:{self.port}/v1", api_key=key, max_retries=0, timeout=120
        )

    def log(self):
        self.log_file.seek(0)
        return self.log_file.read()

    def ask(self, question, image=None, model="served", **more):
        more.setdefault("max_tokens", TOKENS)
        return self.client.chat.completions.create(
            model=model, messages=[user(question, image)], **more
        )

    def memory(self):
        """Resident memory in bytes."""
        with open(f"/proc/{self.process.pid}/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def post(self, body, headers=None, path="/v1/chat/completions", **more):
        """Status and JSON of a plain request."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        headers = {"Content-Type": "application/json", **(headers or {})}
        connection.request("POST", path, body, headers, **more)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())

    def get(self, path, headers=None, method="GET"):
        """Status, headers and text of a request without a body."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request(method, path, headers=headers or {})
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read().decode()

    def raw(self, data):
        """The response to these bytes, until the server closes the connection."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=60) as sock:
            sock.sendall(data)
            out = b""
            while piece := sock.recv(65536):
                out += piece
        return out

    def chat(self, messages, **fields):
        """The answer's text, usage and finish reason for these messages and fields."""
        body = {"messages": messages, "max_tokens": TOKENS} | fields
        status, answer = self.post(json.dumps(body))
        assert status == 200, answer
        choice = answer["choices"][0]
        return choice["message"]["content"], answer["usage"], choice["finish_reason"]

    def end(self, number=signal.SIGTERM):
        """Exit code, stdout and stderr; 0: without another signal."""
        self.process.send_signal(number)
        out, _ = self.process.communicate(timeout=60)
        return self.process.returncode, out, self.log()


def with_room(model, folder, positions=4096):
    """A copy of a checkpoint with this number of positions."""
    shutil.copytree(model, folder)
    config = json.loads((folder / "config.json").read_text())
    config["text_config"]["max_position_embeddings"] = positions
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def user(question, image=None):
    if image is None:
        return {"role": "user", "content": question}
    data = base64.b64encode(image.read_bytes()).decode()
    part = {
        "type": "image_url",
        "image_url": {"url": "data:image/png;base64," + data, "detail": "auto"},
    }
    return {"role": "user", "content": [part, {"type": "text", "text": question}]}


@contextlib.contextmanager
def serving(*arguments):
    """A Server(*arguments), which must exit with 0."""
    running = Server(*arguments)
    yield running
    code, _, err = running.end()
    assert code == 0, err
