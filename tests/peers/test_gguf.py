"""Exports for llama.cpp, run by it: ids, scores of texts and images,
and LoRA against PEFT's results.

llama.cpp rounds its operands to the matrix's type:
with F16, in which BF16 is stored, about 5e-3 nats.
"""

import base64
import json
import re
import shutil

import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

import families
from checkpoints import CORPUS
from llama import Llama
from test_families import (  # noqa: F401, the fixtures
    FamilyPeer,
    family_adapter,
    family_dir,
)
from tools import lft, write_notes

TEXT, IMAGE = 1e-2, 2e-2  # nats
# llama.cpp supports only windows of 112 pixels.
families.SPECS["qwen25_window"] = families.SPECS["qwen25_gqa"] | dict(
    vision=families.SPECS["qwen25_gqa"]["vision"] | dict(window_size=112)
)
NAMES = ["qwen2_gqa", "qwen25_window", "qwen3_gqa", "smol_tied"]
for each in NAMES:
    families.SPECS[f"{each}_bf16"] = families.SPECS[each] | dict(dtype=torch.bfloat16)
TEXT_ONLY = dict(conversations=[])
PROMPTS = [
    "A chat between a curious user and an",
    "Describe the image in detail.\nThe",
    "1 2 3 4",
    "What colour is the flower? The flower is",
]
MARKS = dict.fromkeys(NAMES[:3], "<|vision_start|><|image_pad|><|vision_end|>") | dict(
    smol_tied="<image>"
)


def photograph(images, side):
    """An image that no processor resizes, as PNG, and its path."""
    path = images / f"fits-{side}.png"
    Image.open(images / "coffee.png").convert("RGB").resize((side, side)).save(path)
    return path


def with_blank_lines(path, out):
    """The checkpoint with a token for a blank line, which llama.cpp searches for
    and which published SmolVLMs have."""
    shutil.copytree(path, out)
    tokenizer = json.loads((out / "tokenizer.json").read_text())
    last = max(
        [
            *tokenizer["model"]["vocab"].values(),
            *(token["id"] for token in tokenizer["added_tokens"]),
        ]
    )
    flags = dict.fromkeys(["single_word", "lstrip", "rstrip", "normalized", "special"], False)
    tokenizer["added_tokens"].append(dict(id=last + 1, content="\n\n", **flags))
    (out / "tokenizer.json").write_text(json.dumps(tokenizer))
    return out


def next_scores(peer, text, item, root):
    ids, extra = peer.inputs_of(text, item, root)
    with torch.no_grad():
        return torch.log_softmax(peer.forward(ids, extra)[-1].double(), dim=-1)


def same(got, want, tolerance):
    assert len(got) > 32
    for token, score in got.items():
        assert score == pytest.approx(want[token].item(), abs=tolerance)


def scaled(model, out):
    """The checkpoint with a layer's up_proj so small and its down_proj so large
    that FP16 cannot represent their values."""
    shutil.copytree(model, out)
    [path] = out.glob("*.safetensors")
    tensors = load_file(path)
    for part, factor in [("up", 2.0**-20), ("down", 2.0**20)]:
        tensors[f"model.layers.1.mlp.{part}_proj.weight"] *= factor
    save_file(tensors, path, metadata=dict(format="pt"))
    return out


CASES = [
    ("qwen2_gqa", {}),
    ("qwen25_window", {}),
    ("qwen3_gqa", dict(use_rslora=True)),
    ("smol_tied", dict(alpha_pattern={"q_proj": 9})),
]


