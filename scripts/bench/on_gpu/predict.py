"""What a step of lft consists of on a card: operations, bytes, launches and the expected time of
each part, and next to it the time that a trace found."""

import json
import pathlib
import re

from . import cases

# Rates that a step's frozen products and a copy reach: measured on an H200 at its 700 W limit
# (scripts/bench/results/gpu-train.json, gpu-kernels.json), and the same shares of an H100's.
CARDS = {
    "h200": {"tflops": 672, "tb_s": 4.26},
    "h100": {"tflops": 672, "tb_s": 2.97},
}
ATTENTION_SHARE = 0.42  # of that rate: cuDNN's attention, forward and backward, measured
LAUNCH_US = 1.5  # between two dependent kernels of a graph
PARTS = {  # the first pattern that a kernel's name contains
    "attention": r"flash|sdpa|fmha",
    "norms": r"rms_norm",
    "rotary positions": r"rope",
    "SwiGLU": r"swiglu",
    "head's softmax": r"token_logprob",
    "vision tower, without its products": r"layer_norm|quick_gelu|conv|im2col",
    "update and checks": r"adamw|grad_stats|multi_tensor",
    "low-rank products": r"splitK|nvjet_\w+?_tst_(?:(?:8|16|24|32|48|64|96)x\d+|\d+x(?:8|16|32))_",
    "frozen products": r"nvjet|gemm|cutlass|xmma",
}


def part_of(kernel):
    """The part of a step that a kernel belongs to, by its name."""
    found = (part for part, pattern in PARTS.items() if re.search(pattern, kernel))
    return next(found, "the rest")


def work(case):
    """{part: (operations, bytes, launches)} of a packed step without dropout and recomputation. The
    last layer's output projection and MLP, and the head, run on the positions before supervised
    tokens only; the first layer's queries, keys and values need no gradient of their input."""
    shape = cases.SIZES[case["size"]]
    t = shape["text"]
    d, inner, layers = t["hidden_size"], t["intermediate_size"], t["num_hidden_layers"]
    rows, tokens, rank = case["batch"], case["tokens"], case["rank"]
    positions, kept = rows * tokens, rows * case["supervised"]
    linear = cases.modules(shape)
    q, kv = linear[0][1], linear[1][1]
    sizes = [i * o for i, o in linear]
    # Of each module: positions of the forward and of the backward pass, over all layers.
    passes = [positions * (2 * layers - 1)] * 3 + [2 * (positions * (layers - 1) + kept)] * 4
    frozen = sum(2 * size * times for size, times in zip(sizes, passes))
    frozen += 2 * 2 * d * shape["vocab"] * kept
    chunks = -(-kept // 1024)
    tower = rows * cases.vision_flops(case["size"])
    low, moved = 0, 0
    for (i, o), times in zip(linear, passes):
        low += 3 * rank * (i + o) * times
        # x, the product that the frozen one adds to, its gradient twice, x again, x's gradient.
        moved += 2 * times * 1.5 * (i + o)
    norm = 2 * layers * positions * d * 2
    return {
        "frozen products": (frozen + tower, 0, 14 * layers - 3 + 2 * chunks + 200),
        "low-rank products": (low, moved, 35 * layers),
        "attention": (3.5 * 2 * rows * tokens**2 * q * layers, 0, 5 * layers),
        "norms": (0, 8 * norm, 4 * layers),
        "rotary positions": (0, 2 * 2 * 2 * positions * (q + kv) * layers, 4 * layers),
        "SwiGLU": (0, 2 * 9 * inner * (positions * (layers - 1) + kept), 2 * layers),
        "head's softmax": (0, 2 * 2 * kept * shape["vocab"], chunks),
    }


def times(case, card):
    """{part: (operations, bytes, launches, milliseconds)}"""
    rate = CARDS[card]
    found = {}
    for part, (operations, moved, launches) in work(case).items():
        speed = rate["tflops"] * (ATTENTION_SHARE if part == "attention" else 1)
        limit = max(operations / speed / 1e9, moved / rate["tb_s"] / 1e9)
        found[part] = (operations, moved, launches, limit + launches * LAUNCH_US / 1e3)
    return found


def traced(kernels):
    """{part: (launches, milliseconds)} of a traced step."""
    found = {}
    for kernel in kernels:
        launches, took = found.get(part := part_of(kernel["name"]), (0, 0))
        found[part] = (launches + kernel["count"], took + kernel["ms"])
    return found


def table(case, card, kernels=None):
    """Lines: a header, each part and the sum."""
    predicted, measured = times(case, card), traced(kernels or [])
    lines = [f"{'part':36}{'GFLOP':>10}{'GB':>8}{'launches':>10}{'ms':>9}"]
    lines[0] += f"{'traced':>10}{'ms':>9}{'ratio':>8}" if kernels else ""
    parts = [*predicted, *(part for part in measured if part not in predicted)]
    for part in parts:
        operations, moved, launches, took = predicted.get(part, (0, 0, 0, 0))
        line = f"{part:36}{operations / 1e9:10.0f}{moved / 1e9:8.1f}{launches:10d}{took:9.1f}"
        if kernels:
            count, ms = measured.get(part, (0, 0))
            line += f"{count:10d}{ms:9.1f}" + (f"{ms / took:8.2f}" if took else "")
        lines.append(line)
    total = sum(each[3] for each in predicted.values())
    lines.append(f"{'sum':36}{'':28}{total:9.1f}")
    if kernels:
        lines[-1] += f"{'':10}{sum(each[1] for each in measured.values()):9.1f}"
    tokens = case["batch"] * case["tokens"]
    lines.append(f"{tokens} tokens: {1e3 * tokens / total:,.0f} tokens/s on one {card.upper()}")
    return lines


def predict(args, record):
    """Prints the table of each case; with --trace next to a record of `trace`, or of one step."""
    traces = json.loads(pathlib.Path(args.trace).read_text()) if args.trace else {}
    rows = []
    for text in (args.cases or "7b:r16:s1076:t16k:d0").split(","):
        case = cases.parse_case(text)
        steps = traces.get("traces", [traces] if "kernels" in traces else [])
        kernels = next((s["kernels"] for s in steps if s.get("case", text) == text), None)
        print(f"{text} on one {args.card.upper()}")
        print("\n".join(table(case, args.card, kernels)))
        rows.append({"case": text, "card": args.card, "parts": times(case, args.card)})
    record.put(predicted=rows)
