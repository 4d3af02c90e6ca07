"""Two hundred steps of lft and of PEFT from one adapter over the same batches, in BF16: the
distance of their losses, relative to PEFT's distance from itself when every element of its first
adapter is moved by one BF16 ulp. A single distance is one sample, so both train several moved
adapters: the mean over all pairs of an lft run and a PEFT run is compared with the mean over all
pairs of PEFT runs. Both read prepared rows, in their order, without dropout.

With a low learning rate and a random B, as in tests/peers/test_mixed.py, the difference is an
average over many roundings. At the quickstart's learning rate a run amplifies any difference, and
a fresh B of zeros has no ulp to be moved by: that base is included to show it."""

import itertools
import json
import math
import shutil
import statistics
import time

from . import cases
from .machine import KEPT, ROOT, WORK, Deadline, environment, processor, program, run

STEPS = 200
TARGETS = r".*language_model.*\.(q_proj|k_proj|v_proj|o_proj|gate_proj|up_proj|down_proj)"
SEEDS = (1, 2, 3, 4, 5)  # seeds of the moved adapters, within the time limit
QUICKSTART = dict(
    model="quickstart",
    rank=16,
    batch=32,
    projector=True,
    lr=2e-4,
    decay=0.1,
    warmup=0.05,
    max_tokens=256,
    template="llava-hf",
    drawn=True,
)
BASES = {
    "quickstart": QUICKSTART,
    "quickstart-as-it-is": {**QUICKSTART, "lr": 2e-3, "drawn": False},
    "1b-digits": dict(
        model="1b-digits",
        rank=16,
        batch=4,
        projector=False,
        lr=2e-4,
        decay=0.0,
        warmup=0.03,
        max_tokens=256,
        template="llava-hf",
        drawn=True,
    ),
    "1b": dict(
        model="1b",
        rank=16,
        batch=4,
        projector=False,
        lr=2e-4,
        decay=0.0,
        warmup=0.03,
        max_tokens=1076,
        template="plain",
        drawn=True,
    ),
}


def quickstart_shards(args):
    """Prepared digits of a packed build, otherwise prepared here."""
    out = cases.packed(args.build, "quickstart-train") or WORK / "quickstart-train"
    if not out.exists():
        _, error = run(
            [program(args.build, "lft"), "prepare", ROOT / "recipes/quickstart.yaml", "--out", out],
            environment(args.build, args.python),
            600,
        )
        if error:
            raise SystemExit(error)
    return out


class Rows:
    """A prepared folder's samples as tensors."""

    def __init__(self, path, mean, std):
        import torch
        from safetensors.torch import load_file

        self.samples = []
        self.mean, self.std = (torch.tensor(part).view(1, 3, 1, 1) for part in (mean, std))
        for shard in sorted(path.glob("shard-*.safetensors")):
            t = load_file(shard)
            for i in range(len(t["offsets"]) - 1):
                text, image = (
                    slice(t["offsets"][i], t["offsets"][i + 1]),
                    slice(t["image_offsets"][i], t["image_offsets"][i + 1]),
                )
                self.samples.append((t["input_ids"][text], t["labels"][text], t["pixels"][image]))

    def batches(self, size, count):
        """Batches in file order; the last batch of each epoch may be short."""
        epoch = [self.samples[at : at + size] for at in range(0, len(self.samples), size)]
        return [epoch[step % len(epoch)] for step in range(count)]

    def collate(self, samples, pad, device):
        import torch

        width = max(len(ids) for ids, _, _ in samples)
        fill = lambda part, value: torch.stack(
            [torch.nn.functional.pad(row, (0, width - len(row)), value=value) for row in part]
        )
        pixels = torch.cat([image for _, _, image in samples]).float()
        batch = dict(
            input_ids=fill([s[0] for s in samples], pad),
            attention_mask=fill([torch.ones_like(s[0]) for s in samples], 0),
            labels=fill([s[1] for s in samples], -100),
            pixel_values=(pixels - 255 * self.mean) / (255 * self.std),
        )
        return {key: value.to(device) for key, value in batch.items()}


