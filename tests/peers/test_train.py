"""Twenty steps of lft train from a PEFT adapter against the same twenty in PyTorch and PEFT,
in float32 without dropout."""

import pytest
from safetensors.torch import load_file

import reference
from cases import ADAPTER_CASES, CASES, ROWS, STEPS
from tools import step_lines

RELATIVE = 1e-4


def check_steps(lines, want, clip):
    assert [line["step"] for line in lines] == list(range(1, STEPS + 1))
    assert any(record["grad_norm"] > clip for record in want), "clipping is never seen"
    for line, record in zip(lines, want):
        for key in ["loss", "lr", "grad_norm"]:
            assert line[key] == pytest.approx(record[key], rel=RELATIVE, abs=1e-12), (
                line["step"],
                key,
            )
        assert (line["supervised_tokens"], line["tokens"]) == (
            record["supervised_tokens"],
            record["tokens"],
        ), line["step"]
        assert line["precision"] == "fp32"


def check_tensors(tensors, wanted, rates):
    assert sorted(tensors) == sorted(wanted)
    for key, tensor in wanted.items():
        difference = tensors[key].detach().double() - tensor.detach().double()
        assert difference.abs().max() <= 2 * rates, key
        if "vision_tower" in key and key.endswith("k_proj.bias"):
            # No loss depends on it: softmax ignores a constant, and AdamW amplifies the
            # rounding noise.
            continue
        assert difference.norm() <= RELATIVE * tensor.detach().double().norm(), key


def train_reference(case, model_dir, images, adapter=None):
    peer = reference.Peer(model_dir, adapter, trainable=True)
    if adapter is None and case["full"] != ["all"]:
        for name, parameter in peer.model.named_parameters():
            parameter.requires_grad_(reference.scope_of(name) in case["full"])
    samples = [peer.encode(item, images, case["template"], case["fit"]) for item in ROWS]
    return peer.model, reference.train(
        peer.model, samples, case["optim"], case["batch_size"], case["grad_accum"], STEPS
    )


@pytest.mark.parametrize("name", ADAPTER_CASES)
def test_twenty_steps_of_an_adapter(name, trained, model_dir, peft_adapter, images):
    case, run = CASES[name], trained(name)
    model, want = train_reference(
        case,
        model_dir(case["checkpoint"]),
        images,
        peft_adapter(case["checkpoint"], case["adapter"]),
    )
    check_steps(step_lines(run), want, case["optim"]["clip_grad_norm"])
    check_tensors(
        reference.adapter_tensors(run / "adapter"),
        reference.trained_tensors(model),
        sum(record["lr"] for record in want),
    )


def test_twenty_steps_of_a_whole_model(trained, model_dir, images):
    case, run = CASES["whole_model_row_by_row"], trained("whole_model_row_by_row")
    model, want = train_reference(case, model_dir(case["checkpoint"]), images)
    check_steps(step_lines(run), want, case["optim"]["clip_grad_norm"])
    saved = reference.Peer(run / "model").model
    check_tensors(
        dict(saved.named_parameters()),
        dict(model.named_parameters()),
        sum(record["lr"] for record in want),
    )


def test_twenty_steps_of_parts(trained, model_dir, images):
    case, run = CASES["parts_by_wsd"], trained("parts_by_wsd")
    model, want = train_reference(case, model_dir(case["checkpoint"]), images)
    check_steps(step_lines(run), want, case["optim"]["clip_grad_norm"])
    fresh = reference.Peer(model_dir(case["checkpoint"])).model
    parts = load_file(run / "parts" / "parts.safetensors")
    assert not fresh.load_state_dict(parts, strict=False).unexpected_keys
    assert {reference.scope_of(name) for name in parts} == set(case["full"])
    check_tensors(
        dict(fresh.named_parameters()),
        dict(model.named_parameters()),
        sum(record["lr"] for record in want),
    )


def test_the_run_moved_every_tensor(trained, peft_adapter):
    case = CASES["constant_rslora_every_tower"]
    before = reference.adapter_tensors(peft_adapter(case["checkpoint"], case["adapter"]))
    after = reference.adapter_tensors(trained("constant_rslora_every_tower") / "adapter")
    for key, tensor in before.items():
        # PEFT with transformers >= 5.6 omits the "vision_model." that lft,
        # like older versions, writes.
        written = (
            key if key in after else key.replace("vision_tower.", "vision_tower.vision_model.")
        )
        assert not after[written].equal(tensor), key
