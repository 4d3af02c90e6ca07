"""Writes the pre-training data of the quickstart base: drawn shapes, colours and pen strokes,
and a few rows of text. No digit or letter is drawn.

  draw.py OUT_DIR [--count N] [--seed S]     writes OUT_DIR/images/*.png and OUT_DIR/train.json,
                                             eval.json (LLaVA JSON)

A third of the images are coloured shapes at full size; the rest are pen strokes, box-filtered down
to 8x8 with 17 grey levels, the way the UCI handwritten digits were scanned, so that the vision
tower has seen such images before the digits. One row in eight has no image: it
writes numbers, so that the digit tokens have a meaning before an image of a digit is seen.
"""

import argparse
import json
import math
import pathlib
import random

import numpy as np
from PIL import Image, ImageDraw

SIZE = 64
COLOURS = {
    "red": (220, 40, 40),
    "green": (40, 180, 60),
    "blue": (50, 80, 230),
    "yellow": (235, 215, 50),
    "white": (240, 240, 240),
    "purple": (160, 60, 190),
}
SHAPES = ["circle", "square", "triangle", "cross", "ring", "bar"]
ROWS, COLUMNS = ["top", "middle", "bottom"], ["left", "centre", "right"]
NUMBER = ["none", "one", "two", "three", "four"]


def place(x, y):
    return f"{ROWS[min(2, int(3 * y))]} {COLUMNS[min(2, int(3 * x))]}"


def draw_shape(rng):
    """One coloured shape on a dark ground: its name, colour and place."""
    image = Image.new("RGB", (SIZE, SIZE), tuple(rng.randrange(0, 50) for _ in range(3)))
    pen = ImageDraw.Draw(image)
    name, colour = rng.choice(SHAPES), rng.choice(list(COLOURS))
    radius = rng.uniform(7, 14)
    x, y = rng.uniform(radius, SIZE - radius), rng.uniform(radius, SIZE - radius)
    box, fill = (x - radius, y - radius, x + radius, y + radius), COLOURS[colour]
    if name == "circle":
        pen.ellipse(box, fill=fill)
    elif name == "square":
        pen.rectangle(box, fill=fill)
    elif name == "triangle":
        pen.polygon(
            [(x, y - radius), (x - radius, y + radius), (x + radius, y + radius)], fill=fill
        )
    elif name == "ring":
        pen.ellipse(box, outline=fill, width=4)
    elif name == "bar":
        pen.rectangle((x - radius, y - 3, x + radius, y + 3), fill=fill)
    else:
        pen.line((x - radius, y - radius, x + radius, y + radius), fill=fill, width=4)
        pen.line((x - radius, y + radius, x + radius, y - radius), fill=fill, width=4)
    question, answer = rng.choice(
        [
            ("Which shape is this?", name),
            ("Which colour is it?", colour),
            ("Where is it?", place(x / SIZE, y / SIZE)),
            ("Describe the shape.", f"{colour} {name}"),
        ]
    )
    return image, question, answer


def arc(rng, closed):
    """Points of a complete or partial ellipse in the unit square; closed ones form a loop."""
    cx, cy, rx, ry = (
        rng.uniform(0.3, 0.7),
        rng.uniform(0.25, 0.75),
        rng.uniform(0.12, 0.3),
        rng.uniform(0.12, 0.25),
    )
    start, sweep = (
        rng.uniform(0, 2 * math.pi),
        2 * math.pi if closed else rng.uniform(0.6, 1.5) * math.pi,
    )
    return [
        (cx + rx * math.cos(start + sweep * t / 24), cy + ry * math.sin(start + sweep * t / 24))
        for t in range(25)
    ]


def segment(rng):
    """A straight stroke: its points and the name of its direction."""
    kind = rng.choice(["level", "upright", "falling", "rising"])
    x, y, half = rng.uniform(0.35, 0.65), rng.uniform(0.3, 0.7), rng.uniform(0.18, 0.3)
    dx, dy = {
        "level": (half, 0),
        "upright": (0, half),
        "falling": (half * 0.8, half * 0.8),
        "rising": (half * 0.8, -half * 0.8),
    }[kind]
    dx, dy = dx + rng.uniform(-0.05, 0.05), dy + rng.uniform(-0.05, 0.05)
    return [(x - dx, y - dy), (x + dx, y + dy)], kind


def opening(points):
    """The side on which an arc is open: direction of the middle of its gap from its centre."""
    cx, cy = sum(p[0] for p in points) / len(points), sum(p[1] for p in points) / len(points)
    gx, gy = (points[0][0] + points[-1][0]) / 2 - cx, (points[0][1] + points[-1][1]) / 2 - cy
    if abs(gx) > abs(gy):
        return "right" if gx > 0 else "left"
    return "bottom" if gy > 0 else "top"


