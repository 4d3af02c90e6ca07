"""The output of lft export for PEFT and for servers equals base and adapter,
as PEFT computes it."""

import json
import shutil

import pytest
import torch

import reference
from cases import ROWS
from test_families import (  # noqa: F401, the fixtures
    FAMILY_ROWS,
    FamilyPeer,
    family_adapter,
    family_dir,
)
from tools import lft

TOLERANCE = 1e-3  # nats


@pytest.mark.parametrize("dialect", ["d2", "d3", None])
def test_each_dialect_in_peft(dialect, model_dir, peft_adapter, peer, images, tmp_path):
    checkpoint, out = "head_dim_bias", tmp_path / "out"
    adapter = peft_adapter(checkpoint, "patterns")
    lft(
        "export",
        adapter,
        "--model",
        model_dir(checkpoint),
        "--target",
        "peft",
        "--out",
        out,
        *(["--dialect", dialect] if dialect else []),
    )
    want, got = (reference.Peer(model_dir(checkpoint), path) for path in (adapter, out))
    ids, labels, pixels = want.encode(ROWS[0], images)
    assert got.logprobs(ids, labels, pixels) == pytest.approx(
        want.logprobs(ids, labels, pixels), abs=1e-5
    )


def test_a_whole_projector_is_merged_for_vllm(model_dir, peft_adapter, images, tmp_path):
    checkpoint, adapter = "gqa_tied", peft_adapter("gqa_tied", "llm_projector_whole")
    done = lft(
        "export",
        adapter,
        "--model",
        model_dir(checkpoint),
        "--target",
        "vllm",
        "--out",
        tmp_path / "out",
    )
    assert "--max-lora-rank 16" in done.stdout and "tower" not in done.stdout
    config = json.loads((tmp_path / "out/adapter/adapter_config.json").read_text())
    assert config["modules_to_save"] is None and config["r"] == 3
    want, got = (
        reference.Peer(model_dir(checkpoint), adapter),
        reference.Peer(tmp_path / "out/base", tmp_path / "out/adapter"),
    )
    ids, labels, pixels = want.encode(ROWS[0], images)
    assert got.logprobs(ids, labels, pixels) == pytest.approx(
        want.logprobs(ids, labels, pixels), abs=TOLERANCE
    )
    lft(
        "export", tmp_path / "out/adapter", "--target", "vllm", "--check"
    )  # with the base that it names


def test_all_but_the_decoder_is_merged_for_sglang(
    family_dir,  # noqa: F811
    family_adapter,  # noqa: F811
    images,
    tmp_path,
):
    """SGLang 0.5.23 reads r and lora_alpha, a list of names whose last parts it knows,
    and no other scale."""
    name, adapter = "qwen3_gqa", tmp_path / "adapter"
    shutil.copytree(family_adapter(name), adapter)
    config = json.loads((adapter / "adapter_config.json").read_text())
    changed = config | dict(use_rslora=True, alpha_pattern={"v_proj": 9}, rank_pattern={})
    (adapter / "adapter_config.json").write_text(json.dumps(changed))
    found = lft(
        "export", adapter, "--model", family_dir(name), "--target", "sglang", "--check", code=3
    )
    for what in [
        "use_rslora is ignored",
        "alpha_pattern is ignored",
        "projector is refused",
        "target_modules: an expression is refused",
    ]:
        assert what in found.stdout and what in found.stderr
    lft(
        "export",
        adapter,
        "--model",
        family_dir(name),
        "--target",
        "sglang",
        "--out",
        tmp_path / "out",
    )
    served = json.loads((tmp_path / "out/adapter/adapter_config.json").read_text())
    known = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}
    assert (
        isinstance(served["target_modules"], list)
        and {module.split(".")[-1] for module in served["target_modules"]} == known
    )
    assert (
        served["lora_alpha"] == served["r"] == 3
        and not served["use_rslora"]
        and not served["alpha_pattern"]
    )
    lft("export", tmp_path / "out/adapter", "--target", "sglang", "--check")
    want, got = (
        FamilyPeer(name, family_dir(name), adapter),
        FamilyPeer(name, tmp_path / "out/base", tmp_path / "out/adapter"),
    )
    ids, labels, extra = want.encode(FAMILY_ROWS[0], images)
    assert got.logprobs(ids, labels, extra) == pytest.approx(
        want.logprobs(ids, labels, extra), abs=TOLERANCE
    )
    with torch.no_grad():
        assert (
            want.forward(ids, extra) - FamilyPeer(name, family_dir(name)).forward(ids, extra)
        ).abs().max() > 0.05
