"""Running lft, and its input files."""

import contextlib
import functools
import json
import os
import pathlib
import signal
import socket
import struct
import subprocess
import tempfile

from safetensors.torch import load_file, save_file

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = os.environ.get("LFT_BIN", str(ROOT / "build" / "lft"))
BUILD = pathlib.Path(os.environ.get("LFT_BUILD", ROOT / "build"))
PEER_DRIVER = BUILD / "tests/peer_driver"


class CommandServer:
    """A process that has loaded LibTorch and runs commands in copies of itself: see
    command_server.cpp."""

    def __init__(self):
        self.socket, end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        self.socket.settimeout(300)
        self.process = subprocess.Popen(
            [BUILD / "tests/lft_command_server"],
            pass_fds=[end.fileno()],
            env=dict(os.environ, OMP_NUM_THREADS="1", LFT_COMMAND_SOCKET=str(end.fileno())),
            start_new_session=True,
        )
        end.close()

    def run(self, arguments, stdin):
        request = dict(
            arguments=arguments,
            environment=dict(os.environ, OMP_NUM_THREADS="1"),
            folder=os.getcwd(),
        )
        with contextlib.ExitStack() as files:
            streams = [files.enter_context(tempfile.TemporaryFile("w+")) for _ in range(3)]
            streams[0].write(stdin)
            streams[0].seek(0)
            descriptors = [stream.fileno() for stream in streams]
            socket.send_fds(self.socket, [json.dumps(request).encode()], descriptors)
            status = os.waitstatus_to_exitcode(struct.unpack("i", self.socket.recv(4))[0])
            for stream in streams[1:]:
                stream.seek(0)
            return subprocess.CompletedProcess(
                arguments, status, *(stream.read() for stream in streams[1:])
            )

    def end(self):
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@functools.cache
def command_server():
    return CommandServer()


def lft(*arguments, code=0, stdin=""):
    """Runs a command of lft; its exit code must be `code`. Returns the finished process."""
    try:
        done = command_server().run([BINARY, *map(str, arguments)], stdin)
    except (OSError, struct.error):  # a timeout, or the server ended
        command_server().end()
        command_server.cache_clear()
        raise
    assert done.returncode == code, (
        f"lft {' '.join(map(str, arguments))}\nexit {done.returncode}\n{done.stdout[-2000:]}\n"
        f"{done.stderr[-4000:]}"
    )
    return done


def driver(name, tensors, folder):
    """Runs <name>_driver.cpp over the tensors -> its tensors."""
    save_file(tensors, folder / "in.safetensors")
    done = subprocess.run(
        [PEER_DRIVER, name, folder / "in.safetensors", folder / "out.safetensors"],
        capture_output=True,
        text=True,
        timeout=300,
        env=dict(os.environ, OMP_NUM_THREADS="1"),
    )
    assert done.returncode == 0, done.stderr
    return load_file(folder / "out.safetensors")


def score(out, model, data, images, *more):
    """Runs lft score; returns its rows."""
    lft("score", "--model", model, "--data", data, "--image-root", images, "--out", out, *more)
    return [json.loads(line) for line in pathlib.Path(out).read_text().splitlines()]


def write_rows(path, rows):
    path.write_text(
        "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8"
    )
    return path


def write_notes(adapter, template, fit):
    """The file that lft writes next to an adapter trained with these."""
    notes = dict(base_path="", base_fingerprint="", template=template, image_fit=fit)
    (adapter / "lft_adapter.json").write_text(json.dumps(notes))


def metrics(run):
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def step_lines(run):
    return [line for line in metrics(run) if "event" not in line]


def event_lines(run, event):
    return [line for line in metrics(run) if line.get("event") == event]
