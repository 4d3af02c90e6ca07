"""Writes images/: small image files of every kind that the decoder accepts,
and expected.txt with PIL's pixels for each:

    name width height hex(RGB rows)    of ImageOps.exif_transpose(Image.open(name)).convert("RGB")

Run: python tests/goldens/make_images.py   (made with Pillow 13.0.0, numpy 2; seed 7)
"""

import io
import pathlib
import struct
import zlib

import numpy as np
from PIL import Image, ImageOps

OUT = pathlib.Path(__file__).parent / "images"
RANDOM = np.random.RandomState(7)
HEIGHT, WIDTH = 9, 13


def pixels(channels, height=HEIGHT, width=WIDTH):
    """Smooth waves with a little noise: JPEG and WebP have detail to keep
    and detail to lose."""
    y, x = np.mgrid[0:height, 0:width]
    waves = [
        127 + 100 * np.sin(x / (3.0 + c) + y / (4.0 - c / 2)) + RANDOM.randn(height, width) * 8
        for c in range(channels)
    ]
    return np.stack(waves, -1).clip(0, 255).astype(np.uint8)


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def raw_png(depth, colour, channels, palette_entries=0):
    """A PNG of random samples at any legal depth and colour type, which PIL itself cannot write."""
    row_bytes = (WIDTH * channels * depth + 7) // 8
    rows = b"".join(b"\0" + RANDOM.bytes(row_bytes) for _ in range(HEIGHT))
    palette = chunk(b"PLTE", RANDOM.bytes(3 * palette_entries)) if palette_entries else b""
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", WIDTH, HEIGHT, depth, colour, 0, 0, 0))
    return (
        b"\x89PNG\r\n\x1a\n"
        + header
        + palette
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )


def bmp(bits, height, masks=b"", palette=b""):
    data = RANDOM.bytes((WIDTH * bits + 31) // 32 * 4 * abs(height))
    offset = 54 + len(masks) + len(palette)
    info = struct.pack(
        "<IiiHHIIiiII",
        40,
        WIDTH,
        height,
        1,
        bits,
        3 if masks else 0,
        len(data),
        0,
        0,
        len(palette) // 4,
        0,
    )
    return (
        b"BM"
        + struct.pack("<IHHI", offset + len(data), 0, 0, offset)
        + info
        + masks
        + palette
        + data
    )


def exif(orientation):
    block = Image.Exif()
    block[0x0112] = orientation
    return block


def write_jpegs(rgb, grey):
    for subsampling in (0, 1, 2):
        rgb.save(OUT / f"ss{subsampling}.jpg", quality=70, subsampling=subsampling)
    rgb.save(OUT / "progressive.jpg", quality=80, progressive=True)
    rgb.save(OUT / "rgb_colours.jpg", keep_rgb=True)
    grey.save(OUT / "grey.jpg")
    Image.fromarray(pixels(4), "CMYK").save(OUT / "cmyk.jpg")
    for orientation in range(1, 9):
        rgb.save(OUT / f"exif{orientation}.jpg", exif=exif(orientation))
    rgb.save(
        OUT / "xmp6.jpg", xmp=b'<x:xmpmeta><rdf:Description tiff:Orientation="6"/></x:xmpmeta>'
    )
    rgb.save(OUT / "exif1_xmp6.jpg", exif=exif(1), xmp=b'<rdf:Description tiff:Orientation="6"/>')
    Image.fromarray(pixels(3, 1, 300)).save(OUT / "wide300.jpg")
    Image.fromarray(pixels(3, 300, 1)).save(OUT / "tall300.jpg")
    Image.fromarray(pixels(3, 1, 1)).save(OUT / "one_pixel.jpg")


def write_pngs(rgb, grey):
    greys = [(depth, 0, 1) for depth in (1, 2, 4, 8, 16)]
    colours = [
        (depth, colour, channels)
        for depth in (8, 16)
        for colour, channels in ((2, 3), (4, 2), (6, 4))
    ]
    for depth, colour, channels in greys + colours:
        (OUT / f"depth{depth}_colour{colour}.png").write_bytes(raw_png(depth, colour, channels))
    for depth in (1, 2, 4, 8):
        (OUT / f"depth{depth}_palette.png").write_bytes(raw_png(depth, 3, 1, 2**depth))
    rgb.quantize(31).save(OUT / "palette_transparent.png", transparency=3)
    rgb.save(OUT / "colour_key.png", transparency=tuple(int(v) for v in np.asarray(rgb)[0, 0]))
    rgb.save(OUT / "exif6.png", exif=exif(6))
    Image.fromarray(pixels(3, 1, 1)).save(OUT / "one_pixel.png")
    buffer = io.BytesIO()
    rgb.save(buffer, "PNG")
    (OUT / "png_named.jpg").write_bytes(buffer.getvalue())


def write_others(rgb, grey):
    rgba = Image.fromarray(pixels(4), "RGBA")
    rgb.save(OUT / "lossy.webp", quality=60)
    rgba.save(OUT / "lossy_alpha.webp", quality=60)
    rgb.save(OUT / "lossless.webp", lossless=True)
    rgba.save(OUT / "lossless_alpha.webp", lossless=True, exact=True)
    rgb.save(OUT / "exif8.webp", lossless=True, exif=exif(8))
    for bits, palette in ((1, 8), (4, 64), (8, 1024), (24, 0), (32, 0)):
        (OUT / f"bits{bits}.bmp").write_bytes(bmp(bits, HEIGHT, b"", RANDOM.bytes(palette)))
    (OUT / "top_down.bmp").write_bytes(bmp(24, -HEIGHT))
    (OUT / "masks.bmp").write_bytes(bmp(32, HEIGHT, struct.pack("<III", 0xFF0000, 0xFF00, 0xFF)))
    for compression in (None, "tiff_lzw", "tiff_adobe_deflate", "packbits", "jpeg"):
        rgb.save(OUT / f"rgb_{compression or 'plain'}.tif", compression=compression)
    grey.save(OUT / "grey.tif")
    grey.convert("1").save(OUT / "bilevel.tif")
    rgb.quantize(31).save(OUT / "palette.tif")
    Image.fromarray(pixels(1)[..., 0].astype(np.uint16) * 3).save(OUT / "deep_grey.tif")
    for orientation in range(2, 9):
        rgb.save(OUT / f"exif{orientation}.tif", exif=exif(orientation))


def main():
    OUT.mkdir(exist_ok=True)
    for old in OUT.iterdir():
        old.unlink()
    rgb, grey = Image.fromarray(pixels(3)), Image.fromarray(pixels(1)[..., 0])
    write_jpegs(rgb, grey)
    write_pngs(rgb, grey)
    write_others(rgb, grey)
    with open(OUT / "expected.txt", "w") as expected:
        for path in sorted(OUT.iterdir()):
            if path.name == "expected.txt":
                continue
            image = ImageOps.exif_transpose(Image.open(path)).convert("RGB")
            print(path.name, image.width, image.height, image.tobytes().hex(), file=expected)


if __name__ == "__main__":
    main()
