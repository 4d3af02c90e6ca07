"""Each family other than LLaVA-1.5 against transformers and PEFT: tokens, pixels, scores, answers,
training, adapters, merges. FP32.

The prompts come from the models' own Jinja templates, rendered by transformers; the labels are
found in the ids, without offsets.
"""

import contextlib
import functools
import io
import json
import pathlib
import random
import re

import pytest
import torch
import yaml
from huggingface_hub import ModelCard
from peft import LoraConfig, PeftModel, get_peft_model
from PIL import Image
from safetensors.torch import load_file
from transformers import (
    AutoProcessor,
    AutoTokenizer,
    GotOcr2ImageProcessor,
    Idefics3Processor,
    Qwen2VLImageProcessor,
)
from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil
from transformers.models.smolvlm.image_processing_pil_smolvlm import SmolVLMImageProcessorPil

import families
import internvl_chat
import reference
from cases import ROWS, row
from family_experts import Choices
from family_specs_moe import BOTH
from prepared import read_prepared
from test_readme import code_of
from tools import driver, lft, score, step_lines, write_notes, write_rows

TOLERANCE = 1e-3  # nats
RELATIVE = 1e-4
NEAREST = 1e-5  # probabilities of experts differ by more than their rounding, of some 1e-6
STEPS, BATCH = 20, 2
FAMILY_ROWS = [
    *ROWS,
    row(
        "chat",
        [("Say <image> and <image> apart.", "One is tall."), ("And now?", "Both.")],
        ["tall.png", "flower.jpg"],
    ),
]
NAMES = list(families.SPECS)
TRAINED = [
    "chat_gqa",
    "intern_gqa",
    "intern_qwen3_norms",
    "qwen2_gqa",
    "qwen25_gqa",
    "qwen3_gqa",
    "qwen35_gqa",
    "moe_gqa",
    "moe35_gqa",
    "smol_tied",
    "llava_qwen2_siglip",
    "next_mistral",
    "onevision",
    "gemma_gqa",
]


@pytest.fixture(scope="session")
def family_dir(tmp_path_factory):
    return functools.cache(
        lambda name: families.build(name, tmp_path_factory.mktemp("families") / name)
    )


@pytest.fixture(scope="session")
def family_rows(tmp_path_factory):
    return write_rows(tmp_path_factory.mktemp("family-rows") / "rows.jsonl", FAMILY_ROWS)


def is_smol(name):
    return families.SPECS[name]["family"] in ("smolvlm", "idefics3")


def is_wide(name):
    return families.SPECS[name]["family"] in families.WIDE


def is_intern(name):
    return families.SPECS[name]["family"] == "internvl"


def is_original(name):
    return families.SPECS[name].get("original", False)


def is_gemma(name):
    return families.SPECS[name]["family"] == "gemma3"


def adapted_experts(name):
    """The projections of experts that the tests train; none: there are none, or not these."""
    return families.SPECS[name].get("adapted", [])


def fit_of(name):
    """lft's default fit for the family's images."""
    spec = families.SPECS[name]
    return "pad" if spec["family"] == "llava" and spec["tower"] == "clip" else "native"


IMAGE = re.compile(r"(\n<image>(?!\n)|<image>\n?)")  # one newline next to a mark belongs to it
END = "\uf8ff"  # replaced by an end token that the template does not write


def messages_of(item, generate=False):
    """OpenAI-like messages; each mark becomes an image part at its position."""
    messages = []
    turns = reference.turns_of(item)
    for number, (question, answer) in enumerate(turns):
        parts = [
            dict(type="image") if "<image>" in piece else dict(type="text", text=piece)
            for piece in IMAGE.split(question)
            if piece
        ]
        messages.append(dict(role="user", content=parts))
        if not (generate and number == len(turns) - 1):
            messages.append(dict(role="assistant", content=[dict(type="text", text=answer)]))
    return messages


def with_ends(messages):
    """The same with END after each answer."""
    out = []
    for message in messages:
        said = message["content"]
        if message["role"] == "assistant":
            said = [dict(type="text", text=said[0]["text"] + END)]
        out.append(dict(role=message["role"], content=said))
    return out


