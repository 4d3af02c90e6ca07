"""What the GPU step rests on, through PyTorch alone: matrix products, attention, and the stock
chain that lft's gradient check stands against. Every part runs in a process of its own, for an
error of the device ends all that follows in one; it prints a JSON object for each row as it has it.

  primitives.py PART      one part, here
"""

import itertools
import json
import pathlib
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from on_gpu.machine import KEPT, Deadline, json_lines, peer_environment, run

DEVICE = "cuda"


def milliseconds(call, rounds=20):
    import torch

    for _ in range(3):
        call()
    torch.cuda.synchronize()
    times = []
    for _ in range(rounds):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        call()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return statistics.median(times)


def ceilings():
    """What the card multiplies and copies at: random numbers, 8192^3 in BF16,
    and 2 GiB read and written."""
    import torch

    torch.manual_seed(0)
    square = torch.randn(8192, 8192, device=DEVICE, dtype=torch.bfloat16)
    source = torch.randn(2**29, device=DEVICE)
    target = torch.empty_like(source)
    yield {
        "card": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "gemm_tflops": 2 * 8192**3 / milliseconds(lambda: square @ square) / 1e9,
        "copy_tb_s": 2 * source.nbytes / milliseconds(lambda: target.copy_(source)) / 1e9,
    }


def lora_products():
    """Y = X W^T + h B^T three ways: the wide product alone (no LoRA), with the low-rank part added
    after it, and as one product over k + r columns of buffers whose rows are k + r apart. Decides
    how a LoRA linear runs: K-concat has to lose under 3 % on the wide product."""
    import torch

    for tokens in (776, 4096, 16384):
        for k, n in ((4096, 4096), (4096, 11008), (11008, 4096)):
            for rank in (16, 128):
                make = lambda *shape: (
                    torch.randn(*shape, device=DEVICE, dtype=torch.bfloat16) * 0.02
                )
                x, w, a, b, h = (
                    make(tokens, k),
                    make(n, k),
                    make(rank, k),
                    make(n, rank),
                    make(tokens, rank),
                )
                wide_x, wide_w = make(tokens, k + rank), make(n, k + rank)
                y = torch.empty(tokens, n, device=DEVICE, dtype=torch.bfloat16)
                packed = milliseconds(lambda: torch.mm(x, w.t(), out=y))
                strided = milliseconds(lambda: torch.mm(wide_x[:, :k], wide_w[:, :k].t(), out=y))
                concat = milliseconds(lambda: torch.mm(wide_x, wide_w.t(), out=y))
                added = milliseconds(lambda: torch.mm(x, w.t(), out=y).addmm_(h, b.t()))
                flops = 2 * tokens * k * n
                yield dict(
                    tokens=tokens,
                    k=k,
                    n=n,
                    rank=rank,
                    packed_ms=packed,
                    strided_ms=strided,
                    concat_ms=concat,
                    addmm_ms=added,
                    packed_tflops=flops / packed / 1e9,
                    strided_over_packed=strided / packed,
                    concat_over_addmm=concat / added,
                )


def skinny_products():
    """x A^T (tokens x k by k x r), and the gradients of A (r x k over tokens)
    and B (n x r over tokens)."""
    import torch

    for tokens in (776, 16384):
        for width in (4096, 11008):
            for rank in (16, 48, 128, 384):
                make = lambda *shape: (
                    torch.randn(*shape, device=DEVICE, dtype=torch.bfloat16) * 0.02
                )
                x, a, h = make(tokens, width), make(rank, width), make(tokens, rank)
                down, grad = milliseconds(lambda: x @ a.t()), milliseconds(lambda: h.t() @ x)
                read = 2 * tokens * width
                yield dict(
                    tokens=tokens,
                    width=width,
                    rank=rank,
                    down_ms=down,
                    grad_ms=grad,
                    down_tb_s=read / down / 1e9,
                    grad_tb_s=read / grad / 1e9,
                )


