"""Image files as written by cameras, editors and old programs: orientations in every place and
type, bitmaps of every header, transparency. Written by hand where PIL cannot write them."""

import io
import struct
import zlib

import numpy
from PIL import Image

ORIENTATION = 0x0112
XMP = '<x:xmpmeta><rdf:Description tiff:Orientation="{}"/></x:xmpmeta>'
XMP_ELEMENT = "<x:xmpmeta><tiff:Orientation>{}</tiff:Orientation></x:xmpmeta>"


def noise(width, height, channels=3):
    rng = numpy.random.default_rng(width * 1000 + height)
    pixels = rng.integers(0, 256, (height, width, channels), dtype=numpy.uint8)
    return pixels[..., 0] if channels == 1 else pixels


def exif(value, kind="SHORT", order="<", more=b""):
    """An EXIF block containing only the orientation, stored as `kind`."""
    number, form = {
        "BYTE": (1, "B"),
        "ASCII": (2, None),
        "SHORT": (3, "H"),
        "LONG": (4, "I"),
        "RATIONAL": (5, "II"),
        "UNDEFINED": (7, "B"),
        "SSHORT": (8, "h"),
        "FLOAT": (11, "f"),
        "DOUBLE": (12, "d"),
        "unknown": (99, "H"),
    }[kind]
    values = {"ASCII": b"%d\0" % value, "RATIONAL": struct.pack(order + "II", 2 * value, 2)}
    data = values[kind] if kind in values else struct.pack(order + form, value)
    count = 2 if kind == "ASCII" else 1
    outside = data if len(data) > 4 else b""
    entry = struct.pack(order + "HHI", ORIENTATION, number, count)
    entry += struct.pack(order + "I", 26) if outside else data.ljust(4, b"\0")
    head = b"II*\0" if order == "<" else b"MM\0*"
    return head + struct.pack(order + "IH", 8, 1) + entry + bytes(4) + outside + more


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(pixels, before=b"", after=b"", depth=8, colour=2):
    """The chunks `before` and `after` the pixels, which are bytes of a row of 8 or 16 bits."""
    height, width = pixels.shape[:2]
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + before
        + chunk(b"IDAT", zlib.compress(rows))
        + after
        + chunk(b"IEND", b"")
    )


def raw_profile(block, name="exif"):
    lines = [block.hex()[i : i + 72] for i in range(0, 2 * len(block), 72)]
    return f"\n{name}\n{len(block):8}\n".encode() + "\n".join(lines).encode() + b"\n"


def itxt(keyword, text, compressed=False):
    flags = b"\1\0" if compressed else b"\0\0"
    return chunk(
        b"iTXt",
        keyword + b"\0" + flags + b"en\0word\0" + (zlib.compress(text) if compressed else text),
    )


def carriers(value):
    """name -> a chunk that contains the orientation, or seems to."""
    block = b"Exif\0\0" + exif(value)
    raw, key, xmp = raw_profile(block), b"Raw profile type exif", b"XML:com.adobe.xmp"
    text, element = XMP.format(value).encode(), XMP_ELEMENT.format(value).encode()
    return {
        "exif": chunk(b"eXIf", exif(value, order=">")),
        "exif-byte": chunk(b"eXIf", exif(value, "BYTE")) + itxt(xmp, text),
        "exif-none": chunk(b"eXIf", exif(value, "unknown")) + itxt(xmp, text),
        "exif-text": chunk(b"tEXt", b"exif\0" + block),
        "raw-ztxt": chunk(b"zTXt", key + b"\0\0" + zlib.compress(raw)),
        "raw-text": chunk(b"tEXt", key + b"\0" + raw),
        "raw-itxt": itxt(key, raw, compressed=True),
        "raw-app1": chunk(b"zTXt", b"Raw profile type APP1\0\0" + zlib.compress(raw)),
        "raw-damaged": chunk(b"zTXt", key + b"\0\0damaged") + itxt(xmp, text),
        "xmp": itxt(xmp, text),
        "xmp-compressed": itxt(xmp, element, compressed=True),
        "xmp-text": chunk(b"tEXt", xmp + b"\0" + text),
        "xmp-ztxt": chunk(b"zTXt", xmp + b"\0\0" + zlib.compress(element)),
        "xmp-twice": itxt(xmp, XMP.format(3).encode()) + itxt(xmp, text, compressed=True),
    }


