"""lft train and PyTorch peers: speed, memory, and the CUDA calls of a step."""

import gzip
import json
import pathlib
import shutil
import statistics

from . import cases, primitives
from .machine import (
    KEPT,
    ROOT,
    WORK,
    Deadline,
    Watch,
    card,
    environment,
    json_lines,
    paths,
    peer_environment,
    program,
    run,
    torch_libraries,
)

VERSIONS = """
import importlib, importlib.metadata, json, sys
for name in sys.argv[2:]:
    try:
        importlib.import_module(name)
        found = importlib.metadata.version(name)
    except Exception as error:
        found = f"cannot be imported: {type(error).__name__}: {error}"[:int(sys.argv[1])]
    print(json.dumps({name: found}), flush=True)
"""


def versions(args, names, deadline):
    """{module: its version, or the reason why it "cannot be imported"} of the peers' Python.
    One that hangs does not affect those before it."""
    if not names:
        return {}
    text, error = run(
        [args.python, "-c", VERSIONS, KEPT, *names], peer_environment(), min(120, deadline.left())
    )
    found = {name: f"cannot be imported: {error}" for name in names}
    for line in json_lines(text):
        found.update(line)
    return found


def ceilings(args, deadline):
    """Copy and matrix product rates of this GPU, measured by this Python's PyTorch;
    {"error": ...} on failure."""
    rows, error = primitives.part(args, "ceilings", min(90, deadline.left()))
    return rows[-1] if rows else {"error": error}


def run_folder():
    """Output folder of lft: in memory if the checkpoints of a rank-128 run fit,
    since no figure depends on the disk."""
    memory = pathlib.Path("/dev/shm")
    return (
        memory / "lft-bench-run"
        if memory.is_dir() and shutil.disk_usage(memory).free > 40e9
        else WORK / "run"
    )


def lft_command(args, case, side, steps, out):
    sets = {
        "output_dir": out,
        "model.path": cases.make_model(case["size"]),
        "model.init": "random",
        "model.base_dtype": "bf16",
        "data.train": cases.shards(args.build, case["size"], case["tokens"]),
        "data.template": "plain",
        "data.max_tokens": case["tokens"],
        "data.workers": 4,
        "full": "[]",
        "lora.rank": case["rank"],
        "lora.alpha": 2 * case["rank"],
        "lora.dropout": case["dropout"],
        "train.batch_size": case["batch"],
        "train.max_steps": steps,
        "train.deterministic": "false",
        "precision.compute": "bf16",
        "optim.lr": 1e-4,
        "data.eval": '""',
        "log.tensorboard": "false",
        "train.max_tokens_per_step": case["batch"] * case["tokens"],
        "checkpoint.at_step_zero": "false",
        "checkpoint.every_steps": 100000,
    }
    for option in side.split("+")[1:]:
        sets.update(cases.OPTIONS[option])
    command = [program(args.build, "lft"), "train", ROOT / "recipes/quickstart.yaml"]
    for key, value in sets.items():
        command += ["--set", f"{key}={value}"]
    return command


def peer_command(args, case, side, steps):
    shape = cases.SIZES[case["size"]]
    command = [
        args.python,
        ROOT / "scripts/bench/peft_llava.py",
        "--model",
        cases.make_model(case["size"]),
        "--random",
        "--device",
        args.device,
        "--dtype",
        "bfloat16",
        "--batch",
        case["batch"],
        "--text",
        case["tokens"] - shape["image"],
        "--images",
        int(shape["image"] > 0),
        "--pixels",
        shape["pixels"],
        "--supervised",
        case["supervised"],
        "--rank",
        case["rank"],
        "--dropout",
        case["dropout"],
        "--steps",
        steps,
    ]
    return command + cases.PEERS[side]


def lft_figures(out):
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    steps = [line for line in lines if "loss" in line]
    memory = next((line for line in lines if line.get("event") == "memory"), {})
    timed = [line["step_s"] for line in steps[min(5, len(steps) - 1) :]]
    return {
        "steps": len(steps),
        "tokens": steps[-1]["tokens"],
        "step_s": statistics.median(timed),
        "step_s_range": [min(timed), max(timed)],
        "tokens_per_s": steps[-1]["tokens"] / statistics.median(timed),
        "peak_reserved_gib": memory.get("peak_bytes", 0) / 2**30,
        "predicted_gib": memory.get("predicted_bytes", 0) / 2**30,
        "losses": [line["loss"] for line in steps],
    }