class FamilyPeer:
    """A checkpoint loaded in transformers; with `adapter`, in PEFT."""

    def __init__(self, name, path, adapter=None, trainable=False):
        self.name, self.path, self.spec = name, pathlib.Path(path), families.SPECS[name]
        self.tokenizer = AutoTokenizer.from_pretrained(path)
        if is_original(name) and "<IMG_CONTEXT>" not in self.tokenizer.chat_template:
            self.tokenizer.chat_template = internvl_chat.CHAT_TEMPLATE
        self.model = families.load_model(path).eval()
        self.choices = Choices(self.model)
        self.image_token = self.model.config.image_token_id
        if adapter is not None:
            self.model = PeftModel.from_pretrained(
                self.model, adapter, is_trainable=trainable
            ).eval()
        self.known = None if trainable else {}  # log-probabilities by inputs

    def inputs(self, item, root, generate=False):
        """ids (a list) and the model's other inputs."""
        text = self.text_of(messages_of(item, generate), generate)
        return (self.wide_inputs if is_wide(self.name) else self.inputs_of)(text, item, root)

    def text_of(self, messages, generate=False):
        """The checkpoint's own template; if it does not end turns, the tokenizer's EOS does."""
        ends = "</s>" if is_wide(self.name) and self.spec["decoder"] == "llama" else ""
        text = self.tokenizer.apply_chat_template(
            with_ends(messages) if ends else messages,
            tokenize=False,
            add_generation_prompt=generate,
        )
        return text.replace(END, ends)

    def inputs_of(self, text, item, root):
        """The same for a text that contains the image marks."""
        images = [
            reference.open_image(pathlib.Path(root) / name) for name in reference.images_of(item)
        ]
        if is_gemma(self.name):  # the checkpoint's Jinja has written <bos>
            processor = AutoProcessor.from_pretrained(self.path)
            plain = not text.startswith("<bos>")
            made = processor(
                text=[text],
                images=[images] if images else None,
                add_special_tokens=plain,
                return_tensors="pt",
            )
            return made["input_ids"][0].tolist(), {
                key: made[key] for key in ("pixel_values",) if key in made
            }
        if is_original(self.name):
            return self.original_inputs(text, images)
        if is_intern(self.name):
            processor = AutoProcessor.from_pretrained(self.path)
            made = processor(text=[text], images=images or None, return_tensors="pt")
            extra = {key: made[key] for key in ("pixel_values",) if key in made}
            return made["input_ids"][0].tolist(), extra
        if is_smol(self.name):
            kind = (
                SmolVLMImageProcessorPil
                if self.spec["family"] == "smolvlm"
                else Idefics3ImageProcessorPil
            )
            file = json.loads((self.path / "processor_config.json").read_text())
            processor = Idefics3Processor(
                kind(**file["image_processor"]), self.tokenizer, image_seq_len=file["image_seq_len"]
            )
            made = processor(text=[text], images=[images] if images else None, return_tensors="pt")
            extra = {
                key: made[key] for key in ("pixel_values", "pixel_attention_mask") if key in made
            }
            return made["input_ids"][0].tolist(), extra
        extra = {}
        if images:
            made = Qwen2VLImageProcessor.from_pretrained(self.path)(
                images=images, return_tensors="pt"
            )
            extra = dict(pixel_values=made["pixel_values"], image_grid_thw=made["image_grid_thw"])
            for grid in made["image_grid_thw"]:
                count = int(grid.prod()) // 4
                text = text.replace("<|image_pad|>", "<|placeholder|>" * count, 1)
            text = text.replace("<|placeholder|>", "<|image_pad|>")
        return self.tokenizer(text, add_special_tokens=False)["input_ids"], extra

    def original_inputs(self, text, images):
        """With the same tiles as in transformers' layout."""
        extra = {}
        if images:
            file = json.loads((self.path / "preprocessor_config.json").read_text())
            fewest, most = self.spec["tiles"]
            made = GotOcr2ImageProcessor(
                size=dict(height=file["size"], width=file["size"]),
                image_mean=file["image_mean"],
                image_std=file["image_std"],
                min_patches=fewest,
                max_patches=file.get("max_patches", most),
                crop_to_patches=True,
            )(images, return_tensors="pt")
            extra = dict(pixel_values=made["pixel_values"])
            for tiles in made["num_patches"]:
                count = families.intern_positions(self.spec) * int(tiles)
                text = text.replace("<IMG_CONTEXT>", f"<img>{'<tile>' * count}</img>", 1)
            text = text.replace("<tile>", "<IMG_CONTEXT>")
        return self.tokenizer(text, add_special_tokens=False)["input_ids"], extra

    def wide_inputs(self, text, item, root, pads=True):
        """From the model's own processor, all images of the row together."""
        processor = AutoProcessor.from_pretrained(self.path)
        images = [
            reference.open_image(pathlib.Path(root) / name) for name in reference.images_of(item)
        ]
        if pads and fit_of(self.name) == "pad":  # if transformers crops
            images = [
                reference.expand_to_square(image, processor.image_processor.image_mean)
                for image in images
            ]
        made = processor(text=[text], images=[images] if images else None, return_tensors="pt")
        return made["input_ids"][0].tolist(), {
            key: value for key, value in made.items() if key not in ("input_ids", "attention_mask")
        }

    def answer_marks(self):
        """Ids after which an answer begins, and the id that ends it."""
        if is_smol(self.name):
            head, end = "Assistant:", "<end_of_utterance>"
        elif is_gemma(self.name):
            head, end = "<start_of_turn>model\n", "<end_of_turn>"
        elif is_wide(self.name) and self.spec["decoder"] != "qwen2":
            head, end = {"mistral": "[/INST]", "llama": "ASSISTANT:"}[self.spec["decoder"]], "</s>"
        else:
            head, end = "<|im_start|>assistant\n", "<|im_end|>"
        return self.tokenizer(head, add_special_tokens=False)[
            "input_ids"
        ], self.tokenizer.convert_tokens_to_ids(end)

    def writes_space(self):
        """Whether the template writes a space before an answer."""
        return is_smol(self.name) or (is_wide(self.name) and self.spec["decoder"] != "qwen2")

    def encode(self, item, root):
        ids, extra = self.inputs(item, root)
        head, end = self.answer_marks()
        labels, at = [-100] * len(ids), 0
        while at < len(ids):
            if ids[at : at + len(head)] != head:
                at += 1
                continue
            at += len(head)
            # A template space that is a separate token does not belong to the answer.
            if self.tokenizer.decode([ids[at]]).strip() == "" and self.writes_space():
                at += 1
            while True:
                labels[at] = ids[at]
                at += 1
                if ids[at - 1] == end:
                    break
        return ids, labels, extra

    def forward(self, ids, extra):
        kinds = torch.tensor([[int(token == self.image_token) for token in ids]])
        more = (
            {}
            if is_smol(self.name) or is_wide(self.name) or is_intern(self.name)
            else {"token_type_ids" if is_gemma(self.name) else "mm_token_type_ids": kinds}
        )
        return self.model(input_ids=torch.tensor([ids]), **extra, **more).logits[0]

    def logprobs(self, ids, labels, extra):
        given = [tensor.numpy().tobytes() for tensor in extra.values()]
        key = (tuple(ids), tuple(labels), *given)
        if self.known is not None and key in self.known:
            return self.known[key]
        with torch.no_grad():
            scores = torch.log_softmax(self.forward(ids, extra).double(), dim=-1)
        found = [scores[at - 1, label].item() for at, label in enumerate(labels) if label != -100]
        if self.known is not None:
            self.known[key] = found
        return found

    def greedy(self, item, root, most):
        ids, extra = self.inputs(item, root, generate=True)
        ends = self.model.config.text_config.eos_token_id
        answer = []
        while len(answer) < most:
            with torch.no_grad():
                token = self.forward(ids + answer, extra)[-1].argmax().item()
            if token in (ends if isinstance(ends, list) else [ends]):
                break
            answer.append(token)
        return answer


