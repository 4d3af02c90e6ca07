"""The Python in an adapter's README.md, run unchanged except for image and question, answers
like lft generate."""

import contextlib
import io
import re

import pytest
from PIL import Image

from tools import ROOT, lft

MODEL = ROOT / "recipes/quickstart/model"
DIGITS = ROOT / "recipes/quickstart/digits"
QUESTION = "Which digit is this?"


def code_of(folder, names):
    """The README's only code block with these values for its names; each has its line."""
    (code,) = re.findall(r"```python\n(.*?)```", (folder / "README.md").read_text(), re.S)
    for name, value in names.items():
        code, count = re.subn(rf"^{name} = .*$", lambda _: f"{name} = {value!r}", code, flags=re.M)
        assert count == 1, name
    return code


def train(out, *sets):
    paths = [
        f"model.path={MODEL}",
        f"data.train={DIGITS / 'train.json'}",
        f"data.image_root={DIGITS / 'images'}",
        f"output_dir={out}",
    ]
    options = [
        part
        for one in (*paths, "data.eval=''", "train.max_steps=40", *sets)
        for part in ("--set", one)
    ]
    lft("train", ROOT / "recipes/quickstart.yaml", *options)
    return out


@pytest.mark.parametrize(
    "template, fit", [("llava-v1", "crop"), ("llava-hf", "pad"), ("plain", "pad")]
)
def test_it_answers_as_lft_does(template, fit, tmp_path):
    run = train(tmp_path / "run", f"data.template={template}", f"data.image_fit={fit}")
    check(run / "adapter", ["--adapter", run / "adapter"], tmp_path)


def check(folder, adapter, tmp_path):
    """Over wide and high digits, so that a missing fit is visible."""
    answers = []
    for number, size in enumerate([(90, 40), (40, 90), (64, 64)]):
        image = tmp_path / f"{number}.png"
        digit = Image.open(DIGITS / f"images/{number:04}.png").convert("RGB").resize((40, 40))
        canvas = Image.new("RGB", size, (30, 90, 160))
        canvas.paste(digit, ((size[0] - 40) // 2, (size[1] - 40) // 2))
        canvas.save(image)
        want = lft(
            "generate", "--model", MODEL, *adapter, "--image", image, "--prompt", QUESTION
        ).stdout.strip()
        code = code_of(folder, {"IMAGE": str(image), "QUESTION": QUESTION})
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            exec(
                compile(code, "README.md", "exec"), {}
            )  # a separate process would import transformers again
        answers.append(want)
        assert said.getvalue().strip() == want
    assert any(answers)
