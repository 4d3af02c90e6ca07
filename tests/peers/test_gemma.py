"""Features specific to Gemma 3: a projector without linear layers, files in the published spelling,
pan and scan, windows in a long text."""

import json
import shutil

import pytest
import torch
import yaml
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForImageTextToText

import families
import reference
from cases import row
from test_families import (
    BATCH,
    FAMILY_ROWS,
    RELATIVE,
    FamilyPeer,
    compare,
    make_recipe,
    targets_of,
)
from tools import lft, score, step_lines, write_rows

NAME = "gemma_gqa"


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return families.build(NAME, tmp_path_factory.mktemp("gemma") / NAME)


@pytest.fixture
def rows(tmp_path):
    return write_rows(tmp_path / "rows.jsonl", FAMILY_ROWS)


def moved(scored, other):
    return max(
        abs(a - b) for x, y in zip(scored, other) for a, b in zip(x["logprobs"], y["logprobs"])
    )


def test_a_projector_trained_whole_is_pefts(base, images, rows, tmp_path):
    path = make_recipe(
        NAME, tmp_path / "run", base, rows, images, train=dict(max_steps=4), optim=dict(lr=1e-2)
    )
    lft("train", path, "--set", "full=[projector]")
    adapter = tmp_path / "run" / "adapter"
    scored = score(tmp_path / "out.jsonl", base, rows, images, "--adapter", adapter)
    compare(FamilyPeer(NAME, base, adapter), scored, images)
    assert json.loads((adapter / "adapter_config.json").read_text())["modules_to_save"] == [
        "multi_modal_projector"
    ]
    changed = load_file(adapter / "adapter_model.safetensors")
    stored = load_file(base / "model.safetensors")
    for name in ["mm_input_projection_weight", "mm_soft_emb_norm.weight"]:
        key = next(key for key in changed if key.endswith(name))
        assert not torch.equal(changed[key], stored[f"multi_modal_projector.{name}"])


@pytest.fixture(scope="module")
def pefts(base, tmp_path_factory):
    """PEFT's adapter on decoder and tower, the projector fully saved, with random values."""
    model = AutoModelForImageTextToText.from_pretrained(base, dtype=torch.float32)
    model = get_peft_model(
        model,
        LoraConfig(
            r=3,
            lora_alpha=6,
            target_modules=targets_of(NAME),
            modules_to_save=["multi_modal_projector"],
        ),
    )
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if "lora_" in key:
                parameter.copy_(
                    torch.randn(parameter.shape, generator=generator)
                    * (0.4 / parameter.shape[1] ** 0.5)
                )
            elif "modules_to_save" in key:
                parameter.mul_(1.3)
    path = tmp_path_factory.mktemp("gemma-adapter") / "adapter"
    model.save_pretrained(path)
    return path


# The key after "base_model.model.": in transformers from 5 on,
# before 5, and before 4.52.
DIALECTS = {
    "newest": lambda key: key,
    "tower": lambda key: key.replace("model.vision_tower.", "model.vision_tower.vision_model."),
    "oldest": lambda key: (
        key.replace("model.vision_tower.", "vision_tower.vision_model.")
        .replace("model.language_model.", "language_model.model.")
        .replace("model.multi_modal_projector.", "multi_modal_projector.")
    ),
}


@pytest.mark.parametrize("dialect", DIALECTS)
def test_pefts_adapter_in_every_dialect(dialect, base, pefts, images, rows, tmp_path):
    renamed = tmp_path / "adapter"
    shutil.copytree(pefts, renamed)
    file = renamed / "adapter_model.safetensors"
    head = "base_model.model."
    tensors = {
        head + DIALECTS[dialect](key.removeprefix(head)): value
        for key, value in load_file(file).items()
    }
    save_file(tensors, file, metadata={"format": "pt"})
    scored = score(tmp_path / "out.jsonl", base, rows, images, "--adapter", renamed)
    compare(FamilyPeer(NAME, base, pefts), scored, images)
    assert moved(scored, score(tmp_path / "base.jsonl", base, rows, images)) > 0.05
    if dialect == "oldest":
        lft("merge", "--model", base, "--adapter", renamed, "--out", tmp_path / "merged")
        compare(FamilyPeer(NAME, tmp_path / "merged"), scored, images)
        compare(
            FamilyPeer(NAME, base, pefts),
            score(tmp_path / "merged.jsonl", tmp_path / "merged", rows, images),
            images,
        )


