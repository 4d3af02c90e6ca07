"""A LLaVA and a SmolVLM of published weights (scripts/published), which training has shaped as no
tiny model: scores against transformers, and no false alarm."""

import functools
import sys

import pytest

import families
from photographs import HELD_OUT, write_photographs
from cases import row
from test_families import FamilyPeer
from tools import ROOT, lft, score, write_rows

sys.path.append(str(ROOT / "scripts/published"))
import assemble  # noqa: E402, from the folder of the line before

TOLERANCE = 2e-4  # nats a token; float32 through 30 layers differs by up to 5e-5
SIZES = dict(image_size=assemble.SIDE, patch_size=assemble.PATCH)
families.SPECS["published_llava"] = dict(
    family="llava", decoder="qwen2", tower="siglip", vision=SIZES
)
families.SPECS["published_smolvlm"] = dict(family="smolvlm", vision=SIZES)
TEMPLATES = dict(llava="qwen3-vl", smolvlm="smolvlm")
FITS = dict(llava="crop", smolvlm="auto")  # as the processors do
PROJECTORS = dict(llava=["linear_1", "linear_2"], smolvlm=["modality_projection.proj"])
TEXTS = [("licence", "LICENSE", 900), ("code", "scripts/published/onnx_file.py", 600)]


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """ "llava" or "smolvlm" -> the checkpoint's folder."""
    root = tmp_path_factory.mktemp("published")
    return functools.cache(lambda kind: assemble.assemble(kind, root / kind))


@pytest.fixture(scope="module")
def photographs(tmp_path_factory):
    """The folder of the images."""
    root = tmp_path_factory.mktemp("photographs")
    write_photographs(HELD_OUT, root)
    return root


@pytest.fixture(scope="module")
def scored(published, photographs, tmp_path_factory):
    """kind -> rows of photographs, text and code, and what lft score says of them."""
    texts = [
        row(name, [("Go on.", (ROOT / path).read_text()[:length])]) for name, path, length in TEXTS
    ]

    def get(kind):
        folder = tmp_path_factory.mktemp(kind)
        rows = write_photographs(HELD_OUT, photographs) + texts
        data = write_rows(folder / "rows.jsonl", rows)
        more = ["--template", TEMPLATES[kind]]
        more += [] if FITS[kind] == "auto" else ["--image-fit", FITS[kind]]
        return rows, score(folder / "out.jsonl", published(kind), data, photographs, *more)

    return functools.cache(get)


@pytest.mark.parametrize("kind", TEMPLATES)
def test_scores_of_published_weights(kind, published, photographs, scored):
    peer = FamilyPeer(f"published_{kind}", published(kind))
    rows, lines = scored(kind)
    for item, line in zip(rows, lines, strict=True):
        ids, labels, extra = peer.encode(item, photographs)
        assert (line["input_ids"], line["labels"]) == (ids, labels), item["id"]
        want = peer.logprobs(ids, labels, extra)
        assert line["logprobs"] == pytest.approx(want, abs=TOLERANCE), item["id"]


@pytest.mark.parametrize("kind", TEMPLATES)
def test_of_a_sound_base_only_the_random_projector_is_named(kind, published):
    said = lft("debug", "base", published(kind)).stdout.splitlines()
    suspicions = [line for line in said[:-1] if not line.startswith("not judged: ")]
    assert len(suspicions) == len(PROJECTORS[kind]), suspicions
    for part in PROJECTORS[kind]:
        found = [line for line in suspicions if line.split(":")[0].endswith(f"{part}.weight")]
        assert len(found) == 1 and "looks random" in found[0], suspicions