@pytest.mark.parametrize("dtype", ["", "_bf16"])
@pytest.mark.parametrize("name, changes", CASES)
def test_llama_cpp_answers_as_peft(
    name, changes, dtype, family_dir, family_adapter, images, tmp_path
):  # noqa: F811
    adapter, smol = tmp_path / "adapter", name == "smol_tied"
    model = family_dir(name + dtype)
    if smol:
        model = with_blank_lines(model, tmp_path / "model")
    shutil.copytree(family_adapter(name), adapter)
    config = json.loads((adapter / "adapter_config.json").read_text())
    (adapter / "adapter_config.json").write_text(json.dumps(config | changes))
    write_notes(adapter, "auto", "native")
    done = lft("export", adapter, "--model", model, "--target", "gguf", "--out", tmp_path / "out")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "lora.gguf",
        "mmproj.gguf",
        "model.gguf",
    ]
    assert "verified: " in done.stdout and "llama-server" in done.stdout
    peer, plain = FamilyPeer(name, model, adapter), FamilyPeer(name, model)
    bare = Llama(tmp_path / "out", lora=False)
    for prompt in PROMPTS:
        same(bare.next_logprobs(prompt), next_scores(plain, prompt, TEXT_ONLY, images), TEXT)
    del bare  # two in one process receive each other's answers
    llama = Llama(tmp_path / "out")

    for line in CORPUS.splitlines():
        assert llama.ids(line) == peer.tokenizer(line)["input_ids"]
    turn = template_text(name)
    assert llama.ids(turn) == peer.tokenizer(turn)["input_ids"]

    for prompt in PROMPTS:
        want = next_scores(peer, prompt, TEXT_ONLY, images)
        same(llama.next_logprobs(prompt), want, TEXT)
        assert (want - next_scores(plain, prompt, TEXT_ONLY, images)).abs().max() > 0.05

    # Tower and projector are merged, so the image matches PEFT's result.
    sides = dict(qwen2_gqa=112, qwen25_window=112, qwen3_gqa=128, smol_tied=256)
    path = photograph(images, sides[name])
    prompt = "<|im_start|>user\n{}\nWhat is this?<|im_end|>\n<|im_start|>assistant\n"
    if smol:
        prompt = "<|im_start|>User:{}\nWhat is this?<end_of_utterance>\nAssistant:"
    item = dict(conversations=[], image=path.name)
    want = next_scores(peer, prompt.format(MARKS[name]), item, images)
    same(llama.next_logprobs(prompt.format(llama.marker), path.read_bytes()), want, IMAGE)

    # The chat template in the file is the checkpoint's own. llama.cpp passes it an image as a text,
    # so SmolVLM's, which checks for an image part first, writes a space.
    url = "data:image/png;base64," + base64.b64encode(path.read_bytes()).decode()
    content = [
        dict(type="image_url", image_url=dict(url=url)),
        dict(type="text", text="What is this?"),
    ]
    shown = llama.post("/apply-template", messages=[dict(role="user", content=content)])["prompt"]
    system = (
        "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"
        if name in ("qwen2_gqa", "qwen25_window")
        else ""
    )
    asked = prompt.replace("User:{}\n", "User: {}") if smol else prompt.replace("{}\n", "{}")
    assert re.sub("<__media[^>]*>", "{}", shown) == system + asked


def test_matrices_that_fp16_does_not_hold_keep_their_type(
    family_dir, family_adapter, images, tmp_path
):  # noqa: F811
    name, adapter = "qwen25_window", tmp_path / "adapter"
    model = scaled(family_dir(name), tmp_path / "model")
    shutil.copytree(family_adapter(name), adapter)
    write_notes(adapter, "auto", "native")
    done = lft(
        "export",
        adapter,
        "--model",
        model,
        "--target",
        "gguf",
        "--dtype",
        "fp16",
        "--out",
        tmp_path / "out",
    )
    assert (
        "float16 cannot represent the values of 2 matrices: they keep the base's type"
        in done.stdout
    )
    llama, plain = Llama(tmp_path / "out", lora=False), FamilyPeer(name, model)
    for prompt in PROMPTS:
        same(llama.next_logprobs(prompt), next_scores(plain, prompt, TEXT_ONLY, images), TEXT)


def test_a_dtype_is_of_gguf_and_has_a_name(family_dir, family_adapter, tmp_path):  # noqa: F811
    arguments = [
        "export",
        family_adapter("qwen3_gqa"),
        "--model",
        family_dir("qwen3_gqa"),
        "--out",
        tmp_path / "out",
    ]
    assert (
        "only GGUF files" in lft(*arguments, "--target", "peft", "--dtype", "fp16", code=2).stderr
    )
    assert (
        "fp32, bf16 or fp16"
        in lft(*arguments, "--target", "gguf", "--dtype", "q8_0", code=2).stderr
    )
    assert not (tmp_path / "out").exists()


def template_text(name):
    if name == "smol_tied":
        return (
            "<|im_start|>User: What is this?<end_of_utterance>\n"
            "Assistant: A cat.<end_of_utterance>\n"
        )
    return "<|im_start|>user\nWhat is this?<|im_end|>\n<|im_start|>assistant\nA cat.<|im_end|>\n"