def drawn_config(name):
    """The quickstart with a decoder of 1b's shape and short rows for CPU training; or 1b itself."""
    if name != "1b-digits":
        return cases.make_model(name)
    config = json.loads((ROOT / "recipes/quickstart/model/config.json").read_text())
    config["text_config"].update(cases.SIZES["1b"]["text"])
    path = WORK / name
    path.mkdir(parents=True, exist_ok=True)
    (path / "config.json").write_text(json.dumps(config, indent=2))
    return path


def base_model(name, args):
    """Folder of the base: the embedded one, or one initialised once and saved,
    so that both sides read the same weights."""
    if name == "quickstart":
        return ROOT / "recipes/quickstart/model"
    import torch
    from transformers import LlavaConfig, LlavaForConditionalGeneration

    path = WORK / f"{name}-drawn"
    if not (path / "config.json").exists():
        torch.manual_seed(0)
        torch.set_default_dtype(torch.bfloat16)
        with torch.device(args.device):
            model = LlavaForConditionalGeneration._from_config(
                LlavaConfig.from_pretrained(drawn_config(name))
            )
        torch.set_default_dtype(torch.float32)
        model.save_pretrained(path, max_shard_size="50GB")
        for file in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copy(ROOT / "recipes/quickstart/model" / file, path)
    return path


def peft_model(base, setting, device, moved_by=None):
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import LlavaForConditionalGeneration

    torch.manual_seed(1)
    model = LlavaForConditionalGeneration.from_pretrained(
        base, dtype=torch.bfloat16, attn_implementation="sdpa"
    ).to(device)
    model = get_peft_model(
        model,
        LoraConfig(
            r=setting["rank"],
            lora_alpha=2 * setting["rank"],
            lora_dropout=0.0,
            target_modules=TARGETS,
            modules_to_save=["multi_modal_projector"] if setting["projector"] else None,
        ),
    )
    generator = torch.Generator().manual_seed(7)
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            parameter.data = parameter.data.float()
            if setting["drawn"] and "lora_" in name:
                parameter.data.copy_(
                    torch.randn(parameter.shape, generator=generator)
                    * (0.5 / parameter.shape[1] ** 0.5)
                )
    if moved_by is not None:
        move_by_one_bf16_ulp(
            [parameter for parameter in model.parameters() if parameter.requires_grad], moved_by
        )
    return model.train()


def move_by_one_bf16_ulp(parameters, seed):
    """Moves each element up or down at random; a zero (all of a fresh B) stays unchanged."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in parameters:
            _, exponent = torch.frexp(parameter)  # a significand in [0.5, 1) with eight bits
            direction = (
                torch.randint(0, 2, parameter.shape, generator=generator).to(parameter.device) * 2.0
                - 1.0
            )
            parameter.add_(
                torch.where(
                    parameter == 0,
                    torch.zeros_like(parameter),
                    torch.ldexp(direction, exponent - 8),
                )
            )


def peft_losses(model, setting, rows, device):
    import torch
    from transformers import get_cosine_schedule_with_warmup

    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(
        parameters, lr=setting["lr"], betas=(0.9, 0.999), eps=1e-8, weight_decay=setting["decay"]
    )
    schedule = get_cosine_schedule_with_warmup(
        optimizer, math.ceil(setting["warmup"] * STEPS), STEPS
    )
    losses = []
    for samples in rows.batches(setting["batch"], STEPS):
        batch = rows.collate(samples, 0, device)
        labels = batch.pop("labels")
        with torch.autocast(device, dtype=torch.bfloat16):
            logits = model(**batch).logits.float()
        loss = torch.nn.functional.cross_entropy(
            logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), ignore_index=-100
        )
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())
    return losses


def lft_losses(args, base, adapter, setting, data, timeout):
    out = WORK / "losses-run"
    shutil.rmtree(out, ignore_errors=True)
    sets = {
        "output_dir": out,
        "model.path": base,
        "model.base_dtype": "bf16",
        "lora.init_from": adapter,
        "lora.rank": setting["rank"],
        "lora.alpha": 2 * setting["rank"],
        "lora.dropout": 0.0,
        "full": "[projector]" if setting["projector"] else "[]",
        "data.train": data,
        "data.eval": '""',
        "data.template": setting["template"],
        "data.max_tokens": setting["max_tokens"],
        "data.shuffle": "false",
        "optim.lr": setting["lr"],
        "optim.weight_decay": setting["decay"],
        "optim.warmup_ratio": setting["warmup"],
        "precision.compute": "bf16",
        "train.max_steps": STEPS,
        "train.batch_size": setting["batch"],
        "log.tensorboard": "false",
        "checkpoint.every_steps": 100000,
    }
    command = [program(args.build, "lft"), "train", ROOT / "recipes/quickstart.yaml"]
    for key, value in sets.items():
        command += ["--set", f"{key}={value}"]
    _, error = run(command, environment(args.build, args.python), timeout)
    if error:
        raise RuntimeError(error)
    return [
        line["loss"]
        for line in map(json.loads, (out / "metrics.jsonl").read_text().splitlines())
        if "loss" in line
    ]


def apart(left, right):
    return statistics.fmean(abs(x - y) for x, y in zip(left, right, strict=True))


def share_of_bound(ours, peft):
    """Mean distance between lft's and PEFT's runs divided by the mean distance among PEFT's."""
    return statistics.fmean(
        itertools.starmap(apart, itertools.product(ours, peft))
    ) / statistics.fmean(itertools.starmap(apart, itertools.combinations(peft, 2)))


