"""What the GPU step rests on, through PyTorch alone: matrix products, attention, and the stock chain that lft's gradient check stands against."""

import statistics

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
    """What the card multiplies and copies at: random numbers, 8192^3 in BF16, and 2 GiB read and written."""
    import torch
    torch.manual_seed(0)
    square = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    source = torch.randn(2**29, device="cuda")
    target = torch.empty_like(source)
    return {"card": torch.cuda.get_device_name(), "torch": torch.__version__, "gemm_tflops": 2 * 8192**3 / milliseconds(lambda: square @ square) / 1e9,
            "copy_tb_s": 2 * source.nbytes / milliseconds(lambda: target.copy_(source)) / 1e9}


def lora_products():
    """Y = X W^T + h B^T three ways: the wide product alone (no LoRA), with the low-rank part added behind it, and as one product over k + r columns
    of buffers whose rows are k + r apart. Decides how a LoRA linear runs: K-concat has to lose under 3 % on the wide product."""
    import torch
    rows = []
    for tokens in (776, 4096, 16384):
        for k, n in ((4096, 4096), (4096, 11008), (11008, 4096)):
            for rank in (16, 128):
                make = lambda *shape: torch.randn(*shape, device="cuda", dtype=torch.bfloat16) * 0.02
                x, w, a, b, h = make(tokens, k), make(n, k), make(rank, k), make(n, rank), make(tokens, rank)
                wide_x, wide_w = make(tokens, k + rank), make(n, k + rank)
                y = torch.empty(tokens, n, device="cuda", dtype=torch.bfloat16)
                packed = milliseconds(lambda: torch.mm(x, w.t(), out=y))
                strided = milliseconds(lambda: torch.mm(wide_x[:, :k], wide_w[:, :k].t(), out=y))
                concat = milliseconds(lambda: torch.mm(wide_x, wide_w.t(), out=y))
                added = milliseconds(lambda: torch.mm(x, w.t(), out=y).addmm_(h, b.t()))
                flops = 2 * tokens * k * n
                rows.append(dict(tokens=tokens, k=k, n=n, rank=rank, packed_ms=packed, strided_ms=strided, concat_ms=concat, addmm_ms=added,
                                 packed_tflops=flops / packed / 1e9, strided_over_packed=strided / packed, concat_over_addmm=concat / added))
                print(rows[-1], flush=True)
    return rows


def skinny_products():
    """x A^T (tokens x k by k x r), and the gradients of A (r x k over tokens) and B (n x r over tokens)."""
    import torch
    rows = []
    for tokens in (776, 16384):
        for width in (4096, 11008):
            for rank in (16, 48, 128, 384):
                make = lambda *shape: torch.randn(*shape, device="cuda", dtype=torch.bfloat16) * 0.02
                x, a, h = make(tokens, width), make(rank, width), make(tokens, rank)
                down, grad = milliseconds(lambda: x @ a.t()), milliseconds(lambda: h.t() @ x)
                read = 2 * tokens * width
                rows.append(dict(tokens=tokens, width=width, rank=rank, down_ms=down, grad_ms=grad, down_tb_s=read / down / 1e9, grad_tb_s=read / grad / 1e9))
                print(rows[-1], flush=True)
    return rows