@pytest.fixture(scope="session")
def family_peer(family_dir):
    return functools.cache(lambda name: FamilyPeer(name, family_dir(name)))


def compare(peer, scored, images, rows=FAMILY_ROWS, tolerance=TOLERANCE):
    assert [line["id"] for line in scored] == [item["id"] for item in rows]
    for item, line in zip(rows, scored):
        ids, labels, extra = peer.encode(item, images)
        assert line["input_ids"] == ids, item["id"]
        assert line["labels"] == labels, item["id"]
        want = peer.logprobs(ids, labels, extra)
        assert len(want) > 1
        assert line["logprobs"] == pytest.approx(want, abs=tolerance), item["id"]
    assert peer.choices.nearest > NEAREST


@pytest.mark.parametrize("name", NAMES)
def test_from_file_to_logprob(name, family_dir, family_peer, images, family_rows, tmp_path):
    compare(
        family_peer(name),
        score(tmp_path / "out.jsonl", family_dir(name), family_rows, images),
        images,
    )


@pytest.mark.parametrize("name", NAMES)
def test_greedy_answers(name, family_dir, family_peer, images, tmp_path):
    peer, rows = family_peer(name), [FAMILY_ROWS[0], FAMILY_ROWS[1], FAMILY_ROWS[3], FAMILY_ROWS[5]]
    data = write_rows(tmp_path / "rows.jsonl", rows)
    lft(
        "eval",
        "--model",
        family_dir(name),
        "--data",
        data,
        "--image-root",
        images,
        "--out",
        tmp_path / "out.jsonl",
        "--max-new-tokens",
        12,
    )
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    for item, line in zip(rows, lines):
        want = peer.tokenizer.decode(peer.greedy(item, images, 12), skip_special_tokens=True)
        assert line["answer"].strip() == want.strip(), item["id"]


