"""Writes tests/goldens/fits/fits.safetensors: photographs and their preprocessing by transformers'
LlavaImageProcessor (torchvision).

Run with the pinned peers (scripts/peers.txt): python tests/goldens/make_fits.py [--full OUT].
--full writes whole photographs at 336 instead, for manual checks. Photographs: scikit-image
(public domain or CC0) and scikit-learn (china.jpg, CC BY, Romain Guy).
"""

import argparse
import pathlib

import numpy
import skimage
import sklearn.datasets
import torch
import torchvision
import transformers
from PIL import Image
from safetensors.torch import save_file
from transformers.models.llava.image_processing_llava import LlavaImageProcessor


def photo(name):
    folder = (
        pathlib.Path(sklearn.datasets.__file__).parent / "images"
        if name == "china.jpg"
        else pathlib.Path(skimage.__file__).parent / "data"
    )
    return Image.open(folder / name).convert("RGB")


def fit(image, size, pad, normalise=False):
    processor = LlavaImageProcessor(
        size={"shortest_edge": size},
        crop_size={"height": size, "width": size},
        do_pad=pad,
        do_rescale=normalise,
        do_normalize=normalise,
    )
    return torch.as_tensor(processor(image, return_tensors="pt")["pixel_values"][0]).contiguous()


def small_cases():
    """name, image, target sizes: wide, tall, square, already fitting,
    upsampled, a line, one pixel."""
    yield "astronaut_wide", photo("astronaut.png").crop((150, 20, 247, 81)), [24, 17]
    yield "chelsea_tall", photo("chelsea.png").crop((120, 60, 157, 131)), [24, 50]
    yield "coffee_square", photo("coffee.png").crop((200, 100, 245, 145)), [16]
    yield "china_same", photo("china.jpg").crop((300, 200, 324, 224)), [24]
    yield "china_small", photo("china.jpg").crop((300, 200, 313, 220)), [32]
    yield "coffee_line", photo("coffee.png").crop((100, 200, 301, 203)), [8]
    yield "rocket_pixel", photo("rocket.jpg").crop((100, 100, 101, 101)), [8]


def full_cases():
    for name in [
        "astronaut.png",
        "chelsea.png",
        "coffee.png",
        "china.jpg",
        "rocket.jpg",
        "retina.jpg",
        "hubble_deep_field.jpg",
    ]:
        yield name, photo(name), [336, 64]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--full")
    full = parser.parse_args().full
    tensors = {}
    for name, image, sizes in full_cases() if full else small_cases():
        tensors[f"{name}.input"] = torch.from_numpy(numpy.array(image))
        for size in sizes:
            for mode in ["crop", "pad"]:
                fitted = fit(image, size, mode == "pad")
                assert fitted.dtype == torch.uint8
                tensors[f"{name}.{mode}.{size}"] = fitted
    if not full:
        tensors["normalised.astronaut_wide.pad.17"] = fit(
            photo("astronaut.png").crop((150, 20, 247, 81)), 17, True, normalise=True
        )
    versions = {
        "transformers": transformers.__version__,
        "torch": torch.__version__,
        "torchvision": torchvision.__version__,
    }
    out = full or str(pathlib.Path(__file__).parent / "fits" / "fits.safetensors")
    save_file(tensors, out, metadata=versions)
    print(out, sum(t.numel() * t.element_size() for t in tensors.values()), "bytes", versions)


if __name__ == "__main__":
    main()