def measure(args, case, side, steps, timeout, injected=None):
    """Figures of one run in a separate process, or {"error": ...}. injected: (library, the variable
    that names its output file, that file), for a library that CUDA loads."""
    out = run_folder()
    shutil.rmtree(out, ignore_errors=True)
    ours = side.split("+")[0] == "lft"
    env = environment(args.build, args.python) if ours else peer_environment()
    if injected:
        library, variable, path = injected
        env.update(
            {"CUDA_INJECTION64_PATH": str(program(args.build, library)), variable: str(path)}
        )
        if not ours:  # the injected library finds CUPTI there, as it does in lft's environment
            env["LD_LIBRARY_PATH"] = paths(*torch_libraries(args.python)[1])
    command = (
        lft_command(args, case, side, steps, out)
        if ours
        else peer_command(args, case, side, steps) + (["--unwatched"] if injected else [])
    )
    before = card()
    with Watch() as watch:
        text, error = run(command, env, timeout)
    clocks = {"before": before, "after": card(), **watch.seen}
    try:
        figures = {"error": error} if error else lft_figures(out) if ours else json_lines(text)[-1]
    except Exception as failure:  # the other sides are still measured
        figures = {
            "error": f"{type(failure).__name__}: {failure}; last said {text.strip()[-KEPT:]!r}"
        }
    shutil.rmtree(out, ignore_errors=True)
    return {**figures, **clocks}


def guess_seconds(case, side, steps):
    """Time limit of a run: its operations at a conservative rate, plus start-up."""
    pace = {"lft": 5e14, "peft": 3e14, "peft+ckpt": 2.2e14, "peft+liger": 3.5e14, "unsloth": 3e14}[
        side if side in cases.PEERS else "lft"
    ]
    start = (
        22 if side in cases.PEERS else 100 if "nf4" in side else 20 + 0.15 * case["rank"]
    )  # NF4: 6.5 billion weights are quantized on the CPU
    return start + (steps + 3) * max(
        cases.useful_flops(case) / pace, 0.03 if side.startswith("lft") else 0.13
    )


def summary(case, runs, limits):
    """Medians of a side's successful runs, with the fraction of the GPU's dense BF16 rate measured
    in this record and as in the H100 and H200 datasheet (989)."""
    good = [run for run in runs if "error" not in run]
    if not good:
        return {"error": runs[-1]["error"]}
    speed = statistics.median(run["tokens_per_s"] for run in good)
    tflops = cases.useful_flops(case) / (case["batch"] * case["tokens"]) * speed / 1e12
    peaks = {
        key: max(run.get(key, 0) for run in good)
        for key in ("peak_reserved_gib", "peak_allocated_gib", "smi_peak_gib", "predicted_gib")
    }
    shares = (
        {"share_of_measured": tflops / limits["gemm_tflops"]} if "gemm_tflops" in limits else {}
    )
    return {
        "runs": len(good),
        "steps": good[0]["steps"],
        "tokens_per_s": speed,
        "range": [
            min(run["tokens_per_s"] for run in good),
            max(run["tokens_per_s"] for run in good),
        ],
        "step_ms": 1e3 * statistics.median(run["step_s"] for run in good),
        "tflops": tflops,
        **shares,
        "mfu_of_989": tflops / 989,
        **{key: value for key, value in peaks.items() if value},
    }


def summaries(runs, limits):
    """[{case, sides, over}] from {case: {side: [run]}}."""
    out = []
    for text, sides in runs.items():
        case = cases.parse_case(text)
        row = {
            **case,
            "flops_per_step": cases.useful_flops(case),
            "sides": {side: summary(case, done, limits) for side, done in sides.items()},
        }
        ours = row["sides"].get("lft", {}).get("tokens_per_s")
        row["over"] = {
            side: ours / figures["tokens_per_s"]
            for side, figures in row["sides"].items()
            if ours and side != "lft" and "tokens_per_s" in figures
        }
        out.append(row)
    return out


def compare(args, record):
    """The plan, or the requested cases, round by round: sides alternate, and the limit ends the
    list between two runs. Runs of an earlier record are kept and not repeated, including those that
    did not fit into GPU memory."""
    plan = cases.PLAN
    if args.cases:
        plan = [(case, args.sides, args.runs, None) for case in args.cases.split(",")]
    deadline, left_out = Deadline(args.minutes), []
    runs = (
        json.loads(args.after.read_text()).get("runs", {})
        if args.after and args.after.exists()
        else {}
    )
    cut = lambda done: done.get("error", "").startswith("took longer")
    limits = ceilings(args, deadline) if args.device == "cuda" else {}
    record.put(limits=limits)
    runs = {
        text: {
            side: kept
            for side, done in sides.items()
            if (kept := [run for run in done if not cut(run)])
        }
        for text, sides in runs.items()
    }
    had = {(text, side): len(done) for text, sides in runs.items() for side, done in sides.items()}
    modules = {
        cases.NEEDS[side]
        for _, sides, _, _ in plan
        for side in sides.split(",")
        if side in cases.NEEDS
    }
    peers = versions(args, ["transformers", *sorted(modules)] if modules else [], deadline)
    record.put(peers=peers)
    for text, sides, rounds, steps in plan:
        case = cases.parse_case(text)
        for _ in range(rounds):
            for side in sides.split(","):
                if (found := peers.get(cases.NEEDS.get(side), "")).startswith("cannot"):
                    left_out.append(f"{text} {side}: {cases.NEEDS[side]} {found}")
                    continue
                if any(
                    done.get("error", "").startswith("does not fit")
                    for done in runs.get(text, {}).get(side, [])
                ):
                    continue
                if had.get((text, side), 0) > 0:
                    had[text, side] -= 1
                    continue
                count = min(
                    steps or 10**9,
                    args.steps if side.startswith("lft") else args.peer_steps or args.steps,
                )
                if guess_seconds(case, side, count) > deadline.left():
                    left_out.append(f"{text} {side}: no time left")
                    continue
                done = measure(
                    args,
                    case,
                    side,
                    count,
                    timeout=min(deadline.left(), max(150, 3 * guess_seconds(case, side, count))),
                )
                runs.setdefault(text, {}).setdefault(side, []).append(done)
                print(
                    text,
                    side,
                    {
                        key: done.get(key)
                        for key in (
                            "error",
                            "tokens_per_s",
                            "step_s",
                            "peak_reserved_gib",
                            "smi_peak_gib",
                        )
                        if key in done
                    },
                    flush=True,
                )
                record.put(results=summaries(runs, limits), runs=runs, left_out=left_out)
    record.put(results=summaries(runs, limits), runs=runs, left_out=left_out)