def targets_of(name):
    """LoRA on decoder, projector and vision tower, under PEFT's names; without experts."""
    decoder = (
        r".*(language_model|text_model).*"
        r"\.(q_proj|k_proj|v_proj|o_proj|gate_proj|up_proj|down_proj|in_proj_\w+|out_proj"
        r"|shared_expert_gate)"
    )
    if is_gemma(name):  # no linear layer in the projector
        return rf"({decoder})|(.*vision_tower.*\.(q_proj|k_proj|v_proj|out_proj|fc1|fc2))"
    if is_original(name):
        return rf"({decoder})|(.*mlp1\.[13])|(.*vision_model.*\.(qkv|proj|fc1|fc2))"
    if is_intern(name):
        return (
            rf"({decoder})|(.*multi_modal_projector\.linear_[12])"
            r"|(.*vision_tower.*\.(q_proj|k_proj|v_proj|projection_layer|fc1|fc2))"
        )
    if is_wide(name):
        return (
            rf"({decoder})|(.*multi_modal_projector\.linear_[12])"
            r"|(.*vision_tower.*\.(q_proj|k_proj|v_proj|out_proj|fc1|fc2))"
        )
    if is_smol(name):
        return (
            rf"({decoder})|(.*connector.*\.proj)"
            r"|(.*vision_model.*\.(q_proj|k_proj|v_proj|out_proj|fc1|fc2))"
        )
    tower = r".*visual\.blocks.*\.(qkv|proj|gate_proj|up_proj|down_proj|(linear_)?fc[12])"
    merger = r".*visual\.merger\.(mlp\.0|mlp\.2|linear_fc1|linear_fc2)"
    deep = r".*visual\.deepstack_merger_list\.\d+\.linear_fc[12]"
    return f"({decoder})|({tower})|({merger})|({deep})"


@pytest.fixture(scope="session")
def family_adapter(family_dir, tmp_path_factory):
    """name -> directory of a PEFT adapter with random A and B on every linear layer."""

    def make(name):
        base = families.load_model(family_dir(name))
        model = get_peft_model(
            base,
            LoraConfig(
                r=3,
                lora_alpha=6,
                lora_dropout=0.0,
                task_type="CAUSAL_LM",
                target_modules=targets_of(name),
                target_parameters=[f"mlp.experts.{part}" for part in adapted_experts(name)],
            ),
        )
        generator = torch.Generator().manual_seed(7)
        with torch.no_grad():
            for key, parameter in model.named_parameters():
                if "lora_" in key:
                    parameter.copy_(
                        torch.randn(parameter.shape, generator=generator)
                        * (0.4 / parameter.shape[1] ** 0.5)
                    )
        path = tmp_path_factory.mktemp("family-adapters") / name
        model.save_pretrained(path)
        write_notes(
            path,
            "auto",
            fit_of(name),
        )
        return path

    return functools.cache(make)


@pytest.mark.parametrize("name", NAMES)
def test_pefts_adapter_and_its_merge(name, family_dir, family_adapter, images, tmp_path):
    rows = FAMILY_ROWS[:4]  # one image, none, several turns, two images
    data = write_rows(tmp_path / "rows.jsonl", rows)
    adapter, merged = family_adapter(name), tmp_path / "merged"
    peft = FamilyPeer(name, family_dir(name), adapter)
    scored = score(tmp_path / "out.jsonl", family_dir(name), data, images, "--adapter", adapter)
    compare(peft, scored, images, rows)
    base = score(tmp_path / "base.jsonl", family_dir(name), data, images)
    assert (
        max(abs(a - b) for x, y in zip(scored, base) for a, b in zip(x["logprobs"], y["logprobs"]))
        > 0.05
    )
    lft("merge", "--model", family_dir(name), "--adapter", adapter, "--out", merged)
    # A merged matrix of a BF16 checkpoint is rounded to BF16, a relative 2^-9:
    # logits with a deviation of 2 after a dozen of them.
    narrow = families.SPECS[name].get("dtype") == torch.bfloat16
    scored, told_nothing = (
        score(tmp_path / "merged.jsonl", merged, data, images),
        FamilyPeer(name, merged),
    )
    if not narrow:
        compare(peft, scored, images, rows)
    check_prompts(told_nothing, scored, images)
    compare(told_nothing, scored, images, rows)


def check_prompts(peer, scored, images):
    """The merged model's own chat template and processor give lft's ids."""
    for item, line in zip(FAMILY_ROWS, scored):
        text = peer.text_of(messages_of(item))
        make = (
            (lambda *given: peer.wide_inputs(*given, pads=False))
            if is_wide(peer.name)
            else peer.inputs_of
        )
        ids, extra = make(text, item, images)
        assert ids == line["input_ids"], item["id"]
        want = peer.logprobs(ids, line["labels"], extra)
        assert line["logprobs"] == pytest.approx(want, abs=TOLERANCE), item["id"]