def by_chance(ours, peft):
    """Fraction of random relabellings of the runs as lft's
    for which the ratio is at least as large."""
    runs, picks = (
        [*ours, *peft],
        list(itertools.combinations(range(len(ours) + len(peft)), len(ours))),
    )
    shares = [
        share_of_bound(
            [runs[i] for i in pick], [run for i, run in enumerate(runs) if i not in pick]
        )
        for pick in picks
    ]
    return sum(share >= share_of_bound(ours, peft) for share in shares) / len(shares)


def run_both(args, base, setting, data, rows, moved_by, deadline):
    """Losses of both sides from the same adapter."""
    adapter = WORK / "losses-adapter"
    shutil.rmtree(adapter, ignore_errors=True)
    model = peft_model(base, setting, args.device, moved_by)
    model.save_pretrained(adapter)
    peft = peft_losses(model, setting, rows, args.device)
    del model
    return lft_losses(args, base, adapter, setting, data, deadline.left()), peft


def compare_base(args, name, deadline):
    setting = BASES[name]
    base = base_model(setting["model"], args)
    data = (
        cases.shards(args.build, "1b", 1076)
        if setting["model"] == "1b"
        else quickstart_shards(args)
    )
    made_for = json.loads((data / "index.json").read_text())["made_for"]
    rows = Rows(data, made_for["image_mean"], made_for["image_std"])
    runs = []
    for moved_by in (None, *SEEDS):
        began = time.monotonic()
        runs.append(run_both(args, base, setting, data, rows, moved_by, deadline))
        if len(runs) > 1 and deadline.left() < 1.2 * (time.monotonic() - began):
            break
    if len(runs) < 2:
        raise RuntimeError("no time for a moved adapter")
    ours, peft = zip(*runs)
    from_itself = [apart(*pair) for pair in itertools.combinations(peft, 2)]
    share, bound = share_of_bound(ours, peft), statistics.fmean(from_itself)
    return {
        "steps": len(ours[0]),
        **setting,
        "adapters": len(runs),
        "lft_from_peft": share * bound,
        "peft_from_itself_one_ulp_away": bound,
        "share_of_bound": share,
        "as_large_by_chance": by_chance(ours, peft) if len(runs) > 2 else None,
        "from_the_same_adapter": [apart(*pair) for pair in runs],
        "each_peft_from_itself": from_itself,
        "losses": {
            side: [[round(loss, 5) for loss in series] for series in all_series]
            for side, all_series in {"lft": ours, "peft": peft}.items()
        },
    }


def compare(args, record):
    deadline, results = Deadline(args.minutes), {}
    for name in (
        args.cases
        or (
            "quickstart,1b-digits,quickstart-as-it-is"
            if args.device == "cpu"
            else "quickstart,1b,quickstart-as-it-is"
        )
    ).split(","):
        try:
            results[name] = (
                compare_base(args, name, deadline)
                if args.device == "cpu" or deadline.left() > 90
                else {"error": "no time left"}
            )
        except Exception as error:  # the other base is still compared
            results[name] = {"error": f"{type(error).__name__}: {error}"[:KEPT]}
        print(
            name,
            {key: value for key, value in results[name].items() if key != "losses"},
            flush=True,
        )
        record.put(cpu=processor(), device=args.device, losses=results)
