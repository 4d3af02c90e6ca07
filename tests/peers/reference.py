"""The PyTorch side, built only on transformers, PEFT and PIL: prompts, labels, pixels,
log-probabilities, decoding, the training loop."""

import math
import pathlib

import torch
from peft import PeftModel
from PIL import Image, ImageOps
from safetensors.torch import load_file
from tokenizers import Tokenizer
from transformers import (
    AutoProcessor,
    LlavaForConditionalGeneration,
    get_constant_schedule_with_warmup,
    get_cosine_schedule_with_warmup,
    get_linear_schedule_with_warmup,
    get_wsd_schedule,
)

SYSTEM = (
    "A chat between a curious user and an artificial intelligence assistant. "
    "The assistant gives helpful, detailed, and polite answers to the user's questions."
)


def render(template, turns, generate=False):
    """Text and supervised character spans of [(question, answer), ...].
    With `generate` the last answer is left out."""
    text, spans = SYSTEM + " " if template == "llava-v1" else "", []
    for number, (question, answer) in enumerate(turns):
        if template == "llava-hf" and number > 0:
            text += " "
        text += question if template == "plain" else f"USER: {question} ASSISTANT:"
        if generate and number == len(turns) - 1:
            break
        begin = len(text)
        text += ("" if template == "plain" else " ") + answer + "</s>"
        spans.append((begin, len(text)))
    return text, spans


def open_image(path):
    return ImageOps.exif_transpose(Image.open(path)).convert("RGB")


