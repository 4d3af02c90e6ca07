"""Twenty steps of lft train from a PEFT adapter against the same twenty in PyTorch and PEFT, in float32 without dropout."""

import pytest

import reference
from cases import CASES, ROWS, STEPS
from tools import step_lines

RELATIVE = 1e-4


@pytest.mark.parametrize("name", CASES)
def test_twenty_steps(name, trained, model_dir, peft_adapter, images):
    case = CASES[name]
    run = trained(name)
    peer = reference.Peer(model_dir(case["checkpoint"]), peft_adapter(case["checkpoint"], case["adapter"]), trainable=True)
    samples = [peer.encode(item, images, case["template"], case["fit"]) for item in ROWS]
    want = reference.train(peer.model, samples, case["optim"], case["batch_size"], case["grad_accum"], STEPS)

    lines = step_lines(run)
    assert [line["step"] for line in lines] == list(range(1, STEPS + 1))
    assert any(record["grad_norm"] > case["optim"]["clip_grad_norm"] for record in want), "clipping is never seen"
    for line, record in zip(lines, want):
        for key in ["loss", "lr", "grad_norm"]:
            assert line[key] == pytest.approx(record[key], rel=RELATIVE, abs=1e-12), (line["step"], key)
        assert (line["supervised_tokens"], line["tokens"]) == (record["supervised_tokens"], record["tokens"]), line["step"]
        assert line["precision"] == "fp32"

    tensors, wanted = reference.adapter_tensors(run / "adapter"), reference.trained_tensors(peer.model)
    assert sorted(tensors) == sorted(wanted)
    rates = sum(record["lr"] for record in want) * max(1.0, case["optim"].get("projector_lr", 0) / case["optim"]["lr"])
    for key, tensor in wanted.items():
        difference = tensors[key].double() - tensor.double()
        assert difference.norm() <= RELATIVE * tensor.double().norm(), key
        assert difference.abs().max() <= 2 * rates, key


def test_the_run_moved_every_tensor(trained, peft_adapter):
    case = CASES["constant_rslora_every_tower"]
    before = reference.adapter_tensors(peft_adapter(case["checkpoint"], case["adapter"]))
    after = reference.adapter_tensors(trained("constant_rslora_every_tower") / "adapter")
    for key, tensor in before.items():
        # PEFT beside transformers >= 5.6 leaves out the "vision_model." that lft, as older versions, writes.
        written = key if key in after else key.replace("vision_tower.", "vision_tower.vision_model.")
        assert not after[written].equal(tensor), key
