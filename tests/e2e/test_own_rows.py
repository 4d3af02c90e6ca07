"""The README's steps without a GPU, from a few own rows to an adapter that is better than its base
on unseen rows, as printed."""

import csv
import json
import os
import pathlib
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
LFT = pathlib.Path(os.environ.get("LFT_BIN", ROOT / "build/lft"))
DIGITS = ROOT / "recipes/quickstart/digits"
ROWS = 188  # data.eval_share leaves 160 of them for training
BEFORE = ["git clone", "scripts/setup", "pip install", "hf download"]  # on the same page


def printed(section):
    """The page's commands of a section, in order."""
    page = (ROOT / "README.md").read_text().split(f"\n### {section}\n")[1].split("\n##")[0]
    for command in BEFORE:
        assert command in page
    return [
        line.strip().split("  #")[0]
        for line in page.splitlines()
        if line.strip().startswith("build/lft ")
    ]


# The prompt that the quickstart's model was trained with; published checkpoints contain theirs.
TEMPLATE = (
    "{% for m in messages %}{% if m.role == 'user' %}USER: {% for part in m.content %}"
    "{% if part.type == 'image' %}<image>\n{% else %}{{ part.text }}{% endif %}{% endfor %}"
    "{% else %} ASSISTANT: {{ m.content[0].text }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %} ASSISTANT:{% endif %}"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A user's files: the program, a base, a table of questions and answers, and the images."""
    folder = tmp_path_factory.mktemp("own")
    (folder / "build").mkdir()
    (folder / "build/lft").symlink_to(LFT.resolve())
    base = folder / "checkpoints/SmolVLM-256M-Instruct"
    shutil.copytree(ROOT / "recipes/quickstart/model", base)
    (base / "chat_template.jinja").write_text(TEMPLATE)
    (folder / "data").mkdir()
    (folder / "data/images").symlink_to(DIGITS / "images")
    rows = [("image", "question", "answer")]
    for row in json.loads((DIGITS / "train.json").read_text())[:ROWS]:
        question, answer = (turn["value"] for turn in row["conversations"])
        question = question.removeprefix("<image>\n")
        rows.append((row["image"], question, answer))
    with open(folder / "data/rows.csv", "w", newline="") as file:
        csv.writer(file).writerows(rows)
    return folder


def test_an_adapter_from_160_rows_beats_its_base_on_the_held_out_ones(folder):
    commands = printed("Without a GPU")
    assert len(BEFORE) + len(commands) <= 8, commands
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
        assert "is not the chat template of the checkpoint" not in done.stderr
        if " eval " in command:
            results.append(json.loads(done.stdout.splitlines()[-1]))
    tuned, base = results
    assert tuned["samples"] == base["samples"] == 28
    steps = [
        json.loads(line)
        for line in (folder / "runs/smolvlm-cpu/metrics.jsonl").read_text().splitlines()
    ]
    assert max(line["step"] for line in steps if "loss" in line) == 3 * 160 / 4
    assert tuned["exact_match"] > base["exact_match"]
    assert tuned["loss"] < base["loss"]
