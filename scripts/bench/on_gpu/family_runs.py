"""A tiny random checkpoint of each family: trained and evaluated on a CPU where images can be
decoded, then on a GPU, and the two results compared.

  python family_runs.py OUT    writes the checkpoints and their rows (needs scripts/setup --peers)
"""

import concurrent.futures
import json
import os
import pathlib
import shutil
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from on_gpu.machine import ROOT, run

LIMIT_S = 600  # time limit of one program
STEPS, TOKENS, AT_ONCE = 4, 512, 8
CHECKPOINTS = [
    "plain",  # LLaVA-1.5
    "llava_qwen2_siglip",
    "next_mistral",
    "onevision",
    "qwen25_gqa",
    "qwen3_gqa",
    "qwen35_gqa",
    "smol_tied",
    "idefics3_shards",
    "gemma_gqa",
    "intern_gqa",
    "moe_gqa",  # Qwen3-VL with experts
    "moe35_gqa",
]
PACKED = {"train.max_tokens_per_step": 1024}
LOW = {"precision.compute": "bf16", "model.base_dtype": "bf16"}
WAYS = {  # differences from padded micro-batches in FP32
    "padded": {},
    "packed": PACKED,
    "recomputed": {"train.activation_checkpointing": "block"},
    "frozen tower": {**PACKED, "lora.targets": "[llm:all-linear]"},
    "bf16": {**PACKED, **LOW},
    "bf16 padded": LOW,
    "recovered": {**PACKED, "precision.compute": "fp16"},  # of a model that FP16 cannot compute
}
LARGE = 2.0**20


def write_checkpoints(out):
    """OUT/NAME/model and OUT/rows.jsonl with its photographs, by the builders of tests/peers."""
    sys.path.insert(0, str(ROOT / "tests/peers"))
    import checkpoints
    import conftest
    import families
    from cases import ROWS
    from tools import write_rows

    class Folders:
        @staticmethod
        def mktemp(name):
            (out / name).mkdir()
            return out / name

    conftest.images.__wrapped__(Folders)
    write_rows(out / "rows.jsonl", ROWS)
    for name in CHECKPOINTS:
        builder = checkpoints if name in checkpoints.SPECS else families
        (out / name).mkdir()
        builder.build(name, out / name / "model")
        write_large(out / name / "model", out / name / "recovered")


def write_large(model, out):
    """A copy of a checkpoint that computes the same in FP32 and BF16, and whose first attention
    exceeds FP16: its values are 2^20 times larger, and what is made of them smaller by as much."""
    import safetensors.torch

    shutil.copytree(model, out)
    files = {path: safetensors.torch.load_file(path) for path in sorted(out.glob("*.safetensors"))}
    tensors = {key: tensor for each in files.values() for key, tensor in each.items()}
    outputs = sorted(key for key in tensors if key.endswith("self_attn.o_proj.weight"))
    layer = outputs[0].removesuffix("o_proj.weight")
    tensors[layer + "o_proj.weight"].div_(LARGE)
    for part in ("weight", "bias"):
        if f"{layer}v_proj.{part}" in tensors:
            tensors[f"{layer}v_proj.{part}"].mul_(LARGE)
    for path, each in files.items():
        safetensors.torch.save_file(each, path, metadata={"format": "pt"})


def recipe(folder, name, way, out):
    fields = {
        "output_dir": out,
        "model.path": folder / name / ("recovered" if way == "recovered" else "model"),
        "model.base_dtype": "fp32",
        "data.train": folder / name / "shards",
        "data.shuffle": "false",
        "data.max_tokens": TOKENS,
        "data.workers": 1,
        "lora.rank": 4,
        "lora.alpha": 8,
        "lora.targets": "[llm:all-linear, vision:all-linear]",
        "optim.lr": 1e-3,
        "precision.compute": "fp32",
        "train.max_steps": STEPS,
        "train.batch_size": 4,
        "train.seed": 1,
        "log.tensorboard": "false",
        "log.answers": 0,
        "checkpoint.at_step_zero": "false",
        **WAYS[way],
    }
    path = pathlib.Path(f"{out}.yaml")
    path.write_text("version: 1\n")
    sets = [("--set", f"{key}={value}") for key, value in fields.items()]
    return [path, *(part for pair in sets for part in pair)]


