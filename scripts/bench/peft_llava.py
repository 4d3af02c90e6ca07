"""The peer: LoRA on LLaVA-1.5, Qwen2.5-VL or Qwen3-VL with transformers and PEFT as a careful user
would set them up, on random weights.

  peft_llava.py --model DIR --dtype float32|bfloat16 --batch 4 --text 64 --supervised 32 --rank 16
                --steps 8
  peft_llava.py --model DIR --random --device cuda --dtype bfloat16 --batch 15 --text 500
                --supervised 250 --rank 128 --checkpointing

Base in its dtype, FP32 adapters, autocast, SDPA, fused AdamW, clipping.
Every --step is one optimizer step on a fixed synthetic batch; prints one JSON line.
"""

import argparse
import json
import pathlib
import resource
import shutil
import statistics
import sys
import tempfile
import time

START = time.perf_counter()
if "--unsloth" in sys.argv:
    import unsloth  # before transformers, which it patches
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoConfig, AutoModelForImageTextToText

IMPORTED = time.perf_counter() - START
LINEAR = "q_proj|k_proj|v_proj|o_proj|gate_proj|up_proj|down_proj"


def draw(args, dtype):
    torch.set_default_dtype(dtype)
    with torch.device(args.device):
        model = AutoModelForImageTextToText.from_config(
            AutoConfig.from_pretrained(args.model), dtype=dtype, attn_implementation="sdpa"
        )
    torch.set_default_dtype(torch.float32)
    return model


def build_peft(args, dtype):
    if args.random:
        model = draw(args, dtype)
    else:
        model = AutoModelForImageTextToText.from_pretrained(
            args.model, dtype=dtype, attn_implementation="sdpa"
        ).to(args.device)
    if args.liger:
        import liger_kernel.transformers as liger

        # Only with the model does it also replace the text model's norms, rotary positions and MLP.
        getattr(liger, f"apply_liger_kernel_to_{model.config.model_type}")(model=model)
    return get_peft_model(
        model,
        LoraConfig(
            r=args.rank,
            lora_alpha=2 * args.rank,
            lora_dropout=args.dropout,
            target_modules=rf".*language_model.*\.({LINEAR})",
        ),
    )


def build_unsloth(args, dtype):
    from unsloth import FastVisionModel

    with tempfile.TemporaryDirectory() as folder:
        path = args.model
        if args.random:
            path = folder
            draw(args, dtype).save_pretrained(folder)
            for name in pathlib.Path(args.model).glob("tokenizer*"):
                shutil.copy(name, folder)
        model, _ = FastVisionModel.from_pretrained(
            path,
            dtype=dtype,
            load_in_4bit=False,
            use_gradient_checkpointing="unsloth" if args.checkpointing else False,
        )
    return FastVisionModel.get_peft_model(
        model,
        r=args.rank,
        lora_alpha=2 * args.rank,
        lora_dropout=args.dropout,
        finetune_vision_layers=False,
        finetune_language_layers=True,
        finetune_attention_modules=True,
        finetune_mlp_modules=True,
        bias="none",
    )


def inputs(config, args, dtype):
    """A batch of random text, after one image per row unless there are none; all on the device."""
    ids = torch.randint(5, 600, (args.batch, args.text))
    batch = {}
    if args.images and config.model_type == "llava":
        side = config.vision_config.image_size
        positions = (side // config.vision_config.patch_size) ** 2
        marks = torch.full((args.batch, positions), config.image_token_index)
        ids = torch.cat([marks, ids], 1)
        batch["pixel_values"] = torch.randn(args.batch, 3, side, side, dtype=dtype)
    elif args.images:
        vision, grid = config.vision_config, args.pixels // config.vision_config.patch_size
        marks = torch.full((args.batch, (grid // 2) ** 2), config.image_token_id)
        ids[:, 0], ids[:, 1] = config.vision_start_token_id, config.vision_end_token_id
        ids = torch.cat([ids[:, :1], marks, ids[:, 1:]], 1)
        width = 3 * vision.temporal_patch_size * vision.patch_size**2
        batch["pixel_values"] = torch.randn(args.batch * grid**2, width, dtype=dtype)
        batch["image_grid_thw"] = torch.tensor([[1, grid, grid]] * args.batch)
        batch["mm_token_type_ids"] = (ids == config.image_token_id).int()
    labels = torch.full_like(ids, -100)
    labels[:, -args.supervised :] = ids[:, -args.supervised :]
    batch |= dict(input_ids=ids, labels=labels, attention_mask=torch.ones_like(ids))
    return {name: tensor.to(args.device) for name, tensor in batch.items()}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", required=True)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument(
        "--text", type=int, default=64, help="text positions a row, beside the image positions"
    )
    parser.add_argument("--supervised", type=int, default=32, help="of them supervised")
    parser.add_argument("--images", type=int, choices=[0, 1], default=1, help="images per row")
    parser.add_argument("--pixels", type=int, default=448, help="side of an image of Qwen's models")
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument(
        "--random",
        action="store_true",
        help="weights drawn from config.json's shapes, nothing loaded",
    )
    parser.add_argument(
        "--checkpointing",
        action="store_true",
        help="recompute every block, as LLaVA's own recipe does",
    )
    parser.add_argument("--liger", action="store_true", help="with Liger-Kernel's patches")
    parser.add_argument(
        "--unsloth",
        action="store_true",
        help=(
            "Unsloth's model and adapters in place of PEFT's; "
            "draws the weights and saves them first"
        ),
    )
    parser.add_argument(
        "--unwatched",
        action="store_true",
        help=(
            "no waiting for the device between steps, for counting what they ask of it; "
            "no step is timed"
        ),
    )
    parser.add_argument("--warmup", type=int, default=2)
    parser.add_argument("--steps", type=int, default=8)
    args = parser.parse_args()
    torch.manual_seed(0)
    dtype = getattr(torch, args.dtype)
    model = build_unsloth(args, dtype) if args.unsloth else build_peft(args, dtype)
    trained = [p for p in model.parameters() if p.requires_grad]
    for p in trained:
        p.data = p.data.float()
    if args.checkpointing and not args.unsloth:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        model.enable_input_require_grads()
    model.train()
    wait = torch.cuda.synchronize if args.device == "cuda" and not args.unwatched else lambda: None
    optimizer = torch.optim.AdamW(trained, lr=1e-4, weight_decay=0.0, fused=True)

    batch = inputs(model.config, args, dtype)
    ids = batch["input_ids"]
    times = []
    for step in range(args.warmup + args.steps):
        if step == args.warmup and args.device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        wait()
        start = time.perf_counter()
        with torch.autocast(args.device, dtype=dtype, enabled=dtype != torch.float32):
            loss = model(**batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        wait()
        times.append(time.perf_counter() - start)
    step = statistics.median(times[args.warmup :])
    if args.device == "cuda":
        peaks = {
            "peak_allocated_gib": torch.cuda.max_memory_allocated() / 2**30,
            "peak_reserved_gib": torch.cuda.max_memory_reserved() / 2**30,
        }
    else:
        peaks = {"peak_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20}
    print(
        json.dumps(
            {
                "steps": len(times),
                "tokens": ids.numel(),
                "supervised": args.batch * args.supervised,
                "step_s": step,
                "mean_step_s": statistics.fmean(times[args.warmup :]),
                "tokens_per_s": ids.numel() / step,
                **peaks,
                "import_s": IMPORTED,
                "loss": loss.item(),
            }
        )
    )


if __name__ == "__main__":
    main()
