"""Adapters and merged checkpoints are exchanged both ways between lft, PEFT and transformers,
with the same results."""

import json
import re
import shutil
import warnings

import pytest
import torch
from transformers import AutoProcessor

import reference
from cases import ADAPTER_CASES, ADAPTERS, CASES, ROWS
from tools import lft, score, write_notes, write_rows

TOLERANCE = 1e-3  # nats


def compare(peer, scored, images, template="llava-v1", fit="pad"):
    for item, line in zip(ROWS, scored):
        ids, labels, pixels = peer.encode(item, images, template, fit)
        assert line["logprobs"] == pytest.approx(
            peer.logprobs(ids, labels, pixels), abs=TOLERANCE
        ), item["id"]


def moved(scored, base):
    return max(
        abs(a - b) for x, y in zip(scored, base) for a, b in zip(x["logprobs"], y["logprobs"])
    )


@pytest.mark.parametrize(
    "checkpoint, name",
    [
        ("plain", "llm"),
        ("gqa_tied", "llm_projector_whole"),
        ("head_dim_bias", "rslora_everywhere"),
        ("head_dim_bias", "dora_everywhere"),
        ("linear_rope_full", "attention"),
    ],
)
def test_pefts_adapter_in_lft(
    checkpoint, name, model_dir, peft_adapter, peer, images, rows_file, tmp_path
):
    adapter = peft_adapter(checkpoint, name)
    scored = score(
        tmp_path / "out.jsonl", model_dir(checkpoint), rows_file, images, "--adapter", adapter
    )
    compare(reference.Peer(model_dir(checkpoint), adapter), scored, images)
    assert (
        moved(scored, score(tmp_path / "base.jsonl", model_dir(checkpoint), rows_file, images))
        > 0.05
    )


@pytest.mark.parametrize("case", ADAPTER_CASES)
def test_lfts_adapter_in_peft(case, trained, model_dir, images, rows_file, tmp_path):
    checkpoint, adapter = CASES[case]["checkpoint"], trained(case) / "adapter"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        peer = reference.Peer(model_dir(checkpoint), adapter)
    # Template and fit are not given: the adapter directory records those of its training.
    scored = score(
        tmp_path / "out.jsonl", model_dir(checkpoint), rows_file, images, "--adapter", adapter
    )
    compare(peer, scored, images, CASES[case]["template"], CASES[case]["fit"])
    config = json.loads((adapter / "adapter_config.json").read_text())
    options = ADAPTERS[CASES[case]["adapter"]]
    assert config["peft_type"] == "LORA"
    # Full names, which SGLang reads too; each of PEFT's names is one of them,
    # and PEFT's own list contains no others.
    named = {name for name, module in peer.model.named_modules() if hasattr(module, "lora_A")}
    assert {name.removeprefix("base_model.model.") for name in named} <= set(
        config["target_modules"]
    )
    assert {name.replace("vision_model.", "") for name in config["target_modules"]} == {
        name.removeprefix("base_model.model.") for name in named
    }
    assert (config["use_rslora"], config["use_dora"]) == (
        bool(options.get("use_rslora")),
        bool(options.get("use_dora")),
    )


@pytest.mark.parametrize(
    "checkpoint, name",
    [
        ("plain", "llm"),
        ("gqa_tied", "llm_projector_whole"),
        ("head_dim_bias", "rslora_everywhere"),
        ("head_dim_bias", "dora_everywhere"),
    ],
)
def test_merged_checkpoint_in_transformers(
    checkpoint, name, model_dir, peft_adapter, images, rows_file, tmp_path
):
    adapter, merged = peft_adapter(checkpoint, name), tmp_path / "merged"
    lft("merge", "--model", model_dir(checkpoint), "--adapter", adapter, "--out", merged)
    plain, peft = reference.Peer(merged), reference.Peer(model_dir(checkpoint), adapter)
    for item in ROWS[:4]:
        ids, labels, pixels = peft.encode(item, images)
        assert plain.encode(item, images)[0] == ids
        assert torch.allclose(plain.logits(ids, pixels), peft.logits(ids, pixels), atol=TOLERANCE)
    compare(peft, score(tmp_path / "out.jsonl", merged, rows_file, images), images)
    report = json.loads((merged / "merge_report.json").read_text())
    assert report["max_abs_diff"] < TOLERANCE and report["top1_agreement"] == 1


