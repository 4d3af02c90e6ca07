"""Writes the quickstart's real data: the UCI optdigits test set, as scikit-learn redistributes it,
as PNG files and LLaVA JSON.

  digits.py OUT_DIR      writes OUT_DIR/images/*.png, OUT_DIR/train.json, OUT_DIR/held_out.json, and
                         OUT_DIR/pairs.json: the rows of train.json with the right digit over a
                         wrong one

Optical Recognition of Handwritten Digits, E. Alpaydin and C. Kaynak (1998), UCI Machine Learning
Repository, CC BY 4.0, https://doi.org/10.24432/C50P49. 1,797 digits written by 13 people, scanned
to 8x8 pixels with 17 grey levels. 500 of them, spread evenly, are held out.
"""

import argparse
import json
import pathlib

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits

QUESTION = "<image>\nWhich digit is this?"


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=pathlib.Path)
    args = parser.parse_args()
    (args.out / "images").mkdir(parents=True, exist_ok=True)
    digits = load_digits()
    train, held_out = [], []
    for index, (pixels, label) in enumerate(zip(digits.images, digits.target)):
        name = f"{index:04d}.png"
        Image.fromarray(np.minimum(255, pixels * 16).astype(np.uint8)).save(
            args.out / "images" / name, optimize=True
        )
        row = {
            "id": f"digit-{index:04d}",
            "image": name,
            "conversations": [
                {"from": "human", "value": QUESTION},
                {"from": "gpt", "value": str(label)},
            ],
        }
        (held_out if index * 500 // 1797 != (index + 1) * 500 // 1797 else train).append(row)
    for name, rows in (("train", train), ("held_out", held_out)):
        (args.out / f"{name}.json").write_text(
            "[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n"
        )
    pairs = [
        {
            "id": row["id"],
            "image": row["image"],
            "prompt": QUESTION,
            "chosen": (digit := row["conversations"][1]["value"]),
            "rejected": str((int(digit) + 1 + number % 9) % 10),
        }
        for number, row in enumerate(train)
    ]
    (args.out / "pairs.json").write_text(
        "[\n" + ",\n".join(json.dumps(row) for row in pairs) + "\n]\n"
    )
    print(f"{len(train)} to train on, {len(held_out)} held out")


if __name__ == "__main__":
    main()
