"""Twenty steps of lft train on pairs of answers and on labelled answers (KTO), from a PEFT adapter,
against the same twenty in PyTorch and PEFT with TRL's formulas, in float32 without dropout."""

import copy
import json

import pytest
import torch
import torch.nn.functional as F
import yaml

import reference
import test_families
from cases import CASES, ROWS, make_recipe
from test_families import family_adapter, family_dir  # noqa: F401  (fixtures)
from test_train import RELATIVE, check_tensors
from tools import lft, step_lines, write_rows

CASE, STEPS = "linear_accumulate_projector", 20
REJECTED = ["No.", "A dog on a sofa, I think.", "In Rome, long ago.", "It is red."]
OBJECTIVES = {
    "dpo": dict(beta=0.3, label_smoothing=0.1, sft_weight=0.2),
    "ipo": dict(beta=0.3),
    "hinge": dict(beta=0.3),
    "apo_zero": dict(beta=0.3),
    "simpo": dict(beta=2.0, margin=0.5),
    "orpo": dict(beta=0.3),
}
KTO = dict(beta=0.3, desirable_weight=1.5, undesirable_weight=0.8)
FIGURES = (
    "rewards_chosen",
    "rewards_rejected",
    "reward_accuracy",
    "reward_margin",
    "logps_chosen",
    "logps_rejected",
)


def pairs():
    """LLaMA-Factory's rows, and the two sides as LLaVA's."""
    rows, sides = [], []
    for number, row in enumerate(ROWS):
        chosen, rejected = copy.deepcopy(row), copy.deepcopy(row)
        rejected["conversations"][-1]["value"] = REJECTED[number % len(REJECTED)]
        sides.append((chosen, rejected))
        rows.append(
            {
                **row,
                "conversations": row["conversations"][:-1],
                "chosen": chosen["conversations"][-1],
                "rejected": rejected["conversations"][-1],
            }
        )
    return rows, sides


def last_answer(sample):
    """Labels of the last answer alone."""
    ids, labels, pixels = sample
    end = max(at for at, label in enumerate(labels) if label != -100)
    begin = end
    while labels[begin - 1] != -100:
        begin -= 1
    return ids, [-100] * begin + labels[begin:], pixels


def answer_sums(model, samples):
    """Summed log-probabilities of each row's answer, and the numbers of its tokens."""
    batch = reference.make_batch(samples)
    labels = batch.pop("labels")[:, 1:]
    logprobs = torch.log_softmax(model(**batch).logits.float()[:, :-1], -1)
    mask = labels != -100
    picked = logprobs.gather(2, labels.clamp(min=0).unsqueeze(2)).squeeze(2) * mask
    return picked.sum(1), mask.sum(1)


def losses(name, o, chosen, rejected, chosen_n, rejected_n, ref_chosen, ref_rejected):
    d = (chosen - ref_chosen) - (rejected - ref_rejected)
    mean_chosen, mean_rejected = chosen / chosen_n, rejected / rejected_n
    if name == "dpo":
        e = o["label_smoothing"]
        loss = -(1 - e) * F.logsigmoid(o["beta"] * d) - e * F.logsigmoid(-o["beta"] * d)
    elif name == "ipo":
        means = (chosen - ref_chosen) / chosen_n - (rejected - ref_rejected) / rejected_n
        loss = (means - 1 / (2 * o["beta"])) ** 2
    elif name == "hinge":
        loss = torch.relu(1 - o["beta"] * d)
    elif name == "apo_zero":
        ratios = chosen - ref_chosen, rejected - ref_rejected
        loss = 1 - torch.sigmoid(o["beta"] * ratios[0]) + torch.sigmoid(o["beta"] * ratios[1])
    elif name == "simpo":
        loss = -F.logsigmoid(o["beta"] * (mean_chosen - mean_rejected - o["margin"]))
    else:
        odds = (mean_chosen - mean_rejected) - (
            torch.log1p(-mean_chosen.exp()) - torch.log1p(-mean_rejected.exp())
        )
        loss = -mean_chosen - o["beta"] * F.logsigmoid(odds)
    return loss - o.get("sft_weight", 0) * mean_chosen


def family_sums(peer, samples):
    """answer_sums() of a test_families.FamilyPeer: one row at a time, without padding."""
    sums = []
    for ids, labels, extra in samples:
        logprobs = torch.log_softmax(peer.forward(ids, extra).float()[:-1], -1)
        places = torch.tensor([at for at, label in enumerate(labels[1:]) if label != -100])
        picked = logprobs[places, torch.tensor(labels[1:])[places]]
        sums.append((picked.sum(), torch.tensor(len(places))))
    return tuple(torch.stack(each) for each in zip(*sums))