COUNTED = [("7b:r16:s776:t1:d0", "lft,peft,lft+eager"), ("7b:r16:s1076:t16k:d0", "lft,peft+ckpt")]


def count(args, record):
    """Launches, waits, copies and host time of one step: the difference between a longer
    and a shorter run, divided by their steps."""
    deadline, short, more, rows = Deadline(args.minutes), 8, 12, []
    for text, sides in (
        [(case, args.sides) for case in args.cases.split(",")] if args.cases else COUNTED
    ):
        for side in sides.split(","):
            case, totals, failure = cases.parse_case(text), [], None
            for steps in (short, short + more):
                path = WORK / "counts.json"
                path.unlink(missing_ok=True)
                if deadline.left() < guess_seconds(case, side, steps):
                    failure = "no time left"
                    break
                injected = ("libcuda_counts.so", "LFT_CUDA_COUNTS", path)
                done = measure(args, case, side, steps, deadline.left(), injected)
                if "error" in done or not path.exists():
                    failure = done.get("error", "the counting library wrote nothing")
                    break
                totals.append(json.loads(path.read_text()))
            if failure:
                rows.append({"case": text, "side": side, "error": failure})
            else:
                step = {key: (totals[1][key] - totals[0][key]) / more for key in totals[0]}
                rows.append(
                    {
                        "case": text,
                        "side": side,
                        "per_step": step,
                        "host_ms": 1e3 * (step["wall_s"] - step["waited_s"]),
                    }
                )
            print(rows[-1], flush=True)
            record.put(per_step=rows)


TRACED = [("7b:r16:s1076:t16k:d0", "lft"), ("7b:r128:s1076:t16k:d0", "lft")]


def trace(args, record):
    """Every kernel of a run, in a file next to the record, and what a step consists of: the time of
    each kernel by name in the last step."""
    deadline, rows = Deadline(args.minutes), []
    for text, sides in (
        [(case, args.sides) for case in args.cases.split(",")] if args.cases else TRACED
    ):
        for side in sides.split(","):
            name = f"{text}-{side}".replace(":", "-").replace("+", "-")
            path = (args.out.parent if args.out else WORK) / f"trace-{name}.txt"
            injected = ("libcuda_trace.so", "LFT_CUDA_TRACE", path)
            done = measure(args, cases.parse_case(text), side, 8, deadline.left(), injected)
            row = {"case": text, "side": side, "step_ms": 1e3 * done.get("step_s", 0)}
            if "error" in done or not path.exists():
                row["error"] = done.get("error", "the tracing library wrote nothing")
            else:
                row.update(step_of(path.read_text().splitlines(), done["step_s"]))
                with gzip.open(f"{path}.gz", "wt") as packed:
                    packed.write(path.read_text())
                path.unlink()
            rows.append(row)
            record.put(traces=rows)


def step_of(lines, step_s):
    """The last whole step of a trace: kernels by name with count and milliseconds, and time with
    no kernel running."""
    names = {line.split(" ", 2)[1]: line.split(" ", 2)[2] for line in lines if line[0] == "="}
    kernels = [tuple(map(int, line.split())) for line in lines if line[0] != "="]
    end = kernels[-1][0] + kernels[-1][1]
    step = [kernel for kernel in kernels if kernel[0] > end - 1e9 * step_s]
    found, busy, until = {}, 0, 0
    for begin, took, _, _, name in step:
        count, total = found.get(names[str(name)], (0, 0))
        found[names[str(name)]] = (count + 1, total + took)
        busy += max(0, begin + took - max(begin, until))
        until = max(until, begin + took)
    by_time = sorted(found.items(), key=lambda item: -item[1][1])
    return {
        "launches": len(step),
        "busy_ms": busy / 1e6,
        "kernels": [
            {"ms": total / 1e6, "count": count, "name": name} for name, (count, total) in by_time
        ],
    }
