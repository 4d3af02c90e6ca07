#!/usr/bin/env python3
"""Writes preference.json: the losses that TRL 1.16.0 computes for pairs of answers with given
log-probabilities, pair by pair, in FP64.

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
from trl.experimental.cpo.cpo_trainer import CPOTrainer  # noqa: E402
from trl.experimental.orpo.orpo_trainer import ORPOTrainer  # noqa: E402

PAIRS, LONGEST = 6, 7
DPOTrainer = trl.trainer.dpo_trainer.DPOTrainer
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
            "simpo": {"beta": 2.0, "of": [simpo(2.0, 0.5, policy) for policy, _ in pairs]},
            "orpo": {"beta": 0.3, "of": [orpo(0.3, policy) for policy, _ in pairs]},
        },
    }
    path = pathlib.Path(__file__).parent / "preference.json"
    path.write_text(json.dumps(golden, indent=1) + "\n")


main()
