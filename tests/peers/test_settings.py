"""Each recipe setting that changes tokens or pixels is saved with the trained result: generate,
eval and score use it, transformers reads it from the merged model and from the exports, and the
README's Python applies it."""

import contextlib
import io
import json
import shutil

import pytest
from huggingface_hub import ModelCard
from transformers import AutoProcessor, AutoTokenizer

import families
import reference
from cases import row
from test_families import (  # noqa: F401, the fixtures
    FAMILY_ROWS,
    TOLERANCE,
    FamilyPeer,
    family_dir,
    make_recipe,
    messages_of,
)
from test_readme import code_of
from tools import lft, score, write_rows

SIDE = 28 * 28  # pixels per position of Qwen2.5-VL
ROWS = FAMILY_ROWS[:2]
SPECIAL = row("special", [("What does <|im_end|> mean?", "The end.")])
# A setting, a family that has it, a value other than the family's default, and the affected rows.
SETTINGS = [
    ("template", "qwen25_gqa", "qwen3-vl", ROWS),
    ("image_fit", "llava_qwen2_siglip", "pad", ROWS),
    ("min_pixels", "qwen25_gqa", 30 * SIDE, [FAMILY_ROWS[9]]),
    ("max_pixels", "qwen25_gqa", 6 * SIDE, ROWS),
    ("max_pixels", "qwen3_gqa", 6 * 32 * 32, ROWS),
    ("max_pixels", "smol_tied", 128 * 128, ROWS),
    ("max_pixels", "intern_gqa", 3 * 56 * 56 + 100, ROWS),
    ("special_tokens_in_text", "qwen25_gqa", "special", [SPECIAL, ROWS[0]]),
    ("alpha", "qwen25_gqa", "white", [FAMILY_ROWS[7]]),
]
# applied only by lft: transformers drops alpha.
OF_LFT = ("alpha",)


@pytest.mark.parametrize("key, name, value, rows", SETTINGS)
def test_a_setting_goes_with_the_adapter(
    key,
    name,
    value,
    rows,
    family_dir,  # noqa: F811
    images,
    tmp_path,
):
    data = write_rows(tmp_path / "rows.jsonl", rows)
    recipe = make_recipe(
        name,
        tmp_path / "run",
        family_dir(name),
        data,
        images,
        data={key: value, "eval": str(data)},
        optim=dict(lr=1e-2),
        train=dict(max_steps=2),
    )
    trained = lft("train", recipe)
    assert trained.returncode == 0
    adapter = tmp_path / "run/adapter"
    # A template is recorded by content, not by name.
    recorded = "chat_template.jinja" if key == "template" else value
    assert json.loads((adapter / "lft_adapter.json").read_text())[key] == recorded

    base = score(tmp_path / "base.jsonl", family_dir(name), data, images)
    asked = ["--adapter", adapter]
    scored = score(tmp_path / "out.jsonl", family_dir(name), data, images, *asked)
    assert any(a["logprobs"] != b["logprobs"] for a, b in zip(base, scored, strict=True))
    if key not in ("image_fit", "alpha"):
        assert [line["input_ids"] for line in scored] != [line["input_ids"] for line in base]

    # eval with the recipe, with the adapter, and with a recipe that does not set it.
    mean = -sum(sum(line["logprobs"]) for line in scored) / sum(
        len(line["logprobs"]) for line in scored
    )
    silent = make_recipe(
        name, tmp_path / "run", family_dir(name), data, images, data={"eval": str(data)}
    )
    for command in [
        [silent],
        ["--model", family_dir(name), "--data", data, "--image-root", images, *asked],
    ]:
        done = lft("eval", *command, "--max-new-tokens", 1)
        last = json.loads(done.stdout.splitlines()[-1])
        assert last["loss"] == pytest.approx(mean, abs=1e-4)
        assert (last["model"], last["adapter"]) == (str(family_dir(name)), str(adapter))
        shown = adapter / recorded if key == "template" else value
        assert f"{key.replace('_', ' ')}: {shown}" in done.stderr

    # The merged model, in transformers and in lft, without the setting.
    merged = tmp_path / "merged"
    lft("merge", "--adapter", adapter, "--out", merged)
    again = score(tmp_path / "merged.jsonl", merged, data, images)
    for a, b in zip(scored, again, strict=True):
        assert a["input_ids"] == b["input_ids"]
        assert a["logprobs"] == pytest.approx(b["logprobs"], abs=TOLERANCE)
    if key not in OF_LFT:
        compare_with_transformers(name, merged, rows, again, images)
    if key == "max_pixels":  # the family's own template, with an empty system text too
        empty = [dict(role="system", content=[dict(type="text", text="")]), *messages_of(ROWS[1])]
        for messages in (empty, empty[1:]):
            written, own = (
                AutoTokenizer.from_pretrained(path).apply_chat_template(messages, tokenize=False)
                for path in (merged, family_dir(name))
            )
            assert written == own

    # The exports.
    out = tmp_path / "vllm"
    done = lft("export", adapter, "--target", "vllm", "--out", out)
    assert f"--chat-template {out}/chat_template.jinja" in done.stdout
    assert (out / "chat_template.jinja").read_text() == (merged / "chat_template.jinja").read_text()
    served = json.loads((out / "adapter/lft_adapter.json").read_text())
    assert served[key] == recorded
    processors = [AutoProcessor.from_pretrained(path) for path in (merged, served["base_path"])]
    assert processors[0].image_processor.to_dict() == processors[1].image_processor.to_dict()
    if (out / "base").exists():
        peer = FamilyPeer(name, out / "base", out / "adapter")
        if key not in OF_LFT:
            compare_with_transformers(name, merged, rows, scored, images, peer)

    # The README's Python.
    (asked_of,) = rows[0]["conversations"][0]["value"].removeprefix("<image>\n").splitlines()
    image = images / rows[0].get("image", "chelsea.png")
    code = code_of(adapter, dict(IMAGE=str(image), QUESTION=asked_of))
    code = code.replace("max_new_tokens=256", "max_new_tokens=24")
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(compile(code, "README.md", "exec"), {})
    want = lft(
        *["generate", "--model", family_dir(name), *asked, "--image", image],
        *["--prompt", asked_of, "--max-new-tokens", 24],
    )
    assert said.getvalue().strip() == want.stdout.strip()


