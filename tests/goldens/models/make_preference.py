#!/usr/bin/env python3
"""Writes preference.json: the losses that TRL 1.16.0 computes for pairs of answers with given
log-probabilities, pair by pair, and KTO's of the same answers as labelled rows of one batch, in
FP64.

TRL's own trainers are called; its packages that read data sets are replaced, since none is read:
  pip install --no-deps --target DIR trl==1.16.0
  PYTHONPATH=DIR .deps/venv/bin/python tests/goldens/models/make_preference.py
"""

import collections
import contextlib
import json
import pathlib
import sys
import types
from unittest.mock import MagicMock

import torch

for name in ("pandas", "datasets", "datasets.fingerprint"):
    sys.modules[name] = MagicMock(__spec__=MagicMock())
import trl  # noqa: E402
import trl.trainer.dpo_trainer  # noqa: E402
import trl.trainer.kto_trainer  # noqa: E402
from trl.experimental.cpo.cpo_trainer import CPOTrainer  # noqa: E402
from trl.experimental.orpo.orpo_trainer import ORPOTrainer  # noqa: E402

PAIRS, LONGEST = 6, 7
DPOTrainer = trl.trainer.dpo_trainer.DPOTrainer
KTOTrainer = trl.trainer.kto_trainer.KTOTrainer
trl.trainer.dpo_trainer.disable_gradient_checkpointing = lambda *_: contextlib.nullcontext()


def same(x):
    return x


def dpo(kind, beta, policy, reference):
    """DPOTrainer's loss of one pair; `policy` and `reference`: the two answers' tokens."""
    longest = max(map(len, policy))
    mask = torch.zeros(2, longest + 1)
    for row, answer in enumerate(policy):
        mask[row, 1 : 1 + len(answer)] = 1

    def model(of):
        padded = torch.stack(
            [torch.nn.functional.pad(answer, (0, longest - len(answer))) for answer in of]
        )
        zeros = torch.zeros_like(padded)
        return lambda **_: types.SimpleNamespace(
            log_probs=padded, entropy=zeros, mean_logits=zeros, is_top1=zeros.bool()
        )

    accelerator = types.SimpleNamespace(device="cpu", gather=same, gather_for_metrics=same)
    trainer = types.SimpleNamespace(
        model=torch.nn.Identity(),
        accelerator=accelerator,
        aux_loss_enabled=False,
        ld_alpha=None,
        precompute_ref_logps=False,
        args=types.SimpleNamespace(gradient_checkpointing_kwargs=None),
        ref_model=model(reference),
        f_divergence_type="reverse_kl",
        loss_types=[kind],
        loss_weights=[1.0],
        beta=beta,
        use_weighting=False,
        _metrics=collections.defaultdict(lambda: collections.defaultdict(list)),
        _total_train_tokens=0,
        _tp_size=1,
    )
    inputs = {
        "input_ids": torch.zeros(2, longest + 1, dtype=torch.long),
        "attention_mask": torch.ones(2, longest + 1),
        "completion_mask": mask,
    }
    loss = DPOTrainer._compute_loss(trainer, model(policy), inputs, return_outputs=False)
    return float(loss)


def simpo(beta, margin, policy):
    trainer = types.SimpleNamespace(
        alpha=0.0,
        accelerator=types.SimpleNamespace(device="cpu"),
        beta=beta,
        loss_type="simpo",
        simpo_gamma=margin * beta,
        label_smoothing=0.0,
    )
    means = [answer.mean().reshape(1) for answer in policy]
    return float(CPOTrainer.cpo_loss(trainer, *means)[0])


def orpo(beta, policy):
    trainer = types.SimpleNamespace(accelerator=types.SimpleNamespace(device="cpu"), beta=beta)
    means = [answer.mean().reshape(1) for answer in policy]
    return float(-means[0] - ORPOTrainer.odds_ratio_loss(trainer, *means)[0])