@pytest.mark.parametrize("name", [name for name in NAMES if families.SPECS[name].get("mtp")])
def test_a_merge_keeps_tensors_that_no_model_reads(name, family_dir, family_adapter, tmp_path):
    base, merged = family_dir(name), tmp_path / "merged"
    done = lft("merge", "--model", base, "--adapter", family_adapter(name), "--out", merged)
    assert "mtp" not in done.stdout + done.stderr
    kept = 0
    for file in base.glob("*.safetensors"):
        before, after = load_file(file), load_file(merged / file.name)
        assert before.keys() == after.keys()
        for key in [key for key in before if key.startswith("mtp.")]:
            assert torch.equal(before[key], after[key])
            kept += 1
    assert kept == len(families.MTP)


@pytest.mark.parametrize("name", ["moe_gqa", "moe_tied", "moe35_gqa"])
def test_a_merge_keeps_the_layout_of_experts(name, family_dir, family_adapter, tmp_path):
    """With PEFT's numbers."""
    base, adapter, merged = family_dir(name), family_adapter(name), tmp_path / "merged"
    lft("merge", "--model", base, "--adapter", adapter, "--out", merged)
    before = load_file(base / "model.safetensors")
    after = load_file(merged / "model.safetensors")
    shapes = {key: tensor.shape for key, tensor in before.items()}
    assert shapes == {key: tensor.shape for key, tensor in after.items()}
    whole = FamilyPeer(name, base, adapter).model.merge_and_unload().state_dict()
    changed = set()
    for key in [key for key in after if key.endswith(tuple(BOTH))]:
        want = whole[key] if whole[key].shape == after[key].shape else whole[key].transpose(1, 2)
        assert torch.allclose(after[key], want, rtol=1e-5, atol=1e-6), key
        if not torch.equal(before[key], after[key]):
            changed.add(key.rsplit(".", 1)[-1])
    assert changed == set(adapted_experts(name))


def scopes_of(name):
    """Families with linear layers in the projector."""
    return ["llm", "vision"] if is_gemma(name) else ["llm", "projector", "vision"]


def make_recipe(name, out, model, rows, images, **more):
    recipe = dict(
        version=1,
        output_dir=str(out),
        model=dict(path=str(model), base_dtype="fp32"),
        lora=dict(
            rank=3,
            alpha=6,
            dropout=0.0,
            targets=[f"{scope}:all-linear" for scope in scopes_of(name)]
            + [f"llm:experts.{part}" for part in adapted_experts(name)],
        ),
        data=dict(
            train=str(rows), image_root=str(images), shuffle=False, workers=2, max_tokens=512
        ),
        optim=dict(
            lr=1e-3, schedule="cosine", warmup_ratio=0.12, weight_decay=0.02, clip_grad_norm=0.5
        ),
        precision=dict(compute="fp32"),
        train=dict(max_steps=STEPS, batch_size=BATCH, grad_accum=1, seed=1),
        log=dict(answers=0),
    )
    for key, value in more.items():
        recipe[key] = recipe.get(key, {}) | value
    path = pathlib.Path(f"{out}.yaml")
    path.write_text(yaml.safe_dump(recipe))
    return path


def reference_steps(peer, samples, optim, batch_size, steps=STEPS):
    """Like reference.train, one row at a time: no padding."""
    parameters, optimizer, scheduler = reference.make_optimizer(peer.model, optim, steps)
    peer.model.train()
    records = []
    for group in reference.step_batches(samples, batch_size, 1, steps):
        rows = group[0]
        supervised = sum(label != -100 for _, labels, _ in rows for label in labels)
        total = 0.0
        for ids, labels, extra in rows:
            logits = peer.forward(ids, extra).float()
            loss = torch.nn.functional.cross_entropy(
                logits[:-1], torch.tensor(labels[1:]), ignore_index=-100, reduction="sum"
            )
            (loss / supervised).backward()
            total += loss.item()
        norm = torch.nn.utils.clip_grad_norm_(parameters, optim["clip_grad_norm"])
        records.append(
            dict(loss=total / supervised, lr=optimizer.param_groups[0]["lr"], grad_norm=norm.item())
        )
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad(set_to_none=True)
    return records