def expand_to_square(image, mean):
    """LLaVA's expand2square: centred on the mean colour."""
    width, height = image.size
    if width == height:
        return image
    side = max(width, height)
    square = Image.new("RGB", (side, side), tuple(int(value * 255) for value in mean))
    square.paste(image, ((side - width) // 2, (side - height) // 2))
    return square


class Peer:
    """A checkpoint loaded in transformers, stored in `dtype`; with `adapter`,
    loaded in PEFT (the adapter in float32)."""

    def __init__(self, path, adapter=None, trainable=False, dtype=torch.float32):
        self.path = pathlib.Path(path)
        self.processor = AutoProcessor.from_pretrained(path)
        self.tokenizer = Tokenizer.from_file(str(self.path / "tokenizer.json"))
        self.model = LlavaForConditionalGeneration.from_pretrained(path, dtype=dtype).eval()
        self.image_token = self.model.config.image_token_id
        if adapter is not None:
            self.model = PeftModel.from_pretrained(
                self.model, adapter, is_trainable=trainable
            ).eval()

    def pixels(self, images, fit):
        images = [open_image(path) for path in images]
        if fit == "pad":
            images = [
                expand_to_square(image, self.processor.image_processor.image_mean)
                for image in images
            ]
        return images

    def encode(self, row, root, template="llava-v1", fit="pad", generate=False):
        """A dataset row -> input_ids, labels (lists; image positions expanded)
        and pixel_values or None.

        The ids are the processor's; the labels come from the tokenizer's offsets
        in the text before expansion.
        """
        text, spans = render(template, turns_of(row), generate)
        images = self.pixels([pathlib.Path(root) / name for name in images_of(row)], fit)
        inputs = self.processor(text=[text], images=images or None, return_tensors="pt")
        ids = inputs["input_ids"][0].tolist()
        encoding, expanded, labels = self.tokenizer.encode(text), [], []
        per_image = (len(ids) - len(encoding.ids)) // len(images) + 1 if images else 0
        for token, (begin, end) in zip(encoding.ids, encoding.offsets):
            count = per_image if token == self.image_token else 1
            supervised = any(begin < stop and end > start for start, stop in spans)
            expanded += [token] * count
            labels += [token if supervised else -100] * count
        assert expanded == ids
        return ids, labels, inputs.get("pixel_values")

    def logits(self, ids, pixels):
        with torch.no_grad():
            return self.model(input_ids=torch.tensor([ids]), pixel_values=pixels).logits[0].double()

    def logprobs(self, ids, labels, pixels):
        """Natural logarithms of the supervised tokens' probabilities, in order."""
        scores = torch.log_softmax(self.logits(ids, pixels), dim=-1)
        return [scores[at - 1, label].item() for at, label in enumerate(labels) if label != -100]

    def greedy(self, row, root, template, fit, max_new_tokens):
        """The answer decoded without any cache: the whole sequence for every token."""
        ids, _, pixels = self.encode(row, root, template, fit, generate=True)
        answer = []
        while len(answer) < max_new_tokens:
            token = self.logits(ids + answer, pixels)[-1].argmax().item()
            if token == 2:
                break
            answer.append(token)
        return self.processor.tokenizer.decode(
            answer, skip_special_tokens=True, clean_up_tokenization_spaces=False
        ), answer


def turns_of(row):
    values = [turn["value"] for turn in row["conversations"]]
    return list(zip(values[0::2], values[1::2]))


def images_of(row):
    image = row.get("image", [])
    return [image] if isinstance(image, str) else image


def make_batch(samples):
    """[(ids, labels, pixels)] -> right-padded tensors."""
    width = max(len(ids) for ids, _, _ in samples)
    pixels = [pixel for _, _, pixel in samples if pixel is not None]
    return dict(
        input_ids=torch.tensor([ids + [0] * (width - len(ids)) for ids, _, _ in samples]),
        labels=torch.tensor([labels + [-100] * (width - len(labels)) for _, labels, _ in samples]),
        attention_mask=torch.tensor(
            [[1] * len(ids) + [0] * (width - len(ids)) for ids, _, _ in samples]
        ),
        pixel_values=torch.cat(pixels) if pixels else None,
    )


def step_batches(samples, batch_size, grad_accum, steps):
    """The micro-batches of each optimizer step, in file order: an epoch keeps its short last batch,
    and a group never spans epochs."""
    out = []
    while len(out) < steps:
        micro = [samples[at : at + batch_size] for at in range(0, len(samples), batch_size)]
        out += [micro[at : at + grad_accum] for at in range(0, len(micro), grad_accum)]
    return out[:steps]


SCOPES = dict(projector="multi_modal_projector", vision="vision_tower")


def scope_of(name):
    return next((scope for scope, module in SCOPES.items() if module in name), "llm")


SCHEDULES = dict(
    constant=lambda optimizer, warmup, total: get_constant_schedule_with_warmup(optimizer, warmup),
    linear=get_linear_schedule_with_warmup,
    cosine=get_cosine_schedule_with_warmup,
)


def make_optimizer(model, optim, steps):
    """AdamW over every parameter that requires a gradient, and its schedule.
    `optim` has the recipe's keys."""
    named = [
        (name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad
    ]
    groups = [
        dict(
            params=[p for n, p in named if scope_of(n) == scope],
            lr=optim.get(f"{scope}_lr", optim["lr"]),
        )
        for scope in ["llm", *SCOPES]
    ]
    optimizer = torch.optim.AdamW(
        [group for group in groups if group["params"]],
        betas=(0.9, 0.999),
        eps=1e-8,
        weight_decay=optim["weight_decay"],
        foreach=False,
    )
    warmup = math.ceil(optim["warmup_ratio"] * steps)
    if optim["schedule"] == "wsd":
        decay = math.ceil(optim["decay_ratio"] * steps)
        schedule = get_wsd_schedule(
            optimizer, warmup, decay, num_training_steps=steps, min_lr_ratio=optim["min_lr_ratio"]
        )
    else:
        schedule = SCHEDULES[optim["schedule"]](optimizer, warmup, steps)
    return [parameter for _, parameter in named], optimizer, schedule


def sum_loss(model, micro):
    """Cross entropy over the supervised tokens of a micro-batch, summed;
    in float32 for any logits dtype."""
    batch = make_batch(micro)
    labels = batch.pop("labels")
    logits = model(**batch).logits.float()
    return torch.nn.functional.cross_entropy(
        logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), ignore_index=-100, reduction="sum"
    )


def supervised_tokens(group):
    return sum(label != -100 for micro in group for _, labels, _ in micro for label in labels)


def train(model, samples, optim, batch_size, grad_accum, steps):
    """Trains in float32; returns one record per step."""
    parameters, optimizer, scheduler = make_optimizer(model, optim, steps)
    model.train()
    records = []
    for group in step_batches(samples, batch_size, grad_accum, steps):
        supervised = supervised_tokens(group)
        total = 0.0
        for micro in group:
            loss = sum_loss(model, micro)
            (loss / supervised).backward()
            total += loss.item()
        norm = torch.nn.utils.clip_grad_norm_(parameters, optim["clip_grad_norm"])
        records.append(
            dict(
                loss=total / supervised,
                lr=optimizer.param_groups[0]["lr"],
                grad_norm=norm.item(),
                supervised_tokens=supervised,
                tokens=sum(len(ids) for micro in group for ids, _, _ in micro),
            )
        )
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad(set_to_none=True)
    return records


def file_key(name):
    """A PEFT parameter's name in memory -> its key in adapter_model.safetensors
    (dialect of transformers 4.52 to 5.5)."""
    name = (
        name.replace(".modules_to_save.default", "")
        .replace(".lora_A.default", ".lora_A")
        .replace(".lora_B.default", ".lora_B")
    )
    name = name.replace(".lora_magnitude_vector.default.weight", ".lora_magnitude_vector")
    tower = "base_model.model.model.vision_tower."
    return (
        name.replace(tower, tower + "vision_model.")
        if name.startswith(tower) and "vision_model" not in name
        else name
    )


def trained_tensors(model):
    return {
        file_key(name): parameter.detach()
        for name, parameter in model.named_parameters()
        if parameter.requires_grad
    }


def adapter_tensors(path):
    return load_file(pathlib.Path(path) / "adapter_model.safetensors")