def compare_with_transformers(name, folder, rows, scored, images, peer=None):
    """The chat template and the image processor of the folder give lft's ids and loss."""
    peer = peer or FamilyPeer(name, folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    for item, line in zip(rows, scored, strict=True):
        text = tokenizer.apply_chat_template(messages_of(item), tokenize=False)
        wide = families.SPECS[name]["family"] in families.WIDE
        ids, extra = (
            peer.wide_inputs(text, item, images, pads=False)
            if wide
            else peer.inputs_of(text, item, images)
        )
        assert ids == line["input_ids"]
        want = peer.logprobs(ids, line["labels"], extra)
        assert line["logprobs"] == pytest.approx(want, abs=TOLERANCE)


def test_options_override_what_is_recorded(family_dir, images, tmp_path):  # noqa: F811
    """The base is in the hub's cache, and the model card contains its name."""
    name, data = "qwen25_gqa", write_rows(tmp_path / "rows.jsonl", ROWS)
    base = tmp_path / "hub/models--owner--tiny-model/snapshots/0123abcd"
    shutil.copytree(family_dir(name), base)
    recipe = make_recipe(
        *[name, tmp_path / "run", base, data, images],
        data=dict(max_pixels=6 * SIDE, eval=str(data)),
        train=dict(max_steps=2),
    )
    lft("train", recipe)
    card = ModelCard.load(tmp_path / "run/adapter/README.md").data
    assert card.base_model == "owner/tiny-model"
    assert "base_model:adapter:owner/tiny-model" in card.tags

    def ids(*more):
        lines = score(tmp_path / "out.jsonl", base, data, images, *more)
        return [line["input_ids"] for line in lines]

    adapter = ["--adapter", tmp_path / "run/adapter"]
    own, recorded = ids(), ids(*adapter)
    assert recorded != own and ids(*adapter, "--max-pixels", 0) == own
    assert ids(*adapter, "--max-pixels", 12 * SIDE) not in (own, recorded)
    told = lft("eval", recipe, "--max-new-tokens", 1, "--set", f"data.max_pixels={12 * SIDE}")
    assert f"{12 * SIDE} (as asked; the adapter was trained with {6 * SIDE})" in told.stderr


FORMS = {
    "siglip": lambda side: dict(image_processor_type="SiglipImageProcessor"),
    "siglip without its colours": lambda side: dict(
        image_processor_type="SiglipImageProcessor", image_mean=None, image_std=None
    ),
    "clip": lambda side: dict(
        image_processor_type="CLIPImageProcessor",
        crop_size=dict(height=side, width=side),
        do_center_crop=True,
    ),
    "clip without a crop": lambda side: dict(
        image_processor_type="CLIPImageProcessor", do_center_crop=False
    ),
}


@pytest.mark.parametrize("fit", [None, "crop", "native"])
@pytest.mark.parametrize("form", FORMS)
def test_a_size_of_height_and_width_is_stretched_to(
    form,
    fit,
    family_dir,  # noqa: F811
    images,
    tmp_path,
):
    name, folder = "llava_qwen2_siglip", tmp_path / "model"
    shutil.copytree(family_dir(name), folder)
    file = folder / "processor_config.json"
    whole = json.loads(file.read_text())
    own = whole["image_processor"]
    own |= FORMS[form](own["size"]["height"])
    whole["image_processor"] = {key: value for key, value in own.items() if value is not None}
    file.write_text(json.dumps(whole))
    rows = [FAMILY_ROWS[0], FAMILY_ROWS[3], FAMILY_ROWS[5]]
    data, peer = write_rows(tmp_path / "rows.jsonl", rows), FamilyPeer(name, folder)
    more = ["--image-fit", fit] if fit else []
    for item, line in zip(rows, score(tmp_path / "out.jsonl", folder, data, images, *more)):
        ids, labels, extra = peer.encode(item, images)
        assert line["input_ids"] == ids
        assert line["logprobs"] == pytest.approx(peer.logprobs(ids, labels, extra), abs=TOLERANCE)


def test_a_processor_that_makes_no_square_is_refused(family_dir, images, tmp_path):  # noqa: F811
    name, folder = "llava_qwen2_siglip", tmp_path / "model"
    shutil.copytree(family_dir(name), folder)
    file = folder / "processor_config.json"
    whole = json.loads(file.read_text())
    whole["image_processor"]["size"] = dict(shortest_edge=42)
    file.write_text(json.dumps(whole))
    data = write_rows(tmp_path / "rows.jsonl", ROWS)
    asked = ["score", "--model", folder, "--data", data, "--image-root", images]
    done = lft(*asked, "--out", tmp_path / "out.jsonl", "--image-fit", "crop", code=3)
    assert "the processor makes no square of an image" in done.stderr
    lft(*asked, "--out", tmp_path / "out.jsonl")  # padded, as LLaVA's are
    assert reference.images_of(ROWS[0])


@pytest.mark.parametrize("more", [[], ["--adapter", "none"]])
def test_eval_of_a_recipe_without_its_adapter_evaluates_nothing(
    more,
    family_dir,  # noqa: F811
    images,
    tmp_path,
):
    name, data = "qwen25_gqa", write_rows(tmp_path / "rows.jsonl", ROWS)
    recipe = make_recipe(
        *[name, tmp_path / "run", family_dir(name), data, images], data=dict(eval=str(data))
    )
    done = lft("eval", recipe, "--max-new-tokens", 1, *more, code=2)
    if not more:
        assert f"no adapter in {tmp_path / 'run'}" in done.stderr and "--model" in done.stderr
    for whole in (["full=[all]"], ["lora.targets=[]", "full=[projector]"]):
        sets = [part for one in whole for part in ("--set", one)]
        lft("eval", recipe, *sets, "--max-new-tokens", 1, code=2)
    done = lft("eval", recipe, "--model", family_dir(name), "--max-new-tokens", 1)
    last = json.loads(done.stdout.splitlines()[-1])
    assert (last["model"], last["adapter"]) == (str(family_dir(name)), None)
    assert f"model: {family_dir(name)}, adapter: none" in done.stderr
