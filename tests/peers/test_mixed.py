"""Two hundred steps of lft train in FP16 and BF16 against PEFT under autocast and GradScaler,
FP32 adapters on both sides, without dropout.

Losses: lft may differ from PEFT by no more than PEFT from itself when every element of its initial
adapter moves by one BF16 ulp. Small rows, many of them and a low learning rate: the difference is
then an average over many roundings, not the amplification of a chaotic run.

Skips: two runs whose gradients approach FP16's limit diverge permanently once only one of them
skips; after that scale, schedule and weights are incomparable. So PEFT is driven: at every
step it uses lft's scale, and it takes the step if lft took it. The comparison is whether PEFT's
gradients overflow there. The scale is a factor of every intermediate gradient, so the largest of
them is 2x beyond the limit exactly when they overflow at half the scale as well: there lft must
skip. And lft may skip only where PEFT overflows; both sides round, so PEFT may be below the
limit by the rounding loss of FP16 in a chain of operations. The scale grows early and fast, so that
a run meets both sides of the limit dozens of times.
"""

import math

import pytest
import torch
import yaml

import reference
from cases import ROWS, make_recipe
from tools import event_lines, lft, metrics, write_rows

STEPS = 200
DTYPES = dict(fp16=torch.float16, bf16=torch.bfloat16, fp32=torch.float32)
SCALE = dict(init=65536.0, growth_factor=8.0, backoff_factor=0.5, growth_interval=6)
OPTIM = dict(lr=2e-4, schedule="cosine", warmup_ratio=0.05, weight_decay=0.02, clip_grad_norm=1.0)
# Two hundred roundings of up to 2^-11, on both sides between the loss and a gradient,
# as a random walk.
CHAIN = 16 * 2.0**-11

CASES = {
    "fp16_every_tower": dict(
        compute="fp16",
        base="fp16",
        checkpoint="head_dim_bias",
        adapter="rslora_everywhere",
        grad_accum=1,
    ),
    "fp16_accumulated_over_an_fp32_base": dict(
        compute="fp16", base="fp32", checkpoint="gqa_tied", adapter="llm", grad_accum=2
    ),
    "bf16_every_tower": dict(
        compute="bf16",
        base="bf16",
        checkpoint="head_dim_bias",
        adapter="rslora_everywhere",
        grad_accum=1,
    ),
    "bf16_over_an_fp32_base": dict(
        compute="bf16", base="fp32", checkpoint="gqa_tied", adapter="llm", grad_accum=1
    ),
}
FP16_CASES = [name for name, case in CASES.items() if case["compute"] == "fp16"]


def many_rows():
    """Each row of the tests five times, with another last answer each time."""
    rows = []
    for number, start in enumerate(
        [
            "",
            "Yes. ",
            "The chair and the table. ",
            "It is 1 2 3 orange. ",
            "In a temple by the river. ",
        ]
    ):
        for row in ROWS:
            *turns, last = row["conversations"]
            rows.append(
                row
                | dict(
                    id=f"{row['id']}-{number}",
                    conversations=[*turns, last | dict(value=start + last["value"])],
                )
            )
    return rows


class Peft:
    """The case's model in PEFT and the batches of its steps."""

    def __init__(self, case, model_dir, adapter, images, moved_by=None):
        self.compute = DTYPES[case["compute"]]
        peer = reference.Peer(model_dir, adapter, trainable=True, dtype=DTYPES[case["base"]])
        self.model = peer.model.train()
        self.parameters, self.optimizer, self.scheduler = reference.make_optimizer(
            self.model, OPTIM, STEPS
        )
        assert {parameter.dtype for parameter in self.parameters} == {torch.float32}
        assert peer.model.get_input_embeddings().weight.dtype == DTYPES[case["base"]]
        if moved_by is not None:
            self.move_by_one_bf16_ulp(moved_by)
        samples = [peer.encode(row, images) for row in many_rows()]
        self.groups = reference.step_batches(samples, 1, case["grad_accum"], STEPS)

    def move_by_one_bf16_ulp(self, seed):
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for parameter in self.parameters:
                _, exponent = torch.frexp(parameter)  # a significand in [0.5, 1), of eight bits
                direction = torch.randint(0, 2, parameter.shape, generator=generator) * 2.0 - 1.0
                parameter.add_(torch.ldexp(direction, exponent - 8))

    def backward(self, group, scaled):
        """Gradients of the group's scaled loss, starting from none; returns the loss."""
        self.optimizer.zero_grad(set_to_none=True)
        supervised, total = reference.supervised_tokens(group), 0.0
        for micro in group:
            with torch.autocast("cpu", dtype=self.compute):
                loss = reference.sum_loss(self.model, micro) / supervised
            scaled(loss).backward()
            total += loss.item()
        return total

    def gradients(self):
        return [parameter.grad for parameter in self.parameters if parameter.grad is not None]

    def overflows(self, group, scale):
        self.backward(group, lambda loss: loss * scale)
        return not all(gradient.isfinite().all() for gradient in self.gradients())

    def train(self):
        """Undriven, with autocast and GradScaler as intended;
        returns one record per step."""
        scaler = torch.amp.GradScaler(
            "cpu",
            init_scale=SCALE["init"],
            growth_factor=SCALE["growth_factor"],
            backoff_factor=SCALE["backoff_factor"],
            growth_interval=SCALE["growth_interval"],
            enabled=self.compute == torch.float16,
        )
        records = []
        for group in self.groups:
            scale, lr = scaler.get_scale(), self.optimizer.param_groups[0]["lr"]
            loss = self.backward(group, scaler.scale)
            scaler.unscale_(self.optimizer)
            torch.nn.utils.clip_grad_norm_(self.parameters, OPTIM["clip_grad_norm"])
            scaler.step(self.optimizer)
            scaler.update()
            skipped = scaler.get_scale() < scale
            if not skipped:
                self.scheduler.step()
            records.append(dict(loss=loss, scale=scale, lr=lr, skipped=skipped))
        return records

    def follow(self, lines):
        """Repeats lft's steps; returns for each whether PEFT's gradients overflow just above lft's
        scale and at half of it."""
        records = []
        for group, line in zip(self.groups, lines, strict=True):
            scale, lr = line["loss_scale"], self.optimizer.param_groups[0]["lr"]
            near = self.overflows(group, scale * (1 + CHAIN))
            far = self.overflows(group, scale / 2)
            records.append(dict(near=near, far=far, lr=lr))
            if skipped(line) or far:
                continue
            for gradient in self.gradients():
                gradient.div_(scale / 2)
            torch.nn.utils.clip_grad_norm_(self.parameters, OPTIM["clip_grad_norm"])
            self.optimizer.step()
            self.scheduler.step()
        return records


