"""Building blocks of the GPU step in PyTorch alone: matrix products and the stock
chain that lft's gradient check is compared with. Every part runs in a separate process, because a
device error breaks everything after it in one; it prints one JSON object per row as it is measured.

  primitives.py PART      one part, here
"""

import json
import pathlib
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from on_gpu.machine import Deadline, json_lines, peer_environment, run

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
    """Matrix product and copy rates of the GPU: random numbers, 8192^3 in BF16,
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
    after it, and as one product over k + r columns of buffers with a row stride of k + r. Decides
    how a LoRA linear runs: K-concat must cost less than 3 % over the wide product."""
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
    """Speed-up of lft's single launch: {rank: ratio}, and with the update included in both."""
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
    "lora": lora_products,
    "skinny": skinny_products,
}


def part(args, name, seconds):
    """(rows, None) or (rows until a failure, reason): runs a part in a separate process."""
    text, error = run(
        [args.python, pathlib.Path(__file__).resolve(), name], peer_environment(), seconds
    )
    return json_lines(text), error


def measure(args, record):
    """The most important part first; one that hangs leaves the others half of the remaining time.
    Parts that the time limit excludes are listed."""
    deadline = Deadline(args.minutes)
    for name in PARTS:
        left = deadline.left()
        rows, error = (
            part(args, name, min(left, max(20, left / 2))) if left > 5 else ([], "no time left")
        )
        record.put(**{name: rows, **({f"{name}_error": error} if error else {})})
        print(f"{name}: {len(rows)} rows{': ' + error if error else ''}", flush=True)


def main():
    for row in PARTS[sys.argv[1]]():
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