def kto(policy, reference, labels, kl_policy, kl_reference, **options):
    """KTOTrainer's loss of a batch and its metrics; the last two: sums of mismatched answers."""
    longest = max(map(len, policy))
    mask = torch.zeros(len(policy), longest + 1)
    for row, answer in enumerate(policy):
        mask[row, 1 : 1 + len(answer)] = 1
    padded = torch.stack(
        [torch.nn.functional.pad(answer, (0, longest - len(answer))) for answer in policy]
    )
    zeros = torch.zeros_like(padded)
    trainer = types.SimpleNamespace(
        model=torch.nn.Identity(),
        accelerator=types.SimpleNamespace(device="cpu", gather_for_metrics=same),
        aux_loss_enabled=False,
        calculate_KL=True,
        precompute_ref_logps=True,
        loss_type="kto",
        _compute_kl_logps=lambda *_: kl_policy,
        _metrics=collections.defaultdict(lambda: collections.defaultdict(list)),
        _total_train_tokens=0,
        _tp_size=1,
        **options,
    )
    inputs = {
        "input_ids": torch.zeros(len(policy), longest + 1, dtype=torch.long),
        "attention_mask": torch.ones(len(policy), longest + 1),
        "completion_mask": mask,
        "label": torch.tensor(labels),
        "ref_logps": torch.stack([answer.sum() for answer in reference]),
        "ref_KL_logps": kl_reference,
    }
    outputs = types.SimpleNamespace(log_probs=padded, entropy=zeros, mean_logits=zeros)
    loss = KTOTrainer._compute_loss(trainer, lambda **_: outputs, inputs, return_outputs=False)
    metrics = {name: values[-1] for name, values in trainer._metrics["train"].items()}
    kept = ("kl", "rewards/chosen", "rewards/rejected", "rewards/margins")
    return {
        "labels": labels,
        "options": options,
        "kl_policy": kl_policy.tolist(),
        "kl_reference": kl_reference.tolist(),
        "loss": float(loss),
        "metrics": {name: metrics[name] for name in (*kept, "logps/chosen", "logps/rejected")},
    }


def main():
    assert trl.__version__ == "1.16.0", trl.__version__
    generator = torch.Generator().manual_seed(7)
    pairs = []
    for _ in range(PAIRS):
        lengths = torch.randint(1, LONGEST + 1, (2,), generator=generator).tolist()
        answers = [
            -3 * torch.rand(length, generator=generator, dtype=torch.float64) for length in lengths
        ]
        reference = [
            answer + 0.7 * torch.randn(len(answer), generator=generator, dtype=torch.float64)
            for answer in answers
        ]
        pairs.append((answers, reference))
    golden = {
        "made_with": f"trl {trl.__version__}",
        "policy": [[answer.tolist() for answer in policy] for policy, _ in pairs],
        "reference": [[float(answer.sum()) for answer in reference] for _, reference in pairs],
        "losses": {
            "dpo": {"beta": 0.3, "of": [dpo("sigmoid", 0.3, *pair) for pair in pairs]},
            "ipo": {"beta": 0.3, "of": [dpo("ipo", 0.3, *pair) for pair in pairs]},
            "hinge": {"beta": 0.3, "of": [dpo("hinge", 0.3, *pair) for pair in pairs]},
            "apo_zero": {"beta": 0.25, "of": [dpo("apo_zero", 0.25, *pair) for pair in pairs]},
            "simpo": {"beta": 2.0, "of": [simpo(2.0, 0.5, policy) for policy, _ in pairs]},
            "orpo": {"beta": 0.3, "of": [orpo(0.3, policy) for policy, _ in pairs]},
        },
        "kto": [],
    }
    rows = [sum(each, start=[]) for each in zip(*pairs)]
    labels = [number % 3 != 1 for number in range(2 * PAIRS)]
    for shift in (0.4, -0.9):  # a KL divergence above 0, and one that is clamped
        kl_reference = -5 * torch.rand(2 * PAIRS, generator=generator, dtype=torch.float64)
        noise = 0.2 * torch.randn(2 * PAIRS, generator=generator, dtype=torch.float64)
        golden["kto"].append(
            kto(
                *rows,
                labels,
                kl_reference + shift + noise,
                kl_reference,
                beta=0.3,
                desirable_weight=1.25,
                undesirable_weight=0.75,
            )
        )
    path = pathlib.Path(__file__).parent / "preference.json"
    path.write_text(json.dumps(golden, indent=1) + "\n")


main()