def attention():
    """Causal attention over packed sequences, 32 heads of 128, forward and backward, as LibTorch's C++ entry points offer it."""
    import torch
    rows = []
    for length, count in ((776, 1), (776, 21), (1076, 16), (2076, 8)):
        total = length * count
        q, k, v, grad = (torch.randn(total, 32, 128, device="cuda", dtype=torch.bfloat16) * 0.3 for _ in range(4))
        bounds = torch.arange(0, total + 1, length, device="cuda", dtype=torch.int32)
        forward_flops = 2 * length * length * 4096 * count  # the causal half of 4 S^2 d
        record = dict(length=length, count=count)

        def note(name, forward, backward):
            try:
                record[f"{name}_forward_tflops"] = forward_flops / milliseconds(forward) / 1e9
                record[f"{name}_backward_tflops"] = 2.5 * forward_flops / milliseconds(backward) / 1e9
            except (RuntimeError, TypeError, AttributeError) as error:
                record[f"{name}_error"] = str(error).splitlines()[0][:200]

        def flash():
            return torch.ops.aten._flash_attention_forward(q, k, v, bounds, bounds, length, length, 0.0, True, False)

        def cudnn():
            return torch.ops.aten._cudnn_attention_forward(q, k, v, None, bounds, bounds, length, length, True, 0.0, True, False)

        try:
            out, lse, seed, offset, _ = flash()
            note("flash", flash, lambda: torch.ops.aten._flash_attention_backward(grad, q, k, v, out, lse, bounds, bounds, length, length, 0.0, True, seed, offset))
        except (RuntimeError, TypeError, AttributeError) as error:
            record["flash_error"] = str(error).splitlines()[0][:200]
        try:
            c_out, c_lse, _, _, _, _, c_seed, c_offset, _ = cudnn()
            note("cudnn", cudnn, lambda: torch.ops.aten._cudnn_attention_backward(grad, q, k, v, c_out, c_lse, c_seed, c_offset, None, bounds, bounds, length, length, 0.0, True))
        except (RuntimeError, TypeError, AttributeError, ValueError) as error:
            record["cudnn_error"] = str(error).splitlines()[0][:200]
        dense = [part.view(count, length, 32, 128).transpose(1, 2).detach().requires_grad_() for part in (q, k, v)]
        for name in ("FLASH_ATTENTION", "CUDNN_ATTENTION"):
            backend = getattr(torch.nn.attention.SDPBackend, name)
            kind = f"dense_{name.split('_')[0].lower()}"
            try:
                with torch.nn.attention.sdpa_kernel(backend):
                    mixed = torch.nn.functional.scaled_dot_product_attention(*dense, is_causal=True)
                    shaped = grad.view(count, length, 32, 128).transpose(1, 2)
                    note(kind, lambda: torch.nn.functional.scaled_dot_product_attention(*dense, is_causal=True),
                         lambda: torch.autograd.grad(mixed, dense, shaped, retain_graph=True))
            except RuntimeError as error:
                record[f"{kind}_error"] = str(error).splitlines()[0][:200]
        rows.append(record)
        print(record, flush=True)
    return rows


def stock_chain():
    """GradScaler.unscale_ and clip_grad_norm_ over LLaVA-1.5-7B's adapters, 448 FP32 gradients, as an AMP loop calls them; and fused AdamW behind it."""
    import torch
    rows, shapes = [], [(4096, 4096)] * 4 + [(4096, 11008)] * 2 + [(11008, 4096)]
    for rank in (16, 128):
        parameters = []
        for _ in range(32):
            for width, height in shapes:
                parameters += [torch.nn.Parameter(torch.randn(rank, width, device="cuda")), torch.nn.Parameter(torch.randn(height, rank, device="cuda"))]
        for parameter in parameters:
            parameter.grad = torch.randn_like(parameter) * 1e-3
        optimizer = torch.optim.AdamW(parameters, lr=1e-6, fused=True)
        scaler = torch.amp.GradScaler("cuda", init_scale=1.0, growth_interval=10**9)
        scaler.scale(torch.ones((), device="cuda"))
        norms = lambda: torch.nn.utils.clip_grad_norm_(parameters, 1e9)

        def unscale():
            scaler.unscale_(optimizer)
            scaler._per_optimizer_states[id(optimizer)]["stage"] = torch.amp.grad_scaler.OptState.READY

        def unscale_and_clip():
            unscale()
            norms()

        elements = sum(parameter.numel() for parameter in parameters)
        row = dict(rank=rank, tensors=len(parameters), elements=elements, unscale_ms=milliseconds(unscale), clip_ms=milliseconds(norms),
                   unscale_clip_ms=milliseconds(unscale_and_clip), adamw_ms=milliseconds(optimizer.step))
        rows.append(row)
        print(row, flush=True)
    return rows


def fused_beside_stock(kernels, chain):
    """How many times faster lft's one launch is: {rank: ratio}, and with the update behind both."""
    ms = {row["kernel"]: row["ms"] for row in kernels}
    out = {}
    for row in chain:
        check, both = ms.get(f"grad_stats, r={row['rank']}"), ms.get(f"grad_stats + adamw, r={row['rank']}")
        if check and both:
            out[f"r={row['rank']}"] = {"check": row["unscale_clip_ms"] / check, "check_and_adamw": (row["unscale_clip_ms"] + row["adamw_ms"]) / both}
    return out


def measure(record):
    import torch
    record.put(limits=ceilings())
    torch.cuda.empty_cache()
    for name, part in (("stock_chain", stock_chain), ("attention", attention), ("lora", lora_products), ("skinny", skinny_products)):
        try:
            record.put(**{name: part()})
        except Exception as error:  # the others are measured all the same
            record.put(**{name: {"error": f"{type(error).__name__}: {error}"[:400]}})
        torch.cuda.empty_cache()
