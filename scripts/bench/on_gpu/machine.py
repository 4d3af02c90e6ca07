"""The machine and the build: paths of programs and libraries, the GPU, its clocks
and memory during a run, records and logs on disk."""

import functools
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
WORK = ROOT / "runs/bench-gpu"
KEPT = 4000  # characters of an error kept in the record; the complete output is in the log
CARD = (
    "name,driver_version,clocks.sm,clocks.mem,clocks.max.sm,"
    "power.draw,temperature.gpu,memory.used,memory.total"
)


def card():
    """nvidia-smi's values for the first GPU at this moment; {} if there is none."""
    try:
        out = subprocess.run(
            ["nvidia-smi", f"--query-gpu={CARD}", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            timeout=20,
        )
    except (OSError, subprocess.TimeoutExpired):
        return {}
    return (
        dict(zip(CARD.split(","), [part.strip() for part in out.stdout.splitlines()[0].split(",")]))
        if out.returncode == 0 and out.stdout
        else {}
    )


def processor():
    lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    return next(
        (line.split(":")[1].strip() for line in lines if line.startswith("model name")), "unknown"
    )


def commit(build):
    """The commit: for a packed build the one it was made from; empty in a copy without .git
    and on a machine without git."""
    if (build / "commit").exists():
        return (build / "commit").read_text().strip()
    if not shutil.which("git"):
        return ""
    return subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True
    ).stdout.strip()


def program(build, name):
    """build/lft, build/tests/test_gpu, ... in a build folder and in one
    written by scripts/gpu --pack."""
    return next(
        (path for path in (build / name, build / "tests" / name) if path.exists()), build / name
    )


def toolkit(name):
    """Path of a CUDA toolkit program, whose folder is not always in PATH."""
    return shutil.which(name) or shutil.which(name, path="/usr/local/cuda/bin") or name


@functools.cache
def torch_libraries(python):
    """(version, folders of the LibTorch and CUDA libraries) of this Python's PyTorch;
    ("", []) if it has none."""
    script = (
        "import importlib.metadata, importlib.util, pathlib; "
        "torch = pathlib.Path(importlib.util.find_spec('torch').origin).parent; "
        "site = torch.parent\n"
        "print(importlib.metadata.version('torch').split('+')[0], torch / 'lib', "
        "*sorted({path.parent for path in site.glob('nvidia/**/lib*.so*')}), sep='\\n')"
    )
    out = subprocess.run([python, "-c", script], capture_output=True, text=True)
    version, *folders = out.stdout.split("\n")[:-1] if out.returncode == 0 else [""]
    return version, folders


def paths(*folders):
    """LD_LIBRARY_PATH with these folders first."""
    return ":".join([*map(str, folders), os.environ.get("LD_LIBRARY_PATH", "")]).rstrip(":")


def environment(build, python):
    """Environment of lft's programs: a packed build contains the libraries PyTorch lacks and uses
    this Python's LibTorch if it has the version that the build was made with."""
    out = dict(os.environ)
    if (build / "lib").is_dir():
        version, folders = torch_libraries(python)
        wanted = (build / "torch").read_text().strip()
        if version != wanted:
            sys.exit(
                f"{build} was built with PyTorch {wanted}, and {python} has {version or 'none'}: "
                "name another with --python"
            )
        out["LD_LIBRARY_PATH"] = paths(build / "lib", *folders)
    return out


def peer_environment():
    """Environment of a peer's Python: no downloads, unbuffered output."""
    return {**os.environ, "HF_HUB_OFFLINE": "1", "PYTHONUNBUFFERED": "1"}


