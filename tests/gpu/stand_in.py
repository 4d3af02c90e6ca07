#!/usr/bin/env python3
"""Replaces every program that scripts/gpu and scripts/bench/gpu start on a machine with a GPU,
by the name it is called under. STAND_IN, a comma-separated list, injects faults: cpu (lft finds
no GPU), dies (lft doctor crashes), crash, long (a suite of test_gpu crashes, or fails with much
output), drift (losses differ from the CPU's)."""

import json
import os
import pathlib
import sys

NAME, GIVEN, HOW = (
    pathlib.Path(sys.argv[0]).name,
    sys.argv[1:],
    os.environ.get("STAND_IN", "").split(","),
)
SUITES = {
    "On/DeviceOps": ["Rope/gpu", "Rope/cpu"],
    "Crashing": ["Reads"],
    "DeviceMemory": ["Predicted"],
}


def counts():
    """Counts as written by the injected library: twice as many for a run of twenty steps as for one
    of eight and two more."""
    if path := os.environ.get("LFT_CUDA_COUNTS"):
        pathlib.Path(path).write_text(json.dumps({"launches": 10, "wall_s": 1.0, "waited_s": 0.5}))


def fields():
    return dict(part.split("=", 1) for part in GIVEN if "=" in part)


def lft():
    if GIVEN[0] == "doctor" and "dies" in HOW:
        os.abort()
    elif GIVEN[0] == "doctor":
        used = "cpu" if "cpu" in HOW else "cuda:0"
        print("a notice before it", file=sys.stderr)
        print(
            json.dumps(
                {
                    "device_used": used,
                    "gpu": "there is no NVIDIA driver" if used == "cpu" else None,
                    "problems": [],
                },
                indent=2,
            )
        )
    elif GIVEN[0] == "eval":
        if "--out" in GIVEN:
            answers = pathlib.Path(GIVEN[GIVEN.index("--out") + 1])
            answers.write_text(json.dumps({"answer": "seven"}) + "\n")
        print(json.dumps({"samples": 500, "exact_match": 0.95, "loss": 0.1}))
    elif GIVEN[0] == "train":
        if "per_process_memory_fraction" in os.environ.get("PYTORCH_CUDA_ALLOC_CONF", ""):
            print(
                "error: out of memory on cuda\n  language_model.model.layers.3\n  next: less",
                file=sys.stderr,
            )
            sys.exit(6)
        out, steps = pathlib.Path(fields()["output_dir"]), int(fields().get("train.max_steps", 12))
        out.mkdir(parents=True)
        lines = [{"event": "memory", "peak_bytes": 2**30, "predicted_bytes": 2**30}]
        recovered = fields().get("model.path", "").endswith("/recovered")
        if recovered:
            lines.append({"event": "fp32_recovery", "step": 1})
        lines += [
            {
                "step": i + 1,
                "loss": 1.0 if "drift" not in HOW else 1.1,
                "grad_norm": 2.0,
                "tokens": 16140,
                "step_s": 0.8,
                "precision": "bf16",
            }
            for i in range(recovered, steps)
        ]
        (out / "metrics.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n")
        counts()
        print("trained, says lft")


def gtest():
    chosen = next(part.split("=", 1)[1] for part in GIVEN if part.startswith("--gtest_filter="))
    if "--gtest_list_tests" in GIVEN:
        print("Running main() from a library's main")
        for suite, names in SUITES.items():
            print(suite + ".")
            print(
                "".join(
                    f'  {name}  # GetParam() = "{name}"\n'
                    for name in names
                    if not name.endswith("/cpu")
                ),
                end="",
            )
        return
    names = chosen.split(":")
    print(f"[==========] Running {len(names)} tests: {chosen}")
    if NAME == "test_gpu" and names[0].startswith("Crashing"):
        if "crash" in HOW:
            print("an illegal memory access was encountered", flush=True)
            os.abort()
        if "long" in HOW:
            print(
                "gpu/test.cpp:7: Failure\n"
                + "wrong " * 3000
                + "\n[  FAILED  ] Crashing.Reads\n\n 1 FAILED TEST"
            )
            sys.exit(1)
    if names[0].startswith("DeviceMemory"):
        print("padded: peak 1.5, predicted 1.6")
    print(f"[  PASSED  ] {len(names)} tests.")


def python():
    if GIVEN[0] == "-c" and "find_spec" in GIVEN[1]:
        print("9.9.9\n/nowhere/torch/lib")
    elif GIVEN[0] == "-c":
        for name in GIVEN[3:]:
            print(
                json.dumps(
                    {
                        name: "1.0"
                        if name in ("transformers", "peft")
                        else "cannot be imported: it is not there"
                    }
                )
            )
    elif GIVEN[0].endswith("primitives.py"):
        row = {
            "ceilings": {"card": "a card", "gemm_tflops": 790.0, "copy_tb_s": 4.3},
            "stock_chain": {"rank": 16, "unscale_clip_ms": 1.0, "adamw_ms": 1.0},
        }
        print(json.dumps(row.get(GIVEN[1], {"ms": 1.0})))
    else:
        assert GIVEN[0].endswith("peft_llava.py"), GIVEN
        counts()
        print(
            json.dumps(
                {
                    "steps": 20,
                    "tokens": 16140,
                    "step_s": 1.8,
                    "tokens_per_s": 9000.0,
                    "peak_reserved_gib": 60.0,
                }
            )
        )


def sanitizer():
    program = next(i for i, part in enumerate(GIVEN) if pathlib.Path(part).is_absolute())
    os.execv(GIVEN[program], GIVEN[program:])


def kernel_bench():
    print(json.dumps({"kernel": "grad_stats, r=16", "ms": 0.1}))
    print(json.dumps({"kernel": "grad_stats + adamw, r=16", "ms": 0.5}))


{
    "lft": lft,
    "test_kernels": gtest,
    "test_gpu": gtest,
    "python": python,
    "compute-sanitizer": sanitizer,
    "kernel_bench": kernel_bench,
}[NAME]()
