"""Adapters and merged checkpoints travel both ways between lft, PEFT and transformers, and mean the same."""

import json
import warnings

import pytest
import torch
from transformers import AutoProcessor

import reference
from cases import ADAPTER_CASES, ADAPTERS, CASES, ROWS
from tools import lft, score

TOLERANCE = 1e-3  # nats


def compare(peer, scored, images, template="llava-v1", fit="pad"):
    for item, line in zip(ROWS, scored):
        ids, labels, pixels = peer.encode(item, images, template, fit)
        assert line["logprobs"] == pytest.approx(peer.logprobs(ids, labels, pixels), abs=TOLERANCE), item["id"]


def moved(scored, base):
    return max(abs(a - b) for x, y in zip(scored, base) for a, b in zip(x["logprobs"], y["logprobs"]))


@pytest.mark.parametrize(
    "checkpoint, name",
    [("plain", "llm"), ("gqa_tied", "llm_projector_whole"), ("head_dim_bias", "rslora_everywhere"), ("head_dim_bias", "dora_everywhere"), ("linear_rope_full", "attention")],
)
def test_pefts_adapter_in_lft(checkpoint, name, model_dir, peft_adapter, peer, images, rows_file, tmp_path):
    adapter = peft_adapter(checkpoint, name)
    scored = score(tmp_path / "out.jsonl", model_dir(checkpoint), rows_file, images, "--adapter", adapter)
    compare(reference.Peer(model_dir(checkpoint), adapter), scored, images)
    assert moved(scored, score(tmp_path / "base.jsonl", model_dir(checkpoint), rows_file, images)) > 0.05


@pytest.mark.parametrize("case", ADAPTER_CASES)
def test_lfts_adapter_in_peft(case, trained, model_dir, images, rows_file, tmp_path):
    checkpoint, adapter = CASES[case]["checkpoint"], trained(case) / "adapter"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        peer = reference.Peer(model_dir(checkpoint), adapter)
    # Template and fit are not given: the adapter directory records what it was trained with.
    scored = score(tmp_path / "out.jsonl", model_dir(checkpoint), rows_file, images, "--adapter", adapter)
    compare(peer, scored, images, CASES[case]["template"], CASES[case]["fit"])
    config = json.loads((adapter / "adapter_config.json").read_text())
    options = ADAPTERS[CASES[case]["adapter"]]
    assert config["peft_type"] == "LORA"
    assert (config["use_rslora"], config["use_dora"]) == (bool(options.get("use_rslora")), bool(options.get("use_dora")))


@pytest.mark.parametrize(
    "checkpoint, name",
    [("plain", "llm"), ("gqa_tied", "llm_projector_whole"), ("head_dim_bias", "rslora_everywhere"), ("head_dim_bias", "dora_everywhere")],
)
def test_merged_checkpoint_in_transformers(checkpoint, name, model_dir, peft_adapter, images, rows_file, tmp_path):
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
    lft("merge", "--model", model_dir(checkpoint), "--adapter", peft_adapter(checkpoint, "attention"), "--out", tmp_path / "merged")
    assert AutoProcessor.from_pretrained(tmp_path / "merged").tokenizer("x")["input_ids"]
    plain, peft = reference.Peer(tmp_path / "merged"), reference.Peer(model_dir(checkpoint), peft_adapter(checkpoint, "attention"))
    ids, _, pixels = peft.encode(ROWS[0], images)
    # One rounding of the merged matrices to float16, of relative size 2^-11 each.
    assert (plain.logits(ids, pixels) - peft.logits(ids, pixels)).abs().max() < 0.05
    shards = [path.name for path in (tmp_path / "merged").glob("*.safetensors")]
    assert len(shards) == 2


def test_a_merged_model_loads_and_keeps_how_it_was_trained(trained, model_dir, images, rows_file, tmp_path):
    case, merged = CASES["linear_accumulate_projector"], tmp_path / "merged"
    base = model_dir(case["checkpoint"])
    lft("merge", "--model", base, "--adapter", trained("linear_accumulate_projector") / "adapter", "--out", merged)
    assert (merged / "lft_model.json").exists()
    for path in base.glob("*processor_config.json"):
        assert (merged / path.name).read_bytes() == path.read_bytes()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        peer = reference.Peer(merged)
    # Neither template nor fit is given, and neither is the default.
    compare(peer, score(tmp_path / "out.jsonl", merged, rows_file, images), images, case["template"], case["fit"])


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
