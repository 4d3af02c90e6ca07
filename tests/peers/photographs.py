"""Thirty photographs from scikit-image's and scikit-learn's wheels, downscaled, with captions."""

import pathlib

import skimage
import sklearn
from PIL import Image

from cases import row

FOLDERS = [
    pathlib.Path(skimage.__file__).parent / "data",
    pathlib.Path(sklearn.__file__).parent / "datasets/images",
]
# A file, the shown part of it (none: all of it) and its content.
TRAINED = [
    ("astronaut.png", None, "A smiling astronaut in an orange suit in front of a flag."),
    ("astronaut.png", (300, 330, 512, 512), "A black and white astronaut's helmet."),
    ("astronaut.png", (0, 0, 150, 300), "The stripes of an American flag."),
    ("brick.png", None, "A grey brick wall with light mortar."),
    ("cell.png", None, "A bright round cell on a grey background."),
    ("coins.png", None, "Four rows of old silver coins on a dark cloth."),
    ("coins.png", (0, 0, 200, 100), "Six old coins, seen from above."),
    ("grass.png", None, "A lawn of grass in black and white."),
    ("gravel.png", None, "Many small grey stones."),
    ("horse.png", None, "The black silhouette of a standing horse."),
    ("hubble_deep_field.jpg", None, "Hundreds of distant galaxies on a black sky."),
    ("hubble_deep_field.jpg", (500, 300, 900, 700), "Orange and blue galaxies in the dark."),
    ("ihc.png", None, "Brown and blue tissue under a microscope."),
    ("motorcycle_left.png", None, "A red motorcycle in a garage."),
    ("motorcycle_left.png", (480, 200, 740, 480), "The front wheel of a motorcycle."),
    ("page.png", None, "A page of printed text about segmentation."),
    ("retina.jpg", None, "The red retina of an eye with its vessels."),
    ("rocket.jpg", None, "A white rocket on its launch pad at night."),
    ("china.jpg", None, "A Chinese pagoda above trees by a lake."),
    ("china.jpg", (60, 20, 340, 240), "The curved roofs of a pagoda under a pale sky."),
    ("flower.jpg", None, "An orange dahlia in front of dark leaves."),
    ("chelsea.png", None, "The face of a ginger cat with green eyes."),
]
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
