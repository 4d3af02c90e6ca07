"""A network that fails during a run: two halves that cannot reach each other,
each of which must end and name the other."""

import concurrent.futures
import os
import pathlib
import signal
import subprocess
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = os.environ.get("LFT_BIN", str(ROOT / "build" / "lft"))
TIMEOUT = 3
SETS = {
    "train.grad_accum": 4,
    "train.batch_size": 1,
    "train.max_steps": 2000,
    "dist.timeout_s": TIMEOUT,
    "data.eval": "",
    "train.shard": "base",
}


def ip(*words):
    return subprocess.run(["ip", *words], capture_output=True, text=True)


class Halves:
    """Two network namespaces connected by a link with two named ends."""

    def __init__(self, name):
        self.names = [name + end for end in "ab"]

    def __enter__(self):
        first, second = self.names
        words = [
            ["netns", "add", first],
            ["netns", "add", second],
            ["link", "add", first, "type", "veth", "peer", "name", second],
        ]
        for number, name in enumerate(self.names, start=1):
            words += [
                ["link", "set", name, "netns", name],
                ["-n", name, "addr", "add", f"10.77.0.{number}/24", "dev", name],
            ]
            words += [
                ["-n", name, "link", "set", name, "up"],
                ["-n", name, "link", "set", "lo", "up"],
            ]
        for each in words:
            done = ip(*each)
            if done.returncode != 0:
                self.__exit__()
                pytest.skip(f"network namespaces are not allowed here: {done.stderr.strip()}")
        return self

    def __exit__(self, *_):
        ip("link", "del", self.names[0])
        for name in self.names:
            ip("netns", "del", name)

    def cut(self):
        return ip("-n", self.names[0], "link", "set", self.names[0], "down").returncode == 0

    def start(self, out, rank, number, local):
        """One of four processes, in one half, with that half's host name."""
        sets = [
            word
            for name, value in {"output_dir": out, **SETS}.items()
            for word in ("--set", f"{name}={value}")
        ]
        half = self.names[number]
        inside = [
            "ip",
            "netns",
            "exec",
            half,
            "unshare",
            "-u",
            "sh",
            "-c",
            f'hostname machine{number} && exec "$@"',
            "sh",
        ]
        variables = {
            "OMP_NUM_THREADS": 1,
            "RANK": rank,
            "WORLD_SIZE": 4,
            "LOCAL_RANK": local,
            "MASTER_ADDR": "10.77.0.1",
            "MASTER_PORT": 29500,
        }
        environment = dict(
            os.environ,
            GLOO_SOCKET_IFNAME=half,
            **{name: str(value) for name, value in variables.items()},
        )
        command = [*inside, BINARY, "train", str(ROOT / "recipes/quickstart.yaml"), *sets]
        return subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )


def run_until_cut(halves, out, numbers):
    """(codes, stderr of each, seconds from the cut to the end of all) of ranks
    in the halves of these numbers."""
    runs = [
        halves.start(out, rank, number, numbers[:rank].count(number))
        for rank, number in enumerate(numbers)
    ]
    metrics = out / "metrics.jsonl"
    try:
        while all(run.poll() is None for run in runs) and not (
            metrics.exists() and metrics.read_text().count('"loss"') >= 5
        ):
            time.sleep(0.01)
        assert halves.cut()
        begin = time.monotonic()
        said = [run.communicate(timeout=60)[1] for run in runs]
        return [run.returncode for run in runs], said, time.monotonic() - begin
    finally:
        for run in runs:
            if run.poll() is None:
                run.send_signal(signal.SIGKILL)


def test_both_halves_end_and_name_the_other(tmp_path):
    cases = {
        "first": [0, 1, 1, 1],
        "last": [0, 0, 0, 1],
    }  # isolated halves, of ranks 0 to 3
    try:
        ip("-V")
    except FileNotFoundError:
        pytest.skip("there is no program called ip")
    with (
        concurrent.futures.ThreadPoolExecutor() as pool,
        Halves(f"lft{os.getpid()}x") as x,
        Halves(f"lft{os.getpid()}y") as y,
    ):
        ends = [
            pool.submit(run_until_cut, halves, tmp_path / name, cases[name])
            for halves, name in ((x, "first"), (y, "last"))
        ]
        ends = [end.result() for end in ends]
    for (name, numbers), (codes, said, seconds) in zip(cases.items(), ends):
        assert codes == [6] * 4, said
        assert seconds < TIMEOUT + 5
        blocks = [text.count("error:") for text in said]
        near, far = ([rank for rank in range(4) if numbers[rank] == number] for number in (0, 1))
        assert blocks[0] == sum(blocks[rank] for rank in near) == 1, said
        assert all(f"rank {rank} on machine1" in said[0] for rank in far), said
        # The other half receives nothing from rank 0.
        assert sum(blocks[rank] for rank in far) == 1 and "rank 0 on machine0" in said[far[0]], said
        steps = (tmp_path / name / "metrics.jsonl").read_text().count('"loss"')
        assert (tmp_path / name / f"checkpoints/step-{steps}").is_dir(), os.listdir(
            tmp_path / name / "checkpoints"
        )
