"""The images of Pillow's own tests (its pinned sdist) are read with PIL's pixels, or refused with
the name of their format; no JPEG, PNG, WebP, GIF, BMP or AVIF that PIL reads is refused."""

import hashlib
import pathlib
import subprocess
import warnings

import pillow_heif
import pytest
from PIL import Image, ImageOps

from tools import BUILD

IMAGES = pathlib.Path(__file__).resolve().parents[2] / ".deps/pillow"
DRIVER = BUILD / "tests/image_driver"
READ = {"JPEG", "MPO", "PNG", "WEBP", "GIF", "BMP", "AVIF"}
# Formats with some refused files, and the name in the error.
PARTLY = {
    "TIFF": ("colour space 8", "BigTIFF", "not unsigned", "12 bits", "premultiplied"),
    "PPM": ("a PFM",),
}


def as_pil(path):
    """The format, and size and hash of the pixels; nothing if PIL refuses the file."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            image = Image.open(path)
            kind = image.format
            image = ImageOps.exif_transpose(image).convert("RGB")
    except Exception:  # PIL raises any type: struct.error, IndexError, EOFError, ...
        return None
    pixels = hashlib.sha256(image.tobytes()).hexdigest()
    return kind, f"{image.width} {image.height} {pixels}"


@pytest.fixture(scope="module")
def results():
    """Results of PIL and lft for each file that PIL reads, by name."""
    files = sorted(path for path in IMAGES.rglob("*") if path.suffix not in ("", ".txt"))
    want = {path: read for path in files if (read := as_pil(path)) is not None}
    out = subprocess.run([DRIVER, *want], check=True, capture_output=True, text=True, timeout=300)
    assert out.stderr == ""
    lines = out.stdout.splitlines()
    assert len(lines) == len(want) > 700
    return {
        path.name: (kind, pixels, line)
        for (path, (kind, pixels)), line in zip(want.items(), lines, strict=True)
    }


def test_no_file_has_other_pixels(results):
    other = {
        name: kind
        for name, (kind, pixels, line) in results.items()
        if line != pixels and not line.startswith("refused")
    }
    assert other == {}


def test_what_people_train_on_is_read(results):
    refused = {name for name, (kind, pixels, line) in results.items() if line != pixels}
    assert {name for name in refused if results[name][0] in READ} == set()
    kinds = [kind for kind, pixels, line in results.values() if line == pixels]
    assert len(kinds) > 650
    assert {"JPEG", "MPO", "PNG", "WEBP", "GIF", "BMP", "AVIF", "TIFF", "PPM"} == set(kinds)


def test_what_is_refused_is_named(results):
    for name, (kind, pixels, line) in results.items():
        if line == pixels:
            continue
        assert line.startswith(("refused error: unsupported image", "refused error: not an image"))
        if kind in PARTLY:
            assert any(part in line for part in PARTLY[kind]), line


@pytest.mark.parametrize("size", [(480, 360), (101, 77), (64, 65)])
@pytest.mark.parametrize("orientation", [1, 3, 6, 8])
def test_heic_is_read_as_shown(size, orientation, tmp_path):
    """Colours at full resolution: chroma interpolation depends on libheif's version."""
    pillow_heif.register_heif_opener()
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = tmp_path / "a.heic"
    flower = next(IMAGES.rglob("flower.jpg"))
    image = Image.open(flower).convert("RGB").crop((0, 0, *size))
    image.save(path, quality=80, chroma=444, exif=exif)
    out = subprocess.run([DRIVER, path], check=True, capture_output=True, text=True)
    assert (as_pil(path)[0], out.stdout.strip()) == ("HEIF", as_pil(path)[1])
    cut = path.read_bytes()[:-200]
    path.write_bytes(cut)
    out = subprocess.run([DRIVER, path], check=True, capture_output=True, text=True)
    assert out.stdout.startswith("refused"), out.stdout
