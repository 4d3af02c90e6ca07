"""Adapters on the embedding and the LM head, over bases that tie them: lft gives PEFT's results,
and its merges, exports and training give the same numbers."""

import json

import pytest
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForImageTextToText

import families
from test_families import (  # noqa: F401, the fixtures
    FAMILY_ROWS,
    FamilyPeer,
    family_dir,
    fit_of,
    make_recipe,
)
from tools import lft, score, step_lines, write_notes, write_rows

TOLERANCE = 1e-4  # nats
MERGED = 1e-5  # relative to the largest logit: sums in another order
ITEMS = FAMILY_ROWS[:2]
EMBEDDING, HEAD = ["embed_tokens"], ["lm_head"]
ROUNDED = dict(dtype=torch.float32)  # for those that are stored in BF16
families.SPECS |= {
    "tied_qwen3": families.SPECS["qwen3_tied"] | dict(shards=True),
    "tied_qwen2": families.SPECS["qwen2_tied_bf16"] | ROUNDED,
    "tied_qwen25": families.SPECS["qwen25_tied_bf16"] | ROUNDED,
    "tied_onevision": families.SPECS["onevision_tied_bf16"] | ROUNDED,
    "tied_next": families.SPECS["next_qwen2_shards"] | dict(tie=True),
    "tied_idefics3": families.SPECS["idefics3_shards"] | dict(tie=True),
}
NAMES = [
    "tied_qwen3",
    "tied_qwen2",
    "tied_qwen25",
    "tied_onevision",
    "tied_next",
    "tied_idefics3",
    "smol_tied",
    "qwen35_tied",
    "llava_qwen2_siglip",
    "gemma_gqa",
    "intern_qwen3_norms",
]
# LoraConfig's arguments; `lora` are further target modules. Under "kept" the model stays tied.
CASES = {
    "embedding": dict(modules_to_save=EMBEDDING),
    "head": dict(modules_to_save=HEAD),
    "both": dict(modules_to_save=EMBEDDING + HEAD),
    "both_kept": dict(modules_to_save=EMBEDDING + HEAD, ensure_weight_tying=True),
    "embedding_kept": dict(modules_to_save=EMBEDDING, ensure_weight_tying=True),
    "lora_on_the_embedding": dict(lora=EMBEDDING, rank_pattern=dict(embed_tokens=3)),
    "lora_on_the_head": dict(lora=HEAD, use_rslora=True),
    "lora_on_both": dict(lora=EMBEDDING + HEAD),
    "lora_on_both_as_one": dict(lora=EMBEDDING + HEAD, ensure_weight_tying=True),
    "lora_and_a_whole_head": dict(lora=EMBEDDING, modules_to_save=HEAD),
    "dora_on_the_head": dict(lora=HEAD, modules_to_save=EMBEDDING, use_dora=True),
    "copies_kept": dict(save_embedding_layers=True),
    "an_embedding_and_copies": dict(modules_to_save=EMBEDDING, save_embedding_layers=True),
    "nothing_kept": dict(ensure_weight_tying=True),
}
# Each case once, and the most common one in every family; Gemma scales its embedding.
RUNS = [
    *[("tied_qwen3", case) for case in CASES],
    *[(name, "embedding") for name in NAMES[1:]],
    ("gemma_gqa", "lora_on_both"),
]


def make(base, path, options):
    """Saves a PEFT adapter with random numbers."""
    options = {
        key: list(value) if key == "modules_to_save" else value for key, value in options.items()
    }  # PEFT changes them
    copies = options.pop("save_embedding_layers", "auto")
    targets = ["q_proj", *options.pop("lora", [])]
    model = get_peft_model(
        AutoModelForImageTextToText.from_pretrained(base, dtype=torch.float32),
        LoraConfig(r=4, lora_alpha=6, task_type="CAUSAL_LM", target_modules=targets, **options),
    )
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if "lora_magnitude_vector" in key:
                parameter.mul_(1 + 0.2 * noise)
            elif "lora_" in key:
                parameter.copy_(noise * 0.15)
            elif "modules_to_save.default" in key:
                parameter.add_(noise * 0.05)
    model.save_pretrained(path, save_embedding_layers=copies)


def tables(model):
    """The LM head, and whether it is the embedding."""
    head, embedding = model.get_output_embeddings().weight, model.get_input_embeddings().weight
    return head, head.data_ptr() == embedding.data_ptr()


def scores(name, base, images, tmp_path, *more):
    rows = write_rows(tmp_path / "rows.jsonl", ITEMS)
    return score(tmp_path / "out.jsonl", base, rows, images, *more)


def compare(peer, scored, images):
    for item, line in zip(ITEMS, scored):
        ids, labels, extra = peer.encode(item, images)
        assert line["input_ids"] == ids
        assert line["logprobs"] == pytest.approx(peer.logprobs(ids, labels, extra), abs=TOLERANCE)


def same_logits(one, other, images):
    for item in ITEMS:
        ids, extra = one.inputs(item, images)
        with torch.no_grad():
            want, got = one.forward(ids, extra), other.forward(ids, extra)
        assert (want - got).abs().max() <= MERGED * want.abs().max(), item["id"]