def scan(strokes, rng):
    """Draws strokes with a thick pen and box-filters them to 8x8 with 17 grey levels,
    like a digit scanner."""
    scale = 32
    canvas = Image.new("L", (8 * scale, 8 * scale), 0)
    pen, width = ImageDraw.Draw(canvas), rng.randrange(22, 40)
    for points in strokes:
        scaled = [(x * 8 * scale, y * 8 * scale) for x, y in points]
        pen.line(scaled, fill=255, width=width, joint="curve")
        for x, y in (scaled[0], scaled[-1]):
            pen.ellipse((x - width / 2, y - width / 2, x + width / 2, y + width / 2), fill=255)
    grey = np.asarray(canvas, dtype=np.float64).reshape(8, scale, 8, scale).mean(axis=(1, 3))
    return Image.fromarray(np.minimum(255, np.round(grey / 255 * 16) * 16).astype(np.uint8))


def ink_map(image):
    """The picture in words, row by row of a 4x4 grid: # dark with ink, o some, . none.
    Answering it requires every position of the image."""
    cells = (
        np.asarray(image, dtype=np.float64).reshape(4, 2, 4, 2).mean(axis=(1, 3)).flatten() / 255
    )
    return " ".join("#" if cell > 0.45 else "o" if cell > 0.15 else "." for cell in cells)


def draw_strokes(rng):
    """One to four strokes and a question about their ink, number, kind, direction,
    opening or place."""
    kinds = [rng.choice(["line", "arc", "loop"]) for _ in range(rng.choice([1, 1, 2, 2, 3, 4]))]
    strokes, directions, openings = [], [], []
    for kind in kinds:
        if kind == "line":
            points, direction = segment(rng)
            directions.append(direction)
        else:
            points = arc(rng, kind == "loop")
            if kind == "arc":
                openings.append(opening(points))
        strokes.append(points)
    tasks = [
        ("How many loops?", NUMBER[kinds.count("loop")]),
        ("How many lines?", NUMBER[kinds.count("line")]),
        ("How many strokes?", NUMBER[len(kinds)]),
    ]
    if len(kinds) == 1:
        tasks.append(("Which stroke is this?", kinds[0]))
        everything = [point for stroke in strokes for point in stroke]
        tasks.append(
            (
                "Where is it?",
                place(
                    sum(p[0] for p in everything) / len(everything),
                    sum(p[1] for p in everything) / len(everything),
                ),
            )
        )
    if len(directions) == 1:
        tasks.append(("Which way does the line go?", directions[0]))
    if len(openings) == 1:
        tasks.append(("Where does the arc open?", openings[0]))
    tasks.append(("List the strokes.", " ".join(sorted(kinds))))
    image = scan(strokes, rng)
    if rng.random() < 0.5:
        return image, "Map the ink.", ink_map(image)
    return image, *rng.choice(tasks)


WORDS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]


def write_number(rng):
    """A row without an image: digits occur only here, as text."""
    value = rng.randrange(10)
    return rng.choice(
        [
            (f"Write {WORDS[value]} as a number.", str(value)),
            (f"Which number follows {(value - 1) % 10}?", str(value)),
            (f"Which number comes before {(value + 1) % 10}?", str(value)),
        ]
    )


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--count", type=int, default=40000)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    rng = random.Random(args.seed)
    (args.out / "images").mkdir(parents=True, exist_ok=True)
    rows = []
    for index in range(args.count):
        if index % 8 == 7:
            question, answer = write_number(rng)
            rows.append(
                {
                    "id": f"text-{index:05d}",
                    "conversations": [
                        {"from": "human", "value": question},
                        {"from": "gpt", "value": answer},
                    ],
                }
            )
            continue
        image, question, answer = draw_shape(rng) if index % 3 == 0 else draw_strokes(rng)
        name = f"{index:05d}.png"
        image.save(args.out / "images" / name)
        rows.append(
            {
                "id": f"drawing-{index:05d}",
                "image": name,
                "conversations": [
                    {"from": "human", "value": f"<image>\n{question}"},
                    {"from": "gpt", "value": answer},
                ],
            }
        )
    held_out = min(500, args.count // 10)
    (args.out / "train.json").write_text(json.dumps(rows[:-held_out]))
    (args.out / "eval.json").write_text(json.dumps(rows[-held_out:]))


if __name__ == "__main__":
    main()