# The last: an adapter of all but the experts.
@pytest.mark.parametrize("name", [*TRAINED, "moe35_bf16_shards"])
def test_twenty_steps_of_an_adapter(
    name, family_dir, family_adapter, images, family_rows, tmp_path
):
    start = family_adapter(name)
    path = make_recipe(
        name,
        tmp_path / "run",
        family_dir(name),
        family_rows,
        images,
        lora=dict(init_from=str(start)),
    )
    lft("train", path)
    peer = FamilyPeer(name, family_dir(name), start, trainable=True)
    samples = [peer.encode(item, images) for item in FAMILY_ROWS]
    want = reference_steps(peer, samples, yaml.safe_load(path.read_text())["optim"], BATCH)
    lines = step_lines(tmp_path / "run")
    assert len(lines) == STEPS
    for line, record in zip(lines, want):
        for key in ["loss", "lr", "grad_norm"]:
            assert line[key] == pytest.approx(record[key], rel=RELATIVE, abs=1e-12), (
                line["step"],
                key,
            )
    fresh = FamilyPeer(name, family_dir(name), tmp_path / "run" / "adapter")
    compare(
        fresh,
        score(
            tmp_path / "out.jsonl",
            family_dir(name),
            family_rows,
            images,
            "--adapter",
            tmp_path / "run" / "adapter",
        ),
        images,
    )
    trained = {key: value for key, value in peer.model.named_parameters() if "lora_" in key}
    loaded = {key: value for key, value in fresh.model.named_parameters() if "lora_" in key}
    assert trained.keys() == loaded.keys()
    for key, tensor in trained.items():
        difference = (loaded[key].double() - tensor.detach().double()).norm()
        assert difference <= RELATIVE * tensor.detach().double().norm(), key


@pytest.mark.parametrize("name", TRAINED)
def test_packed_passes_and_recomputation_give_the_same_steps(
    name, family_dir, family_adapter, images, family_rows, tmp_path
):
    start = str(family_adapter(name))
    runs = {
        "padded": {},
        "packed": dict(max_tokens_per_step=4096),
        "recomputed": dict(activation_checkpointing="block"),
    }
    losses = {}
    for kind, more in runs.items():
        path = make_recipe(
            name,
            tmp_path / kind,
            family_dir(name),
            family_rows,
            images,
            lora=dict(init_from=start),
            train=dict(max_steps=6, **more),
        )
        lft("train", path)
        losses[kind] = [line["loss"] for line in step_lines(tmp_path / kind)]
    assert losses["packed"] == pytest.approx(losses["padded"], rel=RELATIVE)
    assert losses["recomputed"] == pytest.approx(losses["padded"], rel=1e-6)


@pytest.mark.parametrize(
    "name",
    [
        "qwen2_gqa",
        "qwen25_gqa",
        "qwen3_gqa",
        "qwen35_gqa",
        "moe_gqa",
        "moe35_gqa",
        "smol_tied",
        "llava_qwen2_siglip",
        "gemma_gqa",
        "intern_qwen3_norms",
    ],
)
def test_steps_over_an_nf4_base(name, family_dir, family_adapter, images, family_rows, tmp_path):
    """transformers with the decoder's dequantised weights (checked by test_nf4)
    and everything else in BF16, including biases."""
    start, steps = family_adapter(name), 3
    path = make_recipe(
        name,
        tmp_path / "run",
        family_dir(name),
        family_rows,
        images,
        lora=dict(init_from=str(start)),
        train=dict(max_steps=steps),
    )
    lft("train", path, "--set", "model.base_dtype=nf4")
    peer = FamilyPeer(name, family_dir(name), start, trainable=True)
    base = {key: value for key, value in peer.model.named_parameters() if "lora_" not in key}
    coded = {
        key: value.detach()
        for key, value in base.items()
        if re.search(r"(language_model|text_model).*layers\.\d+\.(\w+\.)+\w*_proj", key)
        and value.dim() >= 2
    }
    assert coded and len(adapted_experts(name)) <= sum(value.dim() == 3 for value in coded.values())
    matrices = {
        f"{key}.{number}": matrix
        for key, value in coded.items()
        for number, matrix in enumerate(value if value.dim() == 3 else [value])
    }
    values = driver("nf4", matrices, tmp_path)
    with torch.no_grad():
        for key, value in base.items():
            if key not in coded:
                value.copy_(value.bfloat16().float())
                continue
            for number, matrix in enumerate(value if value.dim() == 3 else [value]):
                matrix.copy_(values[f"float32.{key}.{number}"])
    samples = [peer.encode(item, images) for item in FAMILY_ROWS]
    want = reference_steps(peer, samples, yaml.safe_load(path.read_text())["optim"], BATCH, steps)
    for line, record in zip(step_lines(tmp_path / "run"), want, strict=True):
        for key in ["loss", "lr", "grad_norm"]:
            assert line[key] == pytest.approx(record[key], rel=RELATIVE, abs=1e-12), (
                line["step"],
                key,
            )