def varlen(name, q, k, v, bounds, longest):
    """(forward() -> (output, what the backward pass needs), backward(gradient, both) -> gradients
    of q, k and v) of packed causal attention, q [t, h, e], k and v [t, g, e], as LibTorch's C++
    functions of these names take it. cuDNN's keeps no plan between calls in LibTorch 2.11: it finds
    none, builds one and drops it. So a call from the host costs a plan each way, and one that was
    captured into a graph does not."""
    import torch

    ops = torch.ops.aten
    if name == "flash":

        def forward():
            out, *kept, _ = ops._flash_attention_forward(
                q, k, v, bounds, bounds, longest, longest, 0.0, True, False
            )
            return out, kept

        def backward(gradient, out, kept):
            lse, seed, offset = kept
            return ops._flash_attention_backward(
                gradient,
                q,
                k,
                v,
                out,
                lse,
                bounds,
                bounds,
                longest,
                longest,
                0.0,
                True,
                seed,
                offset,
            )

    else:

        def forward():
            out, lse, _, _, _, _, seed, offset, _ = ops._cudnn_attention_forward(
                q, k, v, None, bounds, bounds, longest, longest, True, 0.0, True, False
            )
            return out, (lse, seed, offset)

        def backward(gradient, out, kept):
            lse, seed, offset = kept
            return ops._cudnn_attention_backward(
                gradient,
                q,
                k,
                v,
                out,
                lse,
                seed,
                offset,
                None,
                bounds,
                bounds,
                longest,
                longest,
                0.0,
                True,
            )

    return forward, backward


def once(call):
    """Milliseconds of a single call, with all that the host does for it."""
    import torch

    torch.cuda.synchronize()
    begin = time.perf_counter()
    call()
    torch.cuda.synchronize()
    return 1e3 * (time.perf_counter() - begin)


def graphed(call):
    """Milliseconds of the call's kernels, without what the host does for them:
    a replay of it in a CUDA graph."""
    import torch

    call()  # what is set up once is not captured
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return milliseconds(graph.replay)


# What a packed micro-step holds: (heads, heads of k and v, their size, lengths). LLaVA-1.5-7B's
# shape first, alone and in sixteen thousand tokens of one length or several; short rows; then
# grouped heads of 64, as the 1b case has them.
MIXES = {
    "7b 1x776": (32, 32, 128, [776]),
    "7b 21x776": (32, 32, 128, [776] * 21),
    "7b 15x1076": (32, 32, 128, [1076] * 15),
    "7b 7x2076": (32, 32, 128, [2076] * 7),
    "7b mixed": (
        32,
        32,
        128,
        [2076, 776, 1076, 900, 640, 1500, 776, 2000, 1076, 620, 1300, 1076, 776, 700, 1076],
    ),
    "7b short": (32, 32, 128, [64, 128, 200, 320] * 22),
    "1b 15x1076": (32, 4, 64, [1076] * 15),
}


def relative(got, want):
    return ((got.float() - want.float()).norm() / want.float().norm()).item()


def attention():
    """Packed causal attention, forward and backward, by both libraries: the kernels alone
    (a graph's replay), a call from the host with all that it plans, and how far cuDNN's numbers are
    from flash's."""
    import torch

    for name, (heads, groups, size, lengths) in MIXES.items():
        total, longest = sum(lengths), max(lengths)
        make = lambda count: (
            torch.randn(total, count, size, device=DEVICE, dtype=torch.bfloat16) * 0.3
        )
        q, k, v, gradient = make(heads), make(groups), make(groups), make(heads)
        bounds = torch.tensor([0, *itertools.accumulate(lengths)], device=DEVICE, dtype=torch.int32)
        flops = sum(
            2 * length * length * heads * size for length in lengths
        )  # the causal half of 4 S^2 h e
        flash = None
        for library in ("flash", "cudnn"):
            row = {"mix": name, "library": library, "tokens": total, "sequences": len(lengths)}
            try:
                forward, backward = varlen(library, q, k, v, bounds, longest)
                out, kept = forward()
                results = [out, *backward(gradient, out, kept)]
                flash = flash or results
                row["apart"] = max(relative(got, want) for got, want in zip(results, flash))
                row["call_ms"] = once(forward) + once(lambda: backward(gradient, out, kept))
                there, back = graphed(forward), graphed(lambda: backward(gradient, out, kept))
                row.update(
                    ms=there + back,
                    forward_tflops=flops / there / 1e9,
                    backward_tflops=2.5 * flops / back / 1e9,
                )
            except Exception as error:
                row["error"] = f"{type(error).__name__}: {error}"[:KEPT]
            yield row


