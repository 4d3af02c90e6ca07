"""The chat of `lft generate` in interactive use: keys typed on a pseudo-terminal,
over the quickstart model without its end token, so that an answer is long."""

import json
import os
import pathlib
import pty
import select
import shutil
import signal
import struct
import subprocess
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
LFT = os.environ.get("LFT_BIN", ROOT / "build/lft")
LEFT, UP, CTRL_C, CTRL_D, TAB = "\x1b[D", "\x1b[A", "\x03", "\x04", "\t"
PROMPT = "\n> "


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Sets the LM head's row of </s> to zero, which another token always exceeds;
    adds positions for a long answer."""
    path = tmp_path_factory.mktemp("endless") / "model"
    shutil.copytree(ROOT / "recipes/quickstart/model", path)
    weights = bytearray((path / "model.safetensors").read_bytes())
    (length,) = struct.unpack("<Q", weights[:8])
    head = json.loads(weights[8 : 8 + length])["language_model.lm_head.weight"]
    begin, end = head["data_offsets"]
    row = (end - begin) // head["shape"][0]
    at = 8 + length + begin + 2 * row
    weights[at : at + row] = bytes(row)
    (path / "model.safetensors").write_bytes(weights)
    config = json.loads((path / "config.json").read_text())
    config["text_config"]["max_position_embeddings"] = 100000
    (path / "config.json").write_text(json.dumps(config))
    return path


class Chat:
    """lft on a separate terminal; its output is read until an expected text."""

    def __init__(self, model, state, *more):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.environ.update(TERM="xterm", XDG_STATE_HOME=str(state), OMP_NUM_THREADS="1")
            os.execv(
                LFT, ["lft", "generate", "--model", str(model), "--max-new-tokens", "90000", *more]
            )
        self.shown = ""
        self.until(PROMPT)

    def until(self, text):
        """The output since the last call, up to `text`."""
        deadline = time.monotonic() + 120
        while text not in self.shown:
            ready, _, _ = select.select([self.fd], [], [], max(0, deadline - time.monotonic()))
            assert ready, f"no {text!r} in {self.shown[-2000:]!r}"
            self.shown = (self.shown + os.read(self.fd, 4096).decode(errors="replace")).replace(
                "\r\n", "\n"
            )
        seen, self.shown = self.shown.split(text, 1)
        return seen

    def type(self, keys):
        os.write(self.fd, keys.encode())

    def ask_and_stop(self, keys, words=3):
        """The answer as far as it was written, one line, without the terminal's own ^C."""
        self.type(keys + "\r")
        begin = "".join(self.until("loop") + "loop" for _ in range(words))
        self.type(CTRL_C)
        return (
            (begin + self.until("\nstopped: the conversation continues from here"))
            .replace("^C", "")
            .split("\n")[-1]
        )

    def code(self):
        try:
            while os.read(self.fd, 4096):
                pass
        except OSError:  # the other end is closed
            pass
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def typed_before(state):
    return (state / "lft/chat_history").read_text().splitlines()[1:]


def test_ctrl_c_stops_the_answer_and_the_conversation_goes_on_from_it(model, tmp_path):
    chat = Chat(model, tmp_path)
    first = chat.ask_and_stop("hello")
    chat.until(PROMPT)
    second = chat.ask_and_stop("Name it.")
    chat.until(PROMPT)
    chat.type(CTRL_D)
    assert chat.code() == 0
    system = "A chat between a curious user and an artificial intelligence assistant. "
    system += "The assistant gives helpful, detailed, and polite answers to the user's questions. "
    said = f"{system}USER: hello ASSISTANT: {first}</s>"

    def answer(before):
        """Encodes after `before`; </s> is one token, as a template's special tokens are tokens."""
        whole = tmp_path / "whole.jinja"
        whole.write_text(
            "{% raw %}<s>" + before + "{% endraw %}{% for message in messages %}"
            "{{ 'USER: ' if message.role == 'user' else ' ASSISTANT: ' }}{{ message.content }}"
            "{% endfor %}{{ ' ASSISTANT:' if add_generation_prompt }}"
        )
        asked = [
            LFT,
            "generate",
            "--model",
            model,
            "--template",
            whole,
            "--max-new-tokens",
            "12",
            "--prompt",
            "Name it.",
        ]
        return subprocess.run(
            asked,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()

    want = answer(said)
    assert want.startswith(second[: len(want)]) and second[:6] == want[:6]
    assert not answer(system).startswith(want[:6]), (
        "the first turn changes nothing: this proves nothing"
    )


def test_keys_edit_the_line_and_the_next_chat_remembers_it(model, tmp_path):
    chat = Chat(model, tmp_path)
    chat.ask_and_stop("h\u00e9lo" + LEFT + LEFT + "l")
    chat.until(PROMPT)
    chat.type("not this" + CTRL_C)
    chat.until(PROMPT)
    chat.type(CTRL_C)
    assert chat.code() == 0
    assert typed_before(tmp_path) == ["h\u00e9llo"]
    again = Chat(model, tmp_path)
    again.type(UP)
    again.until("h\u00e9llo")
    again.ask_and_stop(", you")
    again.until(PROMPT)
    again.type(CTRL_D)
    assert again.code() == 0
    assert typed_before(tmp_path) == ["h\u00e9llo", "h\u00e9llo,\\040you"]


def test_a_slip_ends_no_chat(model, tmp_path):
    (tmp_path / "note.txt").write_text("no image")
    shutil.copy(ROOT / "recipes/quickstart/digits/images/0000.png", tmp_path / "digit.png")
    chat = Chat(model, tmp_path)
    for typed, told in [
        ("/image " + str(tmp_path / "note.txt"), "not an image"),
        ("/image " + str(tmp_path / "no.png"), "no such file"),
        ("/imge", "no such command"),
        ("/image", "/image needs a file"),
        ("/help", "/clear       starts a new conversation"),
        ("<image> <image> Which?", "2 marks, 0 images"),
    ]:
        chat.type(typed + "\r")
        chat.until(told)
        chat.until(PROMPT)
    chat.type("/im" + TAB + str(tmp_path) + "/dig" + TAB)
    chat.until("/digit.png")
    chat.type("\r")
    chat.until(PROMPT)
    chat.ask_and_stop("<image> Which?")
    chat.until(PROMPT)
    chat.type("/exit\r")
    assert chat.code() == 0


def test_where_nothing_can_be_kept_there_is_no_history_and_no_error(model, tmp_path):
    (tmp_path / "file").write_text("")
    chat = Chat(model, tmp_path / "file")
    chat.ask_and_stop("hello")
    chat.until(PROMPT)
    chat.type(UP)
    chat.until("hello")
    chat.type(CTRL_C)
    chat.until(PROMPT)
    os.kill(chat.pid, signal.SIGTERM)
    assert chat.code() == 75