def skipped(line):
    return line.get("event") == "step_skipped"


@pytest.fixture(scope="module")
def run(model_dir, peft_adapter, images, tmp_path_factory):
    """case -> lft's output directory, its line per step, and a factory of PEFT's side;
    lft runs once per module."""
    done = {}

    def get(name):
        if name not in done:
            case, folder = CASES[name], tmp_path_factory.mktemp(name)
            base, adapter = (
                model_dir(case["checkpoint"]),
                peft_adapter(case["checkpoint"], case["adapter"]),
            )
            rows = write_rows(folder / "rows.jsonl", many_rows())
            shared = dict(case, template="llava-v1", fit="pad", batch_size=1, optim=OPTIM)
            recipe = make_recipe(shared, folder / "run", base, adapter, images, rows)
            recipe["model"]["base_dtype"] = case["base"]
            recipe["precision"] = dict(compute=case["compute"], loss_scale=SCALE)
            recipe["train"]["max_steps"] = STEPS
            recipe |= dict(
                checkpoint=dict(every_steps=1000), log=dict(tensorboard=False, answers=0)
            )
            (folder / "recipe.yaml").write_text(yaml.safe_dump(recipe))
            lft("train", folder / "recipe.yaml")
            lines = [
                line for line in metrics(folder / "run") if "event" not in line or skipped(line)
            ]
            free = Peft(case, base, adapter, images).train()
            done[name] = (
                folder / "run",
                lines,
                free,
                lambda moved_by=None: Peft(case, base, adapter, images, moved_by),
            )
        return done[name]

    return get


@pytest.mark.parametrize("name", CASES)
def test_a_run_stays_finite_and_in_its_precision(name, run):
    out, lines, free, _ = run(name)
    compute = CASES[name]["compute"]
    assert [line["step"] for line in lines] == list(range(1, STEPS + 1))
    assert event_lines(out, "fp32_recovery") == [] and event_lines(out, "stopped") == []
    taken = [line for line in lines if not skipped(line)]
    assert all(
        line["precision"] == compute
        and math.isfinite(line["loss"])
        and math.isfinite(line["grad_norm"])
        for line in taken
    )
    assert all(math.isfinite(record["loss"]) for record in free)
    if compute == "bf16":
        assert len(taken) == STEPS and {line["loss_scale"] for line in lines} == {1}
        assert [line["lr"] for line in lines] == pytest.approx(
            [record["lr"] for record in free], rel=1e-6, abs=1e-12
        )


@pytest.mark.parametrize("name", FP16_CASES)
def test_lft_skips_where_peft_overflows(name, run):
    _, lines, free, make = run(name)
    led = make().follow(lines)
    for line, record in zip(lines, led, strict=True):
        assert not skipped(line) or record["near"], (
            f"step {line['step']}: lft skips, PEFT is far from overflowing"
        )
        assert skipped(line) or not record["far"], (
            f"step {line['step']}: lft takes it, PEFT overflows at half the scale"
        )
        assert skipped(line) or line["lr"] == pytest.approx(
            record["lr"], rel=1e-6, abs=1e-12
        )  # a skip does not advance the schedule
    # Both kinds of steps that are clearly off the limit, many times.
    assert (
        sum(record["far"] for record in led) >= 10
        and sum(not record["near"] for record in led) >= 100
    )

    # Undriven, PEFT follows the same path, scale by scale, until a step within 2x
    # of the limit separates them.
    parted = next(
        (
            at
            for at, (line, record) in enumerate(zip(lines, free))
            if skipped(line) != record["skipped"]
        ),
        None,
    )
    assert [line["loss_scale"] for line in lines[:parted]] == [
        record["scale"] for record in free[:parted]
    ]
    assert parted is None or (led[parted]["near"] and not led[parted]["far"])


def mean_difference(left, right):
    """Over the steps that both took."""
    both = [abs(x - y) for x, y in zip(left, right, strict=True) if x is not None and y is not None]
    assert len(both) >= STEPS / 2
    return sum(both) / len(both)


@pytest.mark.parametrize("name", CASES)
def test_losses_are_as_near_as_an_ulp_of_the_adapter(name, run):
    _, lines, free, make = run(name)
    losses = lambda records: [None if record["skipped"] else record["loss"] for record in records]
    ours, peft = [line.get("loss") for line in lines], losses(free)
    moved = [mean_difference(peft, losses(make(moved_by=seed).train())) for seed in (1, 2)]
    assert min(moved) > 0
    assert mean_difference(ours, peft) <= sum(moved) / len(moved)