def judge_attention(rows):
    """Which library packed attention should call: cuDNN where its kernels in a graph are at least
    5% faster for every mix of the 7B shape, and its numbers are flash's but for BF16 roundings.
    Deterministic runs keep flash in any case:
    LibTorch says that cuDNN's attention is not deterministic."""
    seen = {(row["mix"], row["library"]): row for row in rows}
    ratios = {}
    for name in MIXES:
        flash, cudnn = (seen.get((name, library), {}) for library in ("flash", "cudnn"))
        ratios[name] = cudnn["ms"] / flash["ms"] if "ms" in flash and "ms" in cudnn else None
    faster = all(
        ratio is not None and ratio <= 0.95
        for name, ratio in ratios.items()
        if name.startswith("7b")
    )
    near = all(
        row.get("apart", 1) < 0.02 for row in rows
    )  # both round products to BF16, 2^-9 each, and gradients add several
    return {
        "library": "cudnn" if faster and near else "flash",
        "cudnn_over_flash": ratios,
        "near": near,
    }


def stock_chain():
    """GradScaler.unscale_ and clip_grad_norm_ over LLaVA-1.5-7B's adapters, 448 FP32 gradients,
    as an AMP loop calls them; and fused AdamW after it."""
    import torch

    shapes = [(4096, 4096)] * 4 + [(4096, 11008)] * 2 + [(11008, 4096)]
    for rank in (16, 128):
        parameters = []
        for _ in range(32):
            for width, height in shapes:
                parameters += [
                    torch.nn.Parameter(torch.randn(rank, width, device=DEVICE)),
                    torch.nn.Parameter(torch.randn(height, rank, device=DEVICE)),
                ]
        for parameter in parameters:
            parameter.grad = torch.randn_like(parameter) * 1e-3
        optimizer = torch.optim.AdamW(parameters, lr=1e-6, fused=True)
        scaler = torch.amp.GradScaler("cuda", init_scale=1.0, growth_interval=10**9)
        scaler.scale(torch.ones((), device=DEVICE))
        norms = lambda: torch.nn.utils.clip_grad_norm_(parameters, 1e9)

        def unscale():
            scaler.unscale_(optimizer)
            scaler._per_optimizer_states[id(optimizer)]["stage"] = (
                torch.amp.grad_scaler.OptState.READY
            )

        def unscale_and_clip():
            unscale()
            norms()

        elements = sum(parameter.numel() for parameter in parameters)
        yield dict(
            rank=rank,
            tensors=len(parameters),
            elements=elements,
            unscale_ms=milliseconds(unscale),
            clip_ms=milliseconds(norms),
            unscale_clip_ms=milliseconds(unscale_and_clip),
            adamw_ms=milliseconds(optimizer.step),
        )


def fused_beside_stock(kernels, chain):
    """How many times faster lft's one launch is: {rank: ratio}, and with the update behind both."""
    ms = {row["kernel"]: row["ms"] for row in kernels}
    out = {}
    for row in chain:
        check, both = (
            ms.get(f"grad_stats, r={row['rank']}"),
            ms.get(f"grad_stats + adamw, r={row['rank']}"),
        )
        if check and both:
            out[f"r={row['rank']}"] = {
                "check": row["unscale_clip_ms"] / check,
                "check_and_adamw": (row["unscale_clip_ms"] + row["adamw_ms"]) / both,
            }
    return out


PARTS = {
    "ceilings": ceilings,
    "stock_chain": stock_chain,
    "attention": attention,
    "lora": lora_products,
    "skinny": skinny_products,
}


def part(args, name, seconds):
    """(rows, None) or (rows up to there, why no more): a part in a process of its own."""
    text, error = run(
        [args.python, pathlib.Path(__file__).resolve(), name], peer_environment(), seconds
    )
    return json_lines(text), error


def measure(args, record):
    """The most needed first; one that hangs leaves the others half of the time that is left,
    and what the minutes do not reach is named."""
    deadline = Deadline(args.minutes)
    for name in PARTS:
        left = deadline.left()
        rows, error = (
            part(args, name, min(left, max(20, left / 2))) if left > 5 else ([], "no time left")
        )
        record.put(**{name: rows, **({f"{name}_error": error} if error else {})})
        if name == "attention":
            record.put(packed_attention=judge_attention(rows))
        print(f"{name}: {len(rows)} rows{': ' + error if error else ''}", flush=True)


def main():
    for row in PARTS[sys.argv[1]]():
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