def trained(lft, folder, name, way, work, call):
    """{losses, norms, events} of a run and, in FP32, the checkpoint's answers without the adapter.
    call(command) -> text."""
    out = work / f"{name}-{way.replace(' ', '-')}"
    shutil.rmtree(out, ignore_errors=True)
    call([lft, "train", *recipe(folder, name, way, out)])
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    steps = [line for line in lines if "loss" in line and "step" in line]
    found = {
        "losses": [line["loss"] for line in steps],
        "norms": [line["grad_norm"] for line in steps],
        "events": sorted({line["event"] for line in lines if "event" in line}),
    }
    if way == "padded":
        answers = work / f"{out.name}.jsonl"
        call(
            [
                *(lft, "eval", "--model", folder / name / "model", "--dtype", "fp32"),
                *("--data", folder / name / "shards", "--out", answers, "--max-new-tokens", 8),
            ]
        )
        rows = [json.loads(line) for line in answers.read_text().splitlines()]
        found["answers"] = [row["answer"] for row in rows]
    return found


def all_trained(lft, folder, work, call, ways=tuple(WAYS)):
    """{NAME: {WAY: result of trained() or {"error": ...}}}, a few runs at a time."""
    work.mkdir(parents=True, exist_ok=True)

    def one(name, way):
        try:
            return trained(lft, folder, name, way, work, call)
        except Exception as error:  # a failing run does not stop the others
            return {"error": str(error)}

    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        runs = {(name, way): pool.submit(one, name, way) for name in CHECKPOINTS for way in ways}
    found = {name: {} for name in CHECKPOINTS}
    for (name, way), future in runs.items():
        found[name][way] = future.result()
    return found


def faults(cpu, gpu):
    """One line per difference between GPU and CPU runs. FP32 computes the same sums in another
    order: two steps agree to 1e-5; after that Adam divides gradients near zero by their size, so
    their rounding moves weights: a packed CPU run differs by up to 2e-4 from a padded one. A BF16
    run may differ from the CPU's FP32 run by three times as much as the CPU's BF16 run."""
    lines = []
    distance = lambda a, b: sum(abs(x - y) for x, y in zip(a["losses"], b["losses"])) / STEPS
    for name, ways in cpu.items():
        for way, want in ways.items():
            got, where = gpu[name][way], f"{name}, {way}"
            if "error" in want or "error" in got:
                lines.append(f"{where}: {want.get('error') or got['error']}")
                continue
            if "bf16" in way:
                exact = ways["packed" if way == "bf16" else "padded"]
                most = 3 * distance(want, exact) + 2**-9 * exact["losses"][0]
                if not distance(got, exact) <= most:
                    lines.append(f"{where}: losses {got['losses']}, on the CPU {want['losses']}")
                continue
            if ("fp32_recovery" in got["events"]) != (way == "recovered"):
                lines.append(f"{where}: events {got['events']}")
            taken = STEPS - (way == "recovered")  # the step that was not finite updates nothing
            for key, tolerances in (("losses", (1e-5, 1e-3)), ("norms", (1e-4, 3e-2))):
                near = [
                    abs(a - b) <= tolerances[step > 1] * b
                    for step, (a, b) in enumerate(zip(got[key], want[key]))
                ]
                if not all(near) or len(got[key]) != taken:
                    lines.append(f"{where}: {key} {got[key]}, on the CPU {want[key]}")
            if got.get("answers") != want.get("answers"):
                lines.append(f"{where}: answers {got['answers']}, on the CPU {want['answers']}")
    return lines


def run_here(command):
    """The output of a program; RuntimeError with its last lines on failure."""
    text, error = run(command, {**os.environ, "OMP_NUM_THREADS": "1"}, LIMIT_S)
    if error:
        raise RuntimeError(f"{' '.join(map(str, command))}: {error}")
    return text


def prepare(lft, python, out, ways=tuple(WAYS)):
    """Writes checkpoints, prepared rows and this machine's CPU results into `out`."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    run_here([python, __file__, out])
    for name in CHECKPOINTS:
        command = [lft, "prepare", *recipe(out, name, "padded", out / "unused")]
        run_here(
            [
                *(*command, "--out", out / name / "shards"),
                *("--set", f"data.train={out / 'rows.jsonl'}"),
                *("--set", f"data.image_root={out / 'images'}"),
            ]
        )
    shutil.rmtree(out / "images")  # the prepared rows contain everything that is read
    cpu = all_trained(lft, out, out.with_name("families-cpu"), run_here, ways)
    (out / "cpu.json").write_text(json.dumps(cpu, indent=1))
    return out


if __name__ == "__main__":
    write_checkpoints(pathlib.Path(sys.argv[1]))