@pytest.mark.parametrize("name, case", RUNS)
def test_it_is_read_and_merged_as_peft_reads_it(
    name,
    case,
    family_dir,  # noqa: F811
    images,
    tmp_path,
):
    base, adapter, merged = family_dir(name), tmp_path / "adapter", tmp_path / "merged"
    make(base, adapter, CASES[case])
    write_notes(adapter, "auto", fit_of(name))
    peft = FamilyPeer(name, base, adapter)
    compare(peft, scores(name, base, images, tmp_path, "--adapter", adapter), images)
    done = lft("merge", "--model", base, "--adapter", adapter, "--out", merged)
    kept = case.endswith("kept")
    assert ("the merged model stores both" in done.stdout) != kept
    config = json.loads((merged / "config.json").read_text())
    assert config["tie_word_embeddings"] == config["text_config"]["tie_word_embeddings"] == kept
    whole = FamilyPeer(name, base)
    whole.model, loading = AutoModelForImageTextToText.from_pretrained(
        merged, dtype=torch.float32, output_loading_info=True
    )
    assert not any(loading.values()) and tables(whole.model)[1] == kept
    whole.model.eval()
    same_logits(peft, whole, images)
    compare(peft, scores(name, merged, images, tmp_path), images)


@pytest.mark.parametrize(
    "case, target", [("lora_on_both", "peft"), ("lora_on_both", "vllm"), ("embedding_kept", "peft")]
)
def test_it_is_exported(
    case,
    target,
    family_dir,  # noqa: F811
    images,
    tmp_path,
):
    name, adapter, out = "tied_qwen3", tmp_path / "adapter", tmp_path / "out"
    base = family_dir(name)
    make(base, adapter, CASES[case])
    lft("export", adapter, "--model", base, "--target", target, "--out", out)
    if target == "vllm":
        base, out = out / "base", out / "adapter"
    same_logits(FamilyPeer(name, family_dir(name), adapter), FamilyPeer(name, base, out), images)


@pytest.mark.parametrize("name", ["tied_qwen3", "smol_tied", "gemma_gqa"])
def test_a_decoder_that_lft_trains_whole_is_the_same_in_peft(
    name,
    family_dir,  # noqa: F811
    images,
    tmp_path,
):
    """LoRA on the vision tower makes it an adapter; the decoder's embedding is its head."""
    base, rows = family_dir(name), write_rows(tmp_path / "rows.jsonl", ITEMS)
    more = dict(
        lora=dict(targets=["vision:q_proj" if "qwen" not in name else "vision:all-linear"]),
        train=dict(max_steps=3, batch_size=2),
        optim=dict(lr=1e-2),
    )
    path = make_recipe(name, tmp_path / "run", base, rows, images, **more)
    lft("train", path, "--set", "full=[llm]")
    adapter = tmp_path / "run" / "adapter"
    peft = FamilyPeer(name, base, adapter)
    scored = scores(name, base, images, tmp_path, "--adapter", adapter)
    compare(peft, scored, images)
    head, _ = tables(peft.model.get_base_model())
    assert (head - tables(FamilyPeer(name, base).model)[0]).abs().max() > 1e-3
    # lft resumes from its own saved adapter.
    more["lora"]["init_from"] = str(adapter)
    again = make_recipe(name, tmp_path / "again", base, rows, images, **more)
    lft("train", again, "--set", "full=[llm]", "--set", "optim.warmup_ratio=0")
    logprobs = [value for line in scored for value in line["logprobs"]]
    assert step_lines(tmp_path / "again")[0]["loss"] == pytest.approx(
        -sum(logprobs) / len(logprobs), rel=TOLERANCE
    )


def test_training_over_a_tied_base_refuses_a_head_of_its_own(
    family_dir,  # noqa: F811
    images,
    tmp_path,
):
    name, adapter, merged = "smol_tied", tmp_path / "adapter", tmp_path / "merged"
    base, rows = family_dir(name), write_rows(tmp_path / "rows.jsonl", ITEMS)
    make(base, adapter, CASES["embedding"])
    lora = dict(rank=4, alpha=6, targets=["llm:q_proj", "vision:q_proj"])
    path = make_recipe(
        name,
        tmp_path / "run",
        base,
        rows,
        images,
        lora=lora | dict(init_from=str(adapter)),
        train=dict(max_steps=1),
    )
    refused = lft("train", path, code=3).stderr
    assert "lft merge" in refused and "tie" in refused
    lft("merge", "--model", base, "--adapter", adapter, "--out", merged)
    path = make_recipe(
        name,
        tmp_path / "next",
        merged,
        rows,
        images,
        lora=lora,
        train=dict(max_steps=1),
        optim=dict(warmup_ratio=0),
    )
    lft("train", path)


# An adapter of case `embedding_kept` or `copies_kept` with changed tensors, and the error.
BROKEN = {
    "a_tie_with_one_side": ("embedding_kept", lambda head: None, "the embedding alone"),
    "a_tie_that_differs": ("embedding_kept", lambda head: head * 1.5, "that differ"),
    "another_base": ("copies_kept", lambda head: head * 1.5, "another base weight"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_contradicts_itself_is_refused(
    name,
    family_dir,  # noqa: F811
    images,
    tmp_path,
):
    case, change, named = BROKEN[name]
    base, adapter = family_dir("tied_qwen3"), tmp_path / "adapter"
    make(base, adapter, CASES[case])
    file, key = adapter / "adapter_model.safetensors", "base_model.model.lm_head.weight"
    tensors = load_file(file)
    changed = change(tensors.pop(key))
    save_file(tensors | ({} if changed is None else {key: changed}), file)
    for command in (
        ("generate", "--image", images / "tall.png", "--prompt", "What?"),
        ("merge", "--out", tmp_path / "merged"),
        ("export", "--target", "peft", "--out", tmp_path / "out"),
    ):
        option = [] if command[0] == "export" else ["--adapter"]
        done = lft(command[0], *option, adapter, "--model", base, *command[1:], code=3)
        assert named in done.stderr and done.stderr.count("error:") == 1
        assert not (tmp_path / "merged").exists() and not (tmp_path / "out").exists()