def train(name, model, samples, case, answer_sums):
    """One record per step. answer_sums(samples): of a model."""
    o, uses_reference = OBJECTIVES[name], name in ("dpo", "ipo", "hinge", "apo_zero")
    with torch.no_grad():
        references = [answer_sums(list(pair))[0] for pair in samples]
    samples = list(zip(samples, references))
    parameters, optimizer, scheduler = reference.make_optimizer(model, case["optim"], STEPS)
    model.train()
    records = []
    for group in reference.step_batches(samples, case["batch_size"], case["grad_accum"], STEPS):
        count = sum(map(len, group))
        sums = dict.fromkeys(("loss", *FIGURES), 0.0)
        for micro in group:
            policy, tokens = answer_sums([side for pair, _ in micro for side in pair])
            given = torch.cat([of for _, of in micro])
            split = [x[at::2] for x in (policy, tokens, given) for at in (0, 1)]
            loss = losses(name, o, *split)
            (loss.sum() / count).backward()
            chosen, rejected = split[0].detach(), split[1].detach()
            own = (split[4], split[5]) if uses_reference else (0, 0)
            rewards = o["beta"] * (chosen - own[0]), o["beta"] * (rejected - own[1])
            found = (
                loss.detach(),
                *rewards,
                (rewards[0] >= rewards[1]).float(),
                rewards[0] - rewards[1],
                chosen,
                rejected,
            )
            for key, value in zip(sums, found):
                sums[key] += value.sum().item() / count
        norm = torch.nn.utils.clip_grad_norm_(parameters, case["optim"]["clip_grad_norm"])
        records.append({**sums, "grad_norm": norm.item(), "lr": optimizer.param_groups[0]["lr"]})
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad(set_to_none=True)
    return records


def labelled():
    """Rows of KTO, their labels, and the same rows as LLaVA's."""
    _, sides = pairs()
    labels = [number % 3 != 1 for number in range(len(sides))]
    plain = [side[0 if label else 1] for side, label in zip(sides, labels)]
    return [dict(row, kto_tag=label) for row, label in zip(plain, labels)], labels, plain


def mismatched(samples):
    """The prompt of each sample with the next one's answer."""
    cut = [next(at for at, label in enumerate(s[1]) if label != -100) for s in samples]
    rows = []
    for at, (ids, _, extra) in enumerate(samples):
        after = (at + 1) % len(samples)
        answer_ids, answer_labels = samples[after][0][cut[after] :], samples[after][1][cut[after] :]
        rows.append((ids[: cut[at]] + answer_ids, [-100] * cut[at] + answer_labels, extra))
    return rows


def train_kto(model, samples, labels, case, answer_sums):
    """As train(); the KL divergence is over the whole step."""
    rows = list(zip(samples, labels))
    with torch.no_grad():
        references = answer_sums(samples)[0]
        steps = reference.step_batches(
            list(enumerate(rows)), case["batch_size"], case["grad_accum"], STEPS
        )
        others = [mismatched([row[0] for micro in group for _, row in micro]) for group in steps]
        other_references = [answer_sums(other)[0] for other in others]
    parameters, optimizer, scheduler = reference.make_optimizer(model, case["optim"], STEPS)
    model.train()
    records = []
    for group, other, other_reference in zip(steps, others, other_references):
        with torch.no_grad():
            kl = (answer_sums(other)[0] - other_reference).mean().clamp(min=0)
        count = sum(map(len, group))
        total, chosen, rejected = 0.0, [], []
        for micro in group:
            policy, _ = answer_sums([row[0] for _, row in micro])
            ratio = policy - references[[at for at, _ in micro]]
            good = torch.tensor([row[1] for _, row in micro])
            loss = torch.where(
                good,
                KTO["desirable_weight"] * (1 - torch.sigmoid(KTO["beta"] * (ratio - kl))),
                KTO["undesirable_weight"] * (1 - torch.sigmoid(KTO["beta"] * (kl - ratio))),
            )
            (loss.sum() / count).backward()
            total += loss.sum().item() / count
            for is_good, *values in zip(good, KTO["beta"] * ratio.detach(), policy.detach()):
                (chosen if is_good else rejected).append([value.item() for value in values])
        record = {"loss": total, "kl": kl.item()}
        means = [[sum(of) / len(of) for of in zip(*side)] for side in (chosen, rejected) if side]
        for name, side in (("chosen", chosen), ("rejected", rejected)):
            if side:
                record[f"rewards_{name}"], record[f"logps_{name}"] = means.pop(0)
        norm = torch.nn.utils.clip_grad_norm_(parameters, case["optim"]["clip_grad_norm"])
        records.append({**record, "grad_norm": norm.item(), "lr": optimizer.param_groups[0]["lr"]})
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad(set_to_none=True)
    return records


def check_steps(run, want, relative=RELATIVE):
    lines = step_lines(run)
    assert len(lines) == STEPS
    assert "reward_accuracy" in lines[0] or "kl" in lines[0]
    for line, record in zip(lines, want):
        for key, value in record.items():
            if key == "reward_accuracy" and line["step"] <= 2:
                continue  # the rate of step 1 is 0: all rewards are 0 up to rounding
            assert line[key] == pytest.approx(value, rel=relative, abs=1e-4), (line["step"], key)


