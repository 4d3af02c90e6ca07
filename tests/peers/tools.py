"""Running lft, and its input files."""

import json
import os
import pathlib
import subprocess

from safetensors.torch import load_file, save_file

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = os.environ.get("LFT_BIN", str(ROOT / "build" / "lft"))


def lft(*arguments, code=0, stdin=""):
    """Runs the binary; its exit code must be `code`. Returns the finished process."""
    done = subprocess.run(
        [BINARY, *map(str, arguments)],
        capture_output=True,
        text=True,
        input=stdin,
        timeout=300,
        env=dict(os.environ, OMP_NUM_THREADS="1"),
    )
    assert done.returncode == code, (
        f"lft {' '.join(map(str, arguments))}\nexit {done.returncode}\n{done.stdout[-2000:]}\n"
        f"{done.stderr[-4000:]}"
    )
    return done


def driver(name, tensors, folder):
    """Runs tests/<name>_driver of the build folder (set by LFT_BUILD) over
    safetensors -> its tensors."""
    program = pathlib.Path(os.environ.get("LFT_BUILD", ROOT / "build")) / "tests" / f"{name}_driver"
    save_file(tensors, folder / "in.safetensors")
    done = subprocess.run(
        [program, folder / "in.safetensors", folder / "out.safetensors"],
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
