"""Copies a model directory with its weights rounded to FP16 (half the size in the repository,
and finer than BF16, to which a merge rounds).

store.py FROM_DIR TO_DIR
"""

import argparse
import json
import pathlib
import shutil

import torch
from safetensors.torch import load_file, save_file


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("source", type=pathlib.Path)
    parser.add_argument("target", type=pathlib.Path)
    args = parser.parse_args()
    args.target.mkdir(parents=True, exist_ok=True)
    for path in args.source.iterdir():
        if path.suffix == ".json" and path.name != "config.json":
            shutil.copy(path, args.target)
    config = json.loads((args.source / "config.json").read_text())
    config.pop("dtype", None)
    config["torch_dtype"] = "float16"
    (args.target / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    tensors = {
        name: tensor.to(torch.float16)
        for name, tensor in load_file(args.source / "model.safetensors").items()
    }
    save_file(tensors, args.target / "model.safetensors", metadata={"format": "pt"})


if __name__ == "__main__":
    main()
