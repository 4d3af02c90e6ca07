"""The README's steps from a few own rows to an adapter that is better than its base on unseen
rows, as printed."""

import json
import os
import pathlib
import re
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
LFT = pathlib.Path(os.environ.get("LFT_BIN", ROOT / "build/lft"))
DIGITS = ROOT / "recipes/quickstart/digits"
ROWS = 188  # data.eval_share leaves 160 of them for training
BEFORE = [
    "git clone",
    "scripts/setup",
    "hf download",
]  # from the same page, and an edit of the recipe


def printed(section):
    """The page's commands of a section, in order."""
    page = (ROOT / "README.md").read_text().split(f"\n## {section}\n")[1].split("\n## ")[0]
    return [
        line.strip().split("  #")[0]
        for line in page.splitlines()
        if line.strip().startswith("build/lft ")
    ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A user's files: the program, a base, rows in OpenAI's form and their images."""
    folder = tmp_path_factory.mktemp("own")
    (folder / "build").mkdir()
    (folder / "build/lft").symlink_to(LFT.resolve())
    (folder / "checkpoints").mkdir()
    (folder / "checkpoints/llava-1.5-7b-hf").symlink_to(ROOT / "recipes/quickstart/model")
    (folder / "data").mkdir()
    (folder / "data/images").symlink_to(DIGITS / "images")
    rows = []
    for row in json.loads((DIGITS / "train.json").read_text())[:ROWS]:
        question, answer = (turn["value"] for turn in row["conversations"])
        image = {"type": "image_url", "image_url": {"url": row["image"]}}
        text = {"type": "text", "text": question.replace("<image>\n", "")}
        rows.append(
            {
                "messages": [
                    {"role": "user", "content": [image, text]},
                    {"role": "assistant", "content": answer},
                ]
            }
        )
    (folder / "data/rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def test_an_adapter_from_160_rows_beats_its_base_on_the_held_out_ones(folder):
    commands = printed("Your own dataset in five minutes") + [
        line for line in printed("Using the result") if " eval " in line
    ]
    commands = [command for command in commands if "--plan" not in command]
    assert len(BEFORE) + 1 + len(commands) <= 12, commands
    results = []
    for command in commands:
        done = subprocess.run(
            command,
            shell=True,
            cwd=folder,
            capture_output=True,
            text=True,
            env=dict(os.environ, LFT_RECIPES=str(ROOT / "recipes")),
        )
        assert done.returncode == 0, f"{command}\n{done.stderr}"
        if (
            " recipe cp " in command
        ):  # as the page does, with the template that this base was made with
            recipe = folder / "my.yaml"
            text = recipe.read_text().replace("train: data/rows.json", "train: data/rows.jsonl")
            recipe.write_text(re.sub(r"template: \S+", "template: llava-hf", text))
        if " eval " in command:
            results.append(json.loads(done.stdout.splitlines()[-1]))
    tuned, base = results
    assert tuned["samples"] == base["samples"] == 28
    steps = [
        json.loads(line)
        for line in (folder / "runs/rows-200/metrics.jsonl").read_text().splitlines()
    ]
    assert max(line["step"] for line in steps if "loss" in line) == 5 * 160 / 4
    assert tuned["exact_match"] > base["exact_match"]
    assert tuned["loss"] < base["loss"]