def test_merge_keeps_the_stored_dtype_and_layout(model_dir, peft_adapter, images, tmp_path):
    checkpoint = "linear_rope_full"  # float16, two shards
    lft(
        "merge",
        "--model",
        model_dir(checkpoint),
        "--adapter",
        peft_adapter(checkpoint, "attention"),
        "--out",
        tmp_path / "merged",
    )
    assert AutoProcessor.from_pretrained(tmp_path / "merged").tokenizer("x")["input_ids"]
    plain, peft = (
        reference.Peer(tmp_path / "merged"),
        reference.Peer(model_dir(checkpoint), peft_adapter(checkpoint, "attention")),
    )
    ids, _, pixels = peft.encode(ROWS[0], images)
    # One rounding of the merged matrices to float16, a relative 2^-11 each.
    assert (plain.logits(ids, pixels) - peft.logits(ids, pixels)).abs().max() < 0.05
    shards = [path.name for path in (tmp_path / "merged").glob("*.safetensors")]
    assert len(shards) == 2


def test_a_merged_model_loads_and_keeps_how_it_was_trained(
    trained, model_dir, images, rows_file, tmp_path
):
    case, merged = CASES["linear_accumulate_projector"], tmp_path / "merged"
    base = model_dir(case["checkpoint"])
    lft(
        "merge",
        "--model",
        base,
        "--adapter",
        trained("linear_accumulate_projector") / "adapter",
        "--out",
        merged,
    )
    assert (merged / "lft_model.json").exists()
    for path in base.glob("*processor_config.json"):
        assert (merged / path.name).read_bytes() == path.read_bytes()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        peer = reference.Peer(merged)
    # Neither template nor fit is given, and neither is the default.
    compare(
        peer,
        score(tmp_path / "out.jsonl", merged, rows_file, images),
        images,
        case["template"],
        case["fit"],
    )


def messages_of(item, system):
    """Parts of OpenAI's form: "<image>\\n" in a question is an image."""
    messages = [dict(role="system", content=system)] if system else []
    for question, answer in reference.turns_of(item):
        pieces = [piece for piece in re.split("(<image>\n)", question) if piece]
        parts = [
            dict(type="image") if piece == "<image>\n" else dict(type="text", text=piece)
            for piece in pieces
        ]
        messages += [dict(role="user", content=parts), dict(role="assistant", content=answer)]
    return messages


@pytest.mark.parametrize(
    "checkpoint, template", [("plain", "llava-v1"), ("gqa_tied", "llava-hf"), ("gqa_tied", "plain")]
)
def test_a_merged_model_is_asked_right_by_who_is_told_nothing(
    checkpoint, template, model_dir, peft_adapter, images, rows_file, tmp_path
):
    """Its files contain the template and the fit: old layout and new, images of any form,
    several turns, a system text."""
    adapter, merged = tmp_path / "adapter", tmp_path / "merged"
    shutil.copytree(peft_adapter(checkpoint, "llm"), adapter)
    write_notes(adapter, template, "pad")
    lft("merge", "--model", model_dir(checkpoint), "--adapter", adapter, "--out", merged)
    system = "" if template == "plain" else "Answer in one word."
    plain = ROWS[:6]
    rows = [
        dict(
            item,
            conversations=[{"from": "system", "value": system}] * bool(system)
            + item["conversations"],
        )
        for item in plain[:3]
    ]
    scored = score(
        tmp_path / "out.jsonl", merged, write_rows(tmp_path / "rows.jsonl", plain + rows), images
    )
    peer = reference.Peer(merged)
    for number, (item, line) in enumerate(zip(plain + plain, scored)):
        messages = messages_of(item, system if number >= len(plain) else "")
        text = peer.processor.apply_chat_template(messages, tokenize=False)
        shown = [reference.open_image(images / name) for name in reference.images_of(item)]
        made = peer.processor(text=[text], images=shown or None, return_tensors="pt")
        assert made["input_ids"][0].tolist() == line["input_ids"], item["id"]
        want = peer.logprobs(line["input_ids"], line["labels"], made.get("pixel_values"))
        assert line["logprobs"] == pytest.approx(want, abs=TOLERANCE), item["id"]
    question = peer.processor.apply_chat_template(
        messages[:2] if system else messages[:1], tokenize=False, add_generation_prompt=True
    )
    assert text.startswith(question)
    if template == "plain":
        with pytest.raises(Exception, match="no place for a system text"):
            peer.processor.apply_chat_template(messages_of(ROWS[0], "Be kind."), tokenize=False)


def test_an_adapter_of_another_base_is_refused(trained, model_dir, images, rows_file, tmp_path):
    done = lft(
        "score",
        "--model",
        model_dir("sentencepiece"),
        "--adapter",
        trained("cosine_clip_decay") / "adapter",
        "--data",
        rows_file,
        "--image-root",
        images,
        "--out",
        tmp_path / "out.jsonl",
        code=3,
    )
    assert done.stderr.count("error:") == 1
    assert not (tmp_path / "out.jsonl").exists()