@pytest.mark.parametrize("name", TRAINED)
def test_prepared_rows_score_as_the_files_they_came_from(
    name, family_dir, images, family_rows, tmp_path
):
    lft(
        "prepare",
        make_recipe(name, tmp_path / "run", family_dir(name), family_rows, images),
        "--out",
        tmp_path / "prepared",
    )
    score(tmp_path / "files.jsonl", family_dir(name), family_rows, images)
    score(tmp_path / "shards.jsonl", family_dir(name), tmp_path / "prepared", images)
    assert (tmp_path / "shards.jsonl").read_bytes() == (tmp_path / "files.jsonl").read_bytes()


def pixels_of(peer, extra):
    """The processor's output, with the photographs' tiles in uint8, one array of
    [tiles, 3, height, width] per image or for all tiles."""
    mean, std = (
        torch.tensor(peer.colours[key]).view(1, 3, 1, 1) for key in ("image_mean", "image_std")
    )
    if is_smol(peer.name):
        tiles = [extra["pixel_values"][0]]
    elif is_gemma(peer.name) or is_intern(peer.name):
        tiles = [extra["pixel_values"]]
    elif is_wide(peer.name):
        whole = (
            extra["pixel_values"]
            if extra["pixel_values"].dim() == 5
            else extra["pixel_values"].unsqueeze(1)
        )
        # The processor pads with zeros after an image's tiles; no pixel is zero.
        tiles = [image[(image != 0).flatten(1).any(1)] for image in whole]
    else:
        tiles, begin = [], 0
        for _, rows, columns in extra["image_grid_thw"].tolist():
            patch = round((extra["pixel_values"].shape[1] / 6) ** 0.5)
            values = extra["pixel_values"][begin : begin + rows * columns]
            begin += rows * columns
            values = values.view(rows // 2, columns // 2, 2, 2, 3, 2, patch, patch)
            assert torch.equal(
                values[:, :, :, :, :, 0], values[:, :, :, :, :, 1]
            )  # a still image's two frames
            whole = (
                values[:, :, :, :, :, 0]
                .permute(4, 0, 2, 5, 1, 3, 6)
                .reshape(1, 3, rows * patch, columns * patch)
            )
            tiles.append(whole)
    return [((tile.double() * std + mean) * 255).round().to(torch.uint8) for tile in tiles]


@pytest.mark.parametrize(
    "name",
    [
        "qwen2_flat_shards",
        "qwen25_gqa",
        "qwen3_gqa",
        "qwen35_gqa",
        "smol_tied",
        "idefics3_shards",
        "llava_qwen2_siglip",
        "next_mistral",
        "onevision",
        "gemma_gqa",
        "gemma_bf16",
        "intern_gqa",
        "intern_bf16_shards",
        "chat_gqa",
    ],
)
def test_pixels_are_the_processors(name, family_dir, family_peer, images, tmp_path):
    peer, rows = family_peer(name), [item for item in FAMILY_ROWS if reference.images_of(item)]
    file = family_dir(name) / (
        "processor_config.json"
        if is_smol(name)
        or is_wide(name)
        or is_gemma(name)
        or (is_intern(name) and not is_original(name))
        else "preprocessor_config.json"
    )
    colours = json.loads(file.read_text())
    peer.colours = colours.get("image_processor", colours)
    data = write_rows(tmp_path / "rows.jsonl", rows)
    lft(
        "prepare",
        make_recipe(name, tmp_path / "run", family_dir(name), data, images),
        "--out",
        tmp_path / "prepared",
    )
    for item, sample in zip(rows, read_prepared(tmp_path / "prepared"), strict=True):
        want = pixels_of(peer, peer.inputs(item, images)[1])
        assert torch.equal(
            torch.cat([image.pixels.flatten() for image in sample.images]),
            torch.cat([tiles.flatten() for tiles in want]),
        ), item["id"]


@pytest.mark.parametrize(
    "name",
    [
        "qwen3_gqa",
        "smol_tied",
        "next_mistral",
        "onevision",
        "gemma_gqa",
        "intern_qwen3_norms",
        "intern_bf16_shards",
    ],
)
def test_images_of_many_forms_take_the_processors_places(name, family_dir, family_peer, tmp_path):
    peer, draw, rows = family_peer(name), random.Random(5), []
    sizes = [(1, 1), (3, 2), (28, 28), (57, 56), (200, 400)] + [
        (draw.randint(20, 300), draw.randint(20, 300)) for _ in range(40)
    ]
    if name != "qwen3_gqa":  # qwen3_gqa refuses aspect ratios of 200
        sizes += [(1, 300), (300, 1)]
    for number, (width, height) in enumerate(sizes):
        noise = torch.randint(
            0,
            256,
            (height, width, 3),
            generator=torch.Generator().manual_seed(number),
            dtype=torch.uint8,
        )
        Image.fromarray(noise.numpy()).save(tmp_path / f"{number}.png")
        rows.append(row(f"{width}x{height}", [("<image>\nWhat?", "Noise.")], f"{number}.png"))
    data = write_rows(tmp_path / "rows.jsonl", rows)
    lft(
        "prepare",
        make_recipe(
            name, tmp_path / "run", family_dir(name), data, tmp_path, data=dict(max_tokens=2048)
        ),
        "--out",
        tmp_path / "prepared",
    )
    for item, sample in zip(rows, read_prepared(tmp_path / "prepared", pixels=False), strict=True):
        assert sample.ids == peer.inputs(item, tmp_path)[0], item["id"]


@pytest.mark.parametrize(
    "name",
    [
        "qwen2_flat_shards",
        "qwen25_gqa",
        "qwen3_gqa",
        "qwen35_gqa",
        "moe_bf16_shards",
        "smol_tied",
        "idefics3_shards",
        "llava_qwen2_siglip",
        "llava_mistral",
        "next_llama_bf16",
        "onevision",
        "gemma_gqa",
        "gemma_shards",
        "intern_gqa",
    ],
)
def test_the_adapters_python_answers_as_lft_does(
    name, family_dir, images, family_rows, tmp_path, monkeypatch
):
    """Works from any folder, though the recipe names the model by a relative path."""
    monkeypatch.chdir(family_dir(name).parent)
    lft(
        "train",
        make_recipe(
            name,
            tmp_path / "run",
            name,
            family_rows,
            images,
            optim=dict(lr=1e-2),
            train=dict(max_steps=6, batch_size=4),
        ),
    )
    adapter = tmp_path / "run" / "adapter"
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    for image in [images / "chelsea.png", images / "tall.png"]:  # one may have an empty answer
        asked = [
            "--model",
            family_dir(name),
            "--adapter",
            adapter,
            "--image",
            image,
            "--prompt",
            "What do you see?",
        ]
        names = dict(IMAGE=str(image), QUESTION="What do you see?")
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile(code_of(adapter, names), "README.md", "exec"), {})
        said = out.getvalue().strip()
        assert said == lft("generate", *asked).stdout.strip()
        if said:
            break
    assert said
    oldest = dict(qwen3_gqa="4.57", moe_bf16_shards="5.0", qwen35_gqa="5.2").get(name, "4.52")
    card = (adapter / "README.md").read_text()
    assert f"transformers {oldest} or newer" in card
    (packages,) = re.findall("^pip install (.*)$", card, re.M)
    assert {"peft", "pillow", f'"transformers>={oldest}"'} <= set(packages.split())
    assert ("num2words" in packages) == (families.SPECS[name]["family"] == "smolvlm")
    header = ModelCard.load(adapter / "README.md").data
    base = json.loads((adapter / "adapter_config.json").read_text())["base_model_name_or_path"]
    assert header.base_model == base == str(family_dir(name))
    assert (header.library_name, header.pipeline_tag) == ("peft", "image-text-to-text")
    assert "lora" in header.tags


