"""Photographs of scikit-image's and scikit-learn's wheels, made small, with captions."""

import pathlib

import skimage
import sklearn
from PIL import Image

from cases import row

FOLDERS = [
    pathlib.Path(skimage.__file__).parent / "data",
    pathlib.Path(sklearn.__file__).parent / "datasets/images",
]
# A file, the part of it that is shown (none: all of it) and what it shows.
HELD_OUT = [
    ("camera.png", None, "A man in a dark coat behind a camera on a tripod."),
    ("coffee.png", None, "A cup of coffee on a red saucer with a spoon."),
    ("moon.png", None, "The grey surface of the moon with craters."),
    ("text.png", None, "Handwritten formulas on lined paper."),
    ("motorcycle_right.png", (0, 60, 300, 400), "A red motorcycle's back wheel by a bench."),
    ("retina.jpg", (700, 350, 1350, 1000), "Fine vessels on the red retina of an eye."),
    ("chelsea.png", (100, 90, 300, 230), "The green eyes of a cat."),
    ("flower.jpg", (180, 80, 460, 360), "The petals of an orange flower."),
]


def write_photographs(photographs, root):
    """Saves them into `root` and returns their rows."""
    rows = []
    for number, (name, box, caption) in enumerate(photographs):
        path = next(folder / name for folder in FOLDERS if (folder / name).exists())
        image = Image.open(path).convert("RGB").crop(box or (0, 0, *Image.open(path).size))
        image.thumbnail((256, 256))
        saved = f"{pathlib.Path(name).stem}-{number}.png"
        image.save(root / saved)
        rows.append(row(saved, [("<image>\nDescribe the photograph.", caption)], saved))
    return rows