class Watch:
    """Memory, SM clock and power of the GPU while a block runs, sampled ten times per second."""

    def __enter__(self):
        self.file = tempfile.TemporaryFile("w+")
        query = [
            "nvidia-smi",
            "--query-gpu=memory.used,clocks.sm,power.draw",
            "--format=csv,noheader,nounits",
            "-lms",
            "100",
        ]
        try:
            self.process = subprocess.Popen(query, stdout=self.file, stderr=subprocess.DEVNULL)
        except OSError:
            self.process = None
        return self

    def __exit__(self, *_):
        if self.process is not None:
            self.process.terminate()
            try:
                self.process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                self.process.kill()
        self.file.seek(0)
        rows = [line.split(",") for line in self.file.read().splitlines()]
        rows = [
            [float(part) for part in row]
            for row in rows
            if len(row) == 3 and all(part.strip().replace(".", "", 1).isdigit() for part in row)
        ]
        busy = [row for row in rows if row[2] > 0.5 * max(row[2] for row in rows)]
        self.seen = {}
        if rows:
            self.seen = {
                "smi_peak_gib": max(row[0] for row in rows) / 1024,
                "sm_clock_mhz": [min(row[1] for row in busy), max(row[1] for row in busy)],
                "power_w": max(row[2] for row in rows),
            }


class Deadline:
    def __init__(self, minutes):
        self.end = time.monotonic() + 60 * minutes

    def left(self):
        return self.end - time.monotonic()


def arguments(given):
    """The environment without variables that contain paths of one machine."""
    kept, given = [], iter(given)
    for each in given:
        if each in ("--build", "--python", "--out", "--after"):
            next(given, None)
        else:
            kept.append(each)
    return kept


class Record:
    """A JSON file with the measurements so far, rewritten after every entry.
    A log with the same base name contains the output of all programs, written as it arrives."""

    def __init__(self, path, build):
        script = str(pathlib.Path(sys.argv[0]).resolve().relative_to(ROOT))
        self.path, self.data = (
            path,
            {
                "command": " ".join([script, *arguments(sys.argv[1:])]),
                "commit": commit(build),
                "before": card(),
            },
        )
        if path:
            path.parent.mkdir(parents=True, exist_ok=True)
            log_to(path.with_suffix(".log"))

    def put(self, **entries):
        self.data.update(entries)
        self.save()

    def end(self):
        self.put(after=card())

    def save(self):
        if self.path:
            draft = self.path.with_suffix(".part")
            text = re.sub(
                r"\[\s+([-+\d.eE,\s]+?)\s+\]",
                lambda numbers: "[" + re.sub(r"\s+", " ", numbers[1]) + "]",
                json.dumps(self.data, indent=2),
            )
            draft.write_text(text + "\n")
            draft.replace(self.path)


log = None  # log of program output; None: a temporary file


def log_to(path):
    global log
    log = path
    path.write_bytes(b"")


def call(command, env, timeout, cwd=ROOT):
    """(exit code, combined output); exit code None: the time limit passed, and the program and its
    children were killed. Output is written directly to the log, so that nothing is lost if this
    process or the machine stops first."""
    with open(log, "ab+") if log else tempfile.TemporaryFile() as said:
        said.write(f"$ {' '.join(str(part) for part in command)}\n".encode())
        said.flush()
        begin = said.tell()
        process = subprocess.Popen(
            [str(part) for part in command],
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
            cwd=cwd,
            env=env,
            start_new_session=True,
        )
        try:
            code = process.wait(timeout=max(1, timeout))
        except subprocess.TimeoutExpired:
            code = None
            os.killpg(process.pid, signal.SIGKILL)
            try:
                process.wait(timeout=15)
            except subprocess.TimeoutExpired:  # blocked in the driver, which no signal interrupts
                pass
        said.seek(begin)
        return code, said.read().decode(errors="replace")


def run(command, env, timeout):
    """(output, None) or (output, reason of the failure); out of memory is "does not fit: ..."."""
    try:
        code, text = call(command, env, timeout)
    except OSError as error:
        return "", str(error)
    if code == 0:
        return text, None
    if code is None:
        return text, f"took longer than {timeout:.0f} s: {text.strip()[-KEPT:]}"
    prefix = "does not fit: " if re.search("out of memory|CUBLAS_STATUS_ALLOC_FAILED", text) else ""
    return text, f"{prefix}exit {code}: {text.strip()[-KEPT:]}"


def json_lines(text):
    """The JSON objects among the lines of a program's output."""
    found = []
    for line in text.splitlines():
        try:
            found += [json.loads(line)] if line.startswith("{") else []
        except ValueError:  # a line that is no JSON, or a truncated one
            pass
    return found
