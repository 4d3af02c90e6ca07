"""Fully trained parts, in each family, with and without LoRA on the rest: the run's
adapter or parts resume, are read, exported and merged, and score as in PEFT and transformers."""

import json

import pytest
import torch
from safetensors.torch import load_file
from test_families import (
    FAMILY_ROWS,
    TOLERANCE,
    TRAINED,
    FamilyPeer,
    adapted_experts,
    family_dir,  # noqa: F401
    make_recipe,
    scopes_of,
)

from tools import lft, score, step_lines, write_rows

ROWS = [FAMILY_ROWS[9], FAMILY_ROWS[1]]  # a tiny image, and none
CASES = {
    "towers_and_lora": (["projector", "vision"], True),
    "decoder_and_lora": (["llm"], True),
    "second_stage": (["llm", "projector"], False),
}
# Every combination, of every family, is in tests/hf/test_whole_scopes.cpp.
RUNS = [
    *[(name, "towers_and_lora") for name in TRAINED if not adapted_experts(name)],
    ("next_mistral", "decoder_and_lora"),
    ("smol_tied", "decoder_and_lora"),
    ("qwen25_gqa", "second_stage"),
    ("qwen35_gqa", "second_stage"),
    ("moe_gqa", "decoder_and_lora"),
    ("moe35_tied", "decoder_and_lora"),  # a tensor for each expert
    ("moe35_gqa", "second_stage"),
]


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    return write_rows(tmp_path_factory.mktemp("whole-rows") / "rows.jsonl", ROWS)


def check(peer, scored, images):
    for item, line in zip(ROWS, scored, strict=True):
        want = peer.logprobs(*peer.encode(item, images))
        assert line["logprobs"] == pytest.approx(want, abs=TOLERANCE), item["id"]


def peer_of(name, base, folder):
    """The base with the run's final weights."""
    if (folder / "adapter_config.json").exists():
        return FamilyPeer(name, base, folder)
    peer = FamilyPeer(name, base)
    parts = load_file(folder / "parts.safetensors")
    assert not peer.model.load_state_dict(parts, strict=False).unexpected_keys
    return peer


@pytest.mark.parametrize("name, case", RUNS)
def test_it_goes_round(name, case, family_dir, rows, images, tmp_path):  # noqa: F811
    full, with_lora = CASES[case]
    base, run = family_dir(name), tmp_path / "run"
    rest = [f"{scope}:all-linear" for scope in scopes_of(name) if scope not in full]
    options = dict(
        lora=dict(targets=rest if with_lora else []),
        optim=dict(lr=1e-2, schedule="constant", warmup_ratio=0.0),
        train=dict(max_steps=1, batch_size=2),
        data=dict(workers=1),
    )
    path = make_recipe(name, run, base, rows, images, **options)
    more = ["--set", f"full={json.dumps(full)}"]
    lft("train", path, *more)
    lft("train", path, *more, "--resume", "--set", "train.max_steps=2")
    losses = [line["loss"] for line in step_lines(run)]
    assert len(losses) == 2 and losses[1] != losses[0]

    made = run / ("adapter" if with_lora else "parts")
    scored = score(tmp_path / "out.jsonl", base, rows, images, "--adapter", made)
    peer = peer_of(name, base, made)
    check(peer, scored, images)

    # Another run starts from it: its first loss is the mean over these tokens.
    again = make_recipe(
        name,
        tmp_path / "again",
        base,
        rows,
        images,
        **options | dict(lora=options["lora"] | dict(init_from=str(made))),
    )
    lft("train", again, *more)
    tokens = [value for line in scored for value in line["logprobs"]]
    assert step_lines(tmp_path / "again")[0]["loss"] == pytest.approx(
        -sum(tokens) / len(tokens), abs=TOLERANCE
    )

    lft("merge", "--adapter", made, "--out", tmp_path / "merged")
    merged = FamilyPeer(name, tmp_path / "merged")
    merged.tokenizer = peer.tokenizer  # this template keeps each image at its position in the row
    check(merged, scored, images)
    if not with_lora:
        return
    lft("export", made, "--target", "peft", "--out", tmp_path / "exported")
    exported = load_file(tmp_path / "exported" / "adapter_model.safetensors")
    stored = load_file(made / "adapter_model.safetensors")
    assert exported.keys() == stored.keys()
    assert all(torch.equal(exported[key], stored[key]) for key in stored)
    if adapted_experts(name):  # vLLM's base has the whole experts, which the export reads back
        done = lft("export", made, "--target", "vllm", "--out", tmp_path / "served")
        assert "fully fine-tuned tensors" in done.stdout