def test_the_published_spelling_is_the_same_model(base, images, rows, tmp_path):
    old = tmp_path / "old"
    shutil.copytree(base, old)
    tensors = load_file(base / "model.safetensors")
    tower = "vision_tower."
    save_file(
        {key.replace(tower, tower + "vision_model."): value for key, value in tensors.items()},
        old / "model.safetensors",
        metadata={"format": "pt"},
    )
    config = json.loads((base / "config.json").read_text())
    text = config["text_config"]
    ropes, types = text.pop("rope_parameters"), text.pop("layer_types")
    assert types == [
        "sliding_attention",
        "sliding_attention",
        "full_attention",
        "sliding_attention",
    ]
    text |= dict(
        rope_theta=ropes["full_attention"]["rope_theta"],
        rope_local_base_freq=ropes["sliding_attention"]["rope_theta"],
    )
    text |= dict(
        rope_scaling=dict(rope_type="linear", factor=ropes["full_attention"]["factor"]),
        sliding_window_pattern=3,
    )
    del config["tie_word_embeddings"], text["tie_word_embeddings"], text["_sliding_window_pattern"]
    (old / "config.json").write_text(json.dumps(config))
    file = json.loads((base / "processor_config.json").read_text())
    (old / "processor_config.json").write_text(
        json.dumps(
            dict(image_seq_length=file["image_seq_length"], processor_class="Gemma3Processor")
        )
    )
    images_file = dict(
        file["image_processor"], do_pan_and_scan=None, image_seq_length=file["image_seq_length"]
    )
    (old / "preprocessor_config.json").write_text(json.dumps(images_file))
    score(tmp_path / "new.jsonl", base, rows, images)
    score(tmp_path / "old.jsonl", old, rows, images)
    assert (tmp_path / "old.jsonl").read_bytes() == (tmp_path / "new.jsonl").read_bytes()
    (old / "preprocessor_config.json").write_text(
        json.dumps(dict(images_file, do_pan_and_scan=True))
    )
    error = lft(
        "score",
        "--model",
        old,
        "--data",
        rows,
        "--image-root",
        images,
        "--out",
        tmp_path / "x.jsonl",
        code=3,
    ).stderr
    assert "do_pan_and_scan is true" in error


def test_windows_in_a_long_text(base, images, tmp_path):
    """About thirty windows, two images among them; and answers of several windows by the cache."""
    words = " ".join(f"{number} cats, the river {number * 7}." for number in range(9))
    long = [
        row("text", [(words, "Yes. " + words), ("Sure?", words)]),
        row(
            "images",
            [(words + " <image> " + words + "<image>", "The picture shows " + words)],
            ["tiny.png", "tall.png"],
        ),
    ]
    data, peer = write_rows(tmp_path / "rows.jsonl", long), FamilyPeer(NAME, base)
    for item, line in zip(long, score(tmp_path / "out.jsonl", base, data, images)):
        ids, labels, extra = peer.encode(item, images)
        assert line["input_ids"] == ids and len(ids) > 300
        assert line["logprobs"] == pytest.approx(peer.logprobs(ids, labels, extra), abs=1e-3)
    lft(
        "eval",
        "--model",
        base,
        "--data",
        data,
        "--image-root",
        images,
        "--out",
        tmp_path / "a.jsonl",
        "--max-new-tokens",
        40,
    )
    for item, line in zip(long, (tmp_path / "a.jsonl").read_text().splitlines()):
        want = peer.tokenizer.decode(peer.greedy(item, images, 40), skip_special_tokens=True)
        assert json.loads(line)["answer"].strip() == want.strip(), item["id"]


def test_steps_of_all_parameters(base, images, rows, tmp_path):
    """Norms around 1, scaled embeddings that are also the LM head, the projection:
    gradients and updates are torch's."""
    path = make_recipe(
        NAME, tmp_path / "run", base, rows, images, optim=dict(lr=3e-4), train=dict(max_steps=6)
    )
    lft("train", path, "--set", "full=[all]", "--set", "lora.targets=[]")
    peer = FamilyPeer(NAME, base)
    optim = yaml.safe_load(path.read_text())["optim"]
    parameters, optimizer, scheduler = reference.make_optimizer(peer.model, optim, 6)
    samples = [peer.encode(item, images) for item in FAMILY_ROWS]
    for line, group in zip(
        step_lines(tmp_path / "run"), reference.step_batches(samples, BATCH, 1, 6)
    ):
        total, supervised = 0.0, sum(label != -100 for _, labels, _ in group[0] for label in labels)
        for ids, labels, extra in group[0]:
            loss = torch.nn.functional.cross_entropy(
                peer.forward(ids, extra)[:-1],
                torch.tensor(labels[1:]),
                ignore_index=-100,
                reduction="sum",
            )
            (loss / supervised).backward()
            total += loss.item()
        norm = torch.nn.utils.clip_grad_norm_(parameters, optim["clip_grad_norm"])
        assert line["loss"] == pytest.approx(total / supervised, rel=RELATIVE)
        assert line["grad_norm"] == pytest.approx(norm.item(), rel=RELATIVE)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad(set_to_none=True)
    written = FamilyPeer(NAME, tmp_path / "run" / "model")
    compare(
        written, score(tmp_path / "out.jsonl", tmp_path / "run" / "model", rows, images), images
    )
    theirs, ours = dict(peer.model.named_parameters()), dict(written.model.named_parameters())
    assert theirs.keys() == ours.keys()
    for name, parameter in theirs.items():
        assert torch.allclose(parameter, ours[name], atol=2e-5), (
            name
        )  # for six steps of at most 3e-4
