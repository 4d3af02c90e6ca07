"""Mixtures of experts in transformers: files in the published form, and how clear the routers'
choices are."""

import json

import torch
from safetensors.torch import load_file, save_file


def as_published_experts(path):
    """Files that contain the tensors as they are in memory: the config has `num_experts`, and
    Qwen3-VL's experts are [expert, in, out]."""
    file = path / "config.json"
    data = json.loads(file.read_text())
    text = data["text_config"]
    if "num_local_experts" in text:
        text["num_experts"] = text.pop("num_local_experts")
    file.write_text(json.dumps(data, indent=2))
    if data["model_type"] != "qwen3_vl_moe":
        return
    for file in path.glob("*.safetensors"):
        tensors = load_file(file)
        for name in [name for name in tensors if ".mlp.experts." in name]:
            tensors[name] = tensors[name].transpose(1, 2).contiguous()
        save_file(tensors, file, metadata={"format": "pt"})


class Choices:
    """Watches the routers of a model. `nearest`: the smallest difference, over all tokens so far,
    between the probabilities of the last expert that computes a token and the first that does not:
    rounding must not decide. `used`: the experts of each layer that have computed a token."""

    def __init__(self, model):
        self.nearest, self.used = 1.0, {}
        for name, module in model.named_modules():
            if name.endswith(".mlp.gate"):
                module.register_forward_hook(lambda *seen, name=name: self.see(name, *seen))

    def see(self, name, router, _, out):
        logits, _, chosen = out
        probabilities = torch.softmax(logits.detach().float(), -1).sort(-1, descending=True)[0]
        last = router.top_k
        gaps = probabilities[:, last - 1] - probabilities[:, last]
        self.nearest = min(self.nearest, gaps.min().item())
        self.used.setdefault(name, set()).update(chosen.flatten().tolist())