@pytest.mark.parametrize(
    "recipe, name",
    [
        ("smolvlm-lora", "smol_tied"),
        ("idefics3-lora", "idefics3_shards"),
        ("onevision-lora", "onevision"),
        ("llava-next-lora", "next_mistral"),
        ("gemma3-lora", "gemma_gqa"),
        ("internvl-lora", "intern_gqa"),
        ("internvl-lora", "chat_gqa"),
        ("qwen-vl-lora", "qwen2_gqa"),
        ("qwen-vl-lora", "qwen25_gqa"),
        ("qwen3-vl-lora", "qwen3_tied"),
        ("qwen3_5-lora", "qwen35_tied"),
        ("qwen3-vl-lora", "moe_tied"),
    ],
)
def test_the_recipe_trains_in_miniature(recipe, name, family_dir, images, family_rows, tmp_path):
    sets = {
        "model.path": family_dir(name),
        "output_dir": tmp_path / "out",
        "data.train": family_rows,
        "data.image_root": images,
    }
    sets |= {
        "data.workers": 1,
        "train.max_steps": 3,
        "lora.rank": 4,
        "train.batch_size": 2,
        "data.max_tokens": 512,
    }
    if recipe == "internvl-lora":
        sets["data.max_pixels"] = 6 * 56 * 56
    if not recipe.startswith("qwen"):
        sets |= {"data.eval_share": 0.25, "train.eval_every_steps": 1}
    arguments = [word for key, value in sets.items() for word in ("--set", f"{key}={value}")]
    lft(
        "train",
        pathlib.Path(__file__).resolve().parents[2] / "recipes" / f"{recipe}.yaml",
        *arguments,
    )
    assert (tmp_path / "out" / "adapter" / "adapter_model.safetensors").exists()
    assert len(step_lines(tmp_path / "out")) == 3