@pytest.mark.parametrize(
    "name, family", [*((name, "qwen25_gqa") for name in OBJECTIVES), ("dpo", "qwen35_gqa")]
)
def test_twenty_steps_of_qwen(
    name,
    family,
    family_dir,  # noqa: F811
    family_adapter,  # noqa: F811
    images,
    tmp_path,
):
    rows, sides = pairs()
    start = family_adapter(family)
    path = test_families.make_recipe(
        family,
        tmp_path / "run",
        family_dir(family),
        write_rows(tmp_path / "rows.jsonl", rows),
        images,
        lora=dict(init_from=str(start)),
        objective=dict(name=name, **OBJECTIVES[name]),
    )
    lft("train", path)
    peer = test_families.FamilyPeer(family, family_dir(family), start, trainable=True)
    samples = [tuple(last_answer(peer.encode(side, images)) for side in pair) for pair in sides]
    optim = yaml.safe_load(path.read_text())["optim"]
    case = dict(optim=optim, batch_size=test_families.BATCH, grad_accum=1)
    check_steps(
        tmp_path / "run",
        train(name, peer.model, samples, case, lambda rows: family_sums(peer, rows)),
        # Norms after a gated delta rule amplify rounding where little was read.
        5 * RELATIVE if family == "qwen35_gqa" else RELATIVE,
    )


@pytest.mark.parametrize("name", OBJECTIVES)
def test_twenty_steps(name, model_dir, peft_adapter, images, tmp_path):
    case = CASES[CASE]
    rows, sides = pairs()
    adapter = peft_adapter(case["checkpoint"], case["adapter"])
    recipe = make_recipe(
        case,
        tmp_path / "run",
        model_dir(case["checkpoint"]),
        adapter,
        images,
        write_rows(tmp_path / "rows.jsonl", rows),
    )
    recipe["objective"] = dict(name=name, **OBJECTIVES[name])
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    lft("train", tmp_path / "recipe.yaml")

    peer = reference.Peer(model_dir(case["checkpoint"]), adapter, trainable=True)
    samples = [
        tuple(
            last_answer(peer.encode(side, images, case["template"], case["fit"])) for side in pair
        )
        for pair in sides
    ]
    want = train(name, peer.model, samples, case, lambda rows: answer_sums(peer.model, rows))
    check_steps(tmp_path / "run", want)
    check_tensors(
        reference.adapter_tensors(tmp_path / "run/adapter"),
        reference.trained_tensors(peer.model),
        sum(record["lr"] for record in want),
    )


def test_twenty_steps_of_kto(model_dir, peft_adapter, images, tmp_path):
    case = CASES[CASE]
    rows, labels, plain = labelled()
    adapter = peft_adapter(case["checkpoint"], case["adapter"])
    recipe = make_recipe(
        case,
        tmp_path / "run",
        model_dir(case["checkpoint"]),
        adapter,
        images,
        write_rows(tmp_path / "rows.jsonl", rows),
    )
    recipe["objective"] = dict(name="kto", **KTO)
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    lft("train", tmp_path / "recipe.yaml")

    peer = reference.Peer(model_dir(case["checkpoint"]), adapter, trainable=True)
    samples = [
        last_answer(peer.encode(row, images, case["template"], case["fit"])) for row in plain
    ]
    want = train_kto(peer.model, samples, labels, case, lambda rows: answer_sums(peer.model, rows))
    check_steps(tmp_path / "run", want)
    check_tensors(
        reference.adapter_tensors(tmp_path / "run/adapter"),
        reference.trained_tensors(peer.model),
        sum(record["lr"] for record in want),
    )


def test_twenty_steps_of_kto_of_qwen(family_dir, family_adapter, images, tmp_path):  # noqa: F811
    family = "qwen25_gqa"
    rows, labels, plain = labelled()
    start = family_adapter(family)
    path = test_families.make_recipe(
        family,
        tmp_path / "run",
        family_dir(family),
        write_rows(tmp_path / "rows.jsonl", rows),
        images,
        lora=dict(init_from=str(start)),
        objective=dict(name="kto", **KTO),
        train=dict(batch_size=4),
    )
    lft("train", path)
    peer = test_families.FamilyPeer(family, family_dir(family), start, trainable=True)
    samples = [last_answer(peer.encode(row, images)) for row in plain]
    case = dict(optim=yaml.safe_load(path.read_text())["optim"], batch_size=4, grad_accum=1)
    check_steps(
        tmp_path / "run",
        train_kto(peer.model, samples, labels, case, lambda rows: family_sums(peer, rows)),
    )


def test_a_pair_under_sft_and_a_row_under_dpo_are_refused(
    model_dir, peft_adapter, images, tmp_path
):
    case, (rows, _) = CASES[CASE], pairs()
    for objective, content, key in (("sft", rows, "objective.name"), ("dpo", ROWS, "sft")):
        recipe = make_recipe(
            case,
            tmp_path / objective,
            model_dir(case["checkpoint"]),
            peft_adapter(case["checkpoint"], case["adapter"]),
            images,
            write_rows(tmp_path / f"{objective}.jsonl", content),
        )
        recipe["objective"] = dict(name=objective)
        (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe))
        done = lft("train", tmp_path / "recipe.yaml", code=3)
        assert key in done.stderr, json.dumps(done.stderr)