def turned_pngs():
    """Orientations before and after the pixels, within 64 KiB of the beginning and later."""
    small, large = noise(13, 9), noise(230, 120)
    long_text = chunk(b"tEXt", b"parameters\0" + b"a prompt, " * 7000)
    made = {}
    for i, (name, piece) in enumerate(carriers(6).items()):
        made[f"{name}-before.png"] = png(small, before=piece)
        made[f"{name}-after.png"] = png(large, after=piece)
        if i % 4 == 0:
            made[f"{name}-long.png"] = png(small, before=long_text + piece)
    for value in range(10):
        made[f"exif{value}.png"] = png(large, after=chunk(b"eXIf", exif(value)))
        made[f"raw{value}.png"] = png(small, before=carriers(value)["raw-ztxt"])
    made["after-end.png"] = png(small) + chunk(b"eXIf", exif(6))
    frames = io.BytesIO()
    first, second = (Image.fromarray(noise(13, 9) // k) for k in (1, 2))
    first.save(frames, "png", save_all=True, append_images=[second])
    end = chunk(b"IEND", b"")
    made["animated.png"] = frames.getvalue().replace(end, chunk(b"eXIf", exif(6)) + end)
    return made


def turned_jpegs():
    image, made = Image.fromarray(noise(40, 24)), {}

    def save(name, *segments):
        plain = io.BytesIO()
        image.save(plain, "jpeg", quality=95)
        said = b"".join(
            b"\xff\xe1" + struct.pack(">H", len(segment) + 2) + segment for segment in segments
        )
        made[name] = plain.getvalue()[:2] + said + plain.getvalue()[2:]

    xmp = b"http://ns.adobe.com/xap/1.0/\0" + XMP.format(8).encode()
    for kind in "BYTE ASCII SHORT LONG RATIONAL UNDEFINED SSHORT FLOAT DOUBLE unknown".split():
        save(f"{kind}.jpg", b"Exif\0\0" + exif(6, kind))
        save(f"{kind}-xmp.jpg", b"Exif\0\0" + exif(6, kind, ">"), xmp)
    save("xmp.jpg", xmp)
    save("no-tiff.jpg", b"Exif\0\0" + b"XX" + exif(6)[2:], xmp)
    block = exif(6, "DOUBLE")
    save("two-segments.jpg", b"Exif\0\0" + block[:26], b"Exif\0\0" + block[26:])
    save("large.jpg", b"Exif\0\0" + exif(6, more=bytes(60000)), xmp + bytes(20000))
    return made


def turned_others():
    made = {}
    for name, size in {"small": (40, 24), "large": (200, 180)}.items():
        image = Image.fromarray(noise(*size))
        for kind, options in {
            "exif.webp": {"exif": b"Exif\0\0" + exif(6), "lossless": True},
            "xmp.webp": {"xmp": XMP.format(6).encode(), "lossless": True},
            "tag.tif": {"tiffinfo": {ORIENTATION: 6}},
            "xmp.tif": {"tiffinfo": {700: XMP.format(6).encode()}},
            "strips.tif": {"tiffinfo": {ORIENTATION: 8, 278: 5}},
        }.items():
            file = io.BytesIO()
            image.save(file, kind.rpartition(".")[2].replace("tif", "tiff"), **options)
            made[f"{name}-{kind}"] = file.getvalue()
    flagged = bytearray(made["small-exif.webp"])
    flagged[20] &= ~0x08  # EXIF that the file's first chunk does not announce
    made["not-announced.webp"] = bytes(flagged)
    return made


def bitmap(
    width,
    height,
    bits,
    *,
    header=40,
    palette=None,
    used=None,
    offset=None,
    masks=(),
    top_down=False,
):
    """`palette` of (red, green, blue); `offset` of the pixels, by default their actual one."""
    rng = numpy.random.default_rng(bits * 100 + header)
    pixels = rng.integers(0, 256, ((width * bits + 31) // 32 * 4) * height, numpy.uint8).tobytes()
    entry = 3 if header == 12 else 4
    colours = b"".join(bytes(c[::-1]).ljust(entry, b"\0") for c in palette or [])
    if header == 12:
        head = struct.pack("<IHHHH", 12, width, height, 1, bits)
    else:
        high = -height if top_down else height
        head = struct.pack("<IiiHHI", header, width, high, 1, bits, 3 if masks else 0)
        head += struct.pack("<IiiII", len(pixels), 0, 0, used or 0, 0)
        if header > 40:
            four = tuple(masks) + (0,) * (4 - len(masks))
            head += struct.pack("<IIII", *four)[: header - 40]
            head = head.ljust(header, b"\0")
        elif masks:
            head += struct.pack("<III", *masks[:3])
    at = 14 + len(head) + len(colours) if offset is None else offset
    size = 14 + len(head) + len(colours) + len(pixels)
    return b"BM" + struct.pack("<IHHI", size, 0, 0, at) + head + colours + pixels


def bitmaps():
    rng = numpy.random.default_rng(5)
    made = {}
    for bits in (1, 4, 8):
        palette = rng.integers(0, 256, (1 << bits, 3)).tolist()
        made[f"os2-{bits}.bmp"] = bitmap(21, 6, bits, header=12, palette=palette)
        made[f"windows-{bits}.bmp"] = bitmap(21, 6, bits, palette=palette, top_down=bits == 4)
        made[f"v5-{bits}.bmp"] = bitmap(21, 6, bits, header=124, palette=palette)
        for offset in (0, 54):  # nothing, or into the palette
            made[f"offset{offset}-{bits}.bmp"] = bitmap(21, 6, bits, palette=palette, offset=offset)
        made[f"offset26-{bits}.bmp"] = bitmap(21, 6, bits, header=12, palette=palette, offset=26)
        few = palette[: (1 << bits) // 2 + 1]
        made[f"few-{bits}.bmp"] = bitmap(21, 6, bits, palette=few, used=len(few))
    grey = [[i] * 3 for i in range(256)]
    made["grey-8.bmp"] = bitmap(21, 6, 8, palette=grey)
    made["grey-few-8.bmp"] = bitmap(21, 6, 8, palette=grey[:100], used=100)
    made["grey-two-1.bmp"] = bitmap(21, 6, 1, palette=[[0] * 3, [255] * 3])
    made["white-first-1.bmp"] = bitmap(21, 6, 1, palette=[[255] * 3, [0] * 3])
    made["grey-4.bmp"] = bitmap(21, 6, 4, palette=grey[:16])
    made["grey-two-8.bmp"] = bitmap(21, 6, 8, palette=[[0] * 3, [255] * 3], used=2)
    for bits in (16, 24, 32):
        made[f"plain-{bits}.bmp"] = bitmap(21, 6, bits)
        made[f"plain-{bits}-down.bmp"] = bitmap(21, 6, bits, top_down=True)
    made["os2-24.bmp"] = bitmap(21, 6, 24, header=12)
    a, b, c, d = 0xFF, 0xFF00, 0xFF0000, 0xFF000000
    fields = [(c, b, a), (d, c, b), (d, b, a), (d, c, b, a), (a, b, c, d), (c, b, a, d)]
    fields += [(d, b, a, c), (0, 0, 0), (a, b, c), (0x3FF00000, 0xFFC00, 0x3FF)]
    for header in (40, 56, 108):
        for i, masks in enumerate(fields):
            made[f"fields{i}-{header}.bmp"] = bitmap(21, 6, 32, header=header, masks=masks)
    for name, masks in {"565": (0xF800, 0x7E0, 0x1F), "555": (0x7C00, 0x3E0, 0x1F)}.items():
        made[f"{name}.bmp"] = bitmap(21, 6, 16, header=56, masks=masks)
    made["fields-24.bmp"] = bitmap(21, 6, 24, masks=(c, b, a))
    return made


def transparent_images():
    """Black on a transparent background, and every alpha, in each form that has one."""
    rgba = noise(16, 16, 4)
    rgba[..., 3] = numpy.arange(256, dtype=numpy.uint8).reshape(16, 16)
    image, made = Image.fromarray(rgba), {}

    def save(name, picture, **options):
        file = io.BytesIO()
        picture.save(file, name.rpartition(".")[2], **options)
        made[name] = file.getvalue()

    save("rgba.png", image)
    save("la.png", image.convert("LA"))
    save("rgba.webp", image, lossless=True, exact=True)
    save("lossy.webp", image, quality=90)
    save("turned.webp", image, lossless=True, exact=True, exif=b"Exif\0\0" + exif(6))
    palette = Image.fromarray(noise(16, 16)).quantize(16)
    save("palette.png", palette, transparency=bytes(range(0, 256, 16)))
    save("palette-one.png", palette, transparency=3)
    save("grey-key.png", Image.fromarray(noise(16, 16, 1) // 16), transparency=7)
    colours = Image.fromarray(noise(16, 16) // 128 * 200)
    save("colour-key.png", colours, transparency=(200, 0, 200))
    save("bilevel-key.png", Image.fromarray(noise(16, 16, 1)).convert("1"), transparency=1)
    deep = numpy.random.default_rng(1).integers(0, 65536, (8, 8, 4)).astype(">u2")
    made["rgba-16.png"] = png(deep, depth=16, colour=6)
    made["la-16.png"] = png(deep[..., :2], depth=16, colour=4)
    key = chunk(b"tRNS", deep[0, 0, :3].tobytes())
    made["colour-key-16.png"] = png(deep[..., :3], before=key, depth=16)
    made["opaque.png"] = png(noise(16, 16))
    a, b, c, d = 0xFF, 0xFF00, 0xFF0000, 0xFF000000
    made["fields.bmp"] = bitmap(16, 16, 32, header=56, masks=(c, b, a, d))
    made["unused.bmp"] = bitmap(16, 16, 32)
    written = numpy.zeros((20, 20, 4), numpy.uint8)
    written[5:8, 3:17, 3] = 255
    for name in ("blank.png", "blank.webp"):
        save(name, Image.fromarray(written), lossless=True, exact=True)
    save("blank-la.png", Image.fromarray(written).convert("LA"))
    return made
