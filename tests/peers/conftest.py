"""Fixtures: photographs, checkpoints, adapters and training runs, each created once per session.
LFT_BIN names the binary."""

import functools
import pathlib

import pytest
import skimage
import sklearn
import torch
import yaml
from peft import LoraConfig, get_peft_model
from PIL import Image
from transformers import LlavaForConditionalGeneration
from transformers.utils import logging

import checkpoints
import reference
from cases import ADAPTERS, CASES, ROWS, make_recipe
from tools import lft, write_rows

torch.set_num_threads(1)
logging.disable_progress_bar()


@pytest.fixture(scope="session")
def images(tmp_path_factory):
    """Photographs from scikit-image and scikit-learn, unchanged and in odd crops."""
    root = tmp_path_factory.mktemp("images")
    photos = pathlib.Path(skimage.__file__).parent / "data"
    for name in ["chelsea.png", "coffee.png", "rocket.jpg", "logo.png", "moon.png", "page.png"]:
        (root / name).write_bytes((photos / name).read_bytes())
    for name in ["china.jpg", "flower.jpg"]:
        (root / name).write_bytes(
            (pathlib.Path(sklearn.__file__).parent / "datasets" / "images" / name).read_bytes()
        )
    astronaut = Image.open(photos / "astronaut.png").convert("RGB")
    astronaut.crop((101, 7, 198, 308)).save(root / "tall.png")
    astronaut.crop((0, 200, 511, 233)).save(root / "strip.png")
    astronaut.crop((200, 50, 213, 57)).save(root / "tiny.png")
    exif = Image.Exif()
    exif[0x0112] = 6
    astronaut.crop((40, 30, 371, 247)).save(root / "turned.jpg", quality=92, exif=exif)
    return root


@pytest.fixture(scope="session")
def model_dir(tmp_path_factory):
    """name -> directory of a random checkpoint, built once per session."""
    return functools.cache(
        lambda name: checkpoints.build(name, tmp_path_factory.mktemp("models") / name)
    )


@pytest.fixture(scope="session")
def peer(model_dir):
    """name -> the checkpoint in transformers, loaded once per session (never modified)."""
    return functools.cache(lambda name: reference.Peer(model_dir(name)))


@pytest.fixture(scope="session")
def peft_adapter(model_dir, tmp_path_factory):
    """(checkpoint, adapter name) -> directory of a PEFT adapter with random A and B
    (and a changed projector if it is saved)."""
    built = {}

    def get(checkpoint, name):
        if (checkpoint, name) not in built:
            options = {key: value for key, value in ADAPTERS[name].items() if key != "targets"}
            base = LlavaForConditionalGeneration.from_pretrained(
                model_dir(checkpoint), dtype=torch.float32
            )
            model = get_peft_model(
                base, LoraConfig(lora_dropout=0.0, task_type="CAUSAL_LM", **options)
            )
            generator = torch.Generator().manual_seed(7)
            with torch.no_grad():
                for key, parameter in model.named_parameters():
                    if "lora_magnitude_vector" in key:
                        parameter.mul_(1 + 0.2 * torch.randn(parameter.shape, generator=generator))
                    elif "lora_" in key:
                        parameter.copy_(
                            torch.randn(parameter.shape, generator=generator)
                            * (0.5 / parameter.shape[-1] ** 0.5)
                        )
                    elif "modules_to_save.default" in key:
                        parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.05)
            path = tmp_path_factory.mktemp("adapters") / f"{checkpoint}-{name}"
            model.save_pretrained(path)
            built[checkpoint, name] = path
        return built[checkpoint, name]

    return get


@pytest.fixture(scope="session")
def rows_file(tmp_path_factory):
    return write_rows(tmp_path_factory.mktemp("rows") / "rows.jsonl", ROWS)


@pytest.fixture(scope="session")
def trained(model_dir, peft_adapter, images, rows_file, tmp_path_factory):
    """case -> output directory of the lft run, trained once per session."""
    done = {}

    def get(name):
        if name not in done:
            case, folder = CASES[name], tmp_path_factory.mktemp(name)
            adapter = peft_adapter(case["checkpoint"], case["adapter"]) if case["adapter"] else None
            recipe = make_recipe(
                case, folder / "run", model_dir(case["checkpoint"]), adapter, images, rows_file
            )
            (folder / "recipe.yaml").write_text(yaml.safe_dump(recipe))
            lft("train", folder / "recipe.yaml")
            done[name] = folder / "run"
        return done[name]

    return get
