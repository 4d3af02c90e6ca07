"""Shared test cases: rows over the photographs, adapters, and training runs."""


def row(name, turns, image=None):
    """A row of a LLaVA file: [(question, answer), ...] and the name or names of its images."""
    conversation = []
    for question, answer in turns:
        conversation += [{"from": "human", "value": question}, {"from": "gpt", "value": answer}]
    return dict(id=name, conversations=conversation) | ({} if image is None else dict(image=image))


ROWS = [
    row(
        "one",
        [
            (
                "<image>\nWhat do you see in the picture?",
                "A cat that looks at us, and the chair behind it.",
            )
        ],
        "chelsea.png",
    ),
    row("text", [("How many people are there?", "Seven — i.e. 7."), ("Sure?", "Yes.")]),
    row(
        "turns",
        [
            ("<image>\nWhere was this taken?", "In China."),
            ("What colour is the roof?", "It is brown and grey."),
        ],
        "china.jpg",
    ),
    row(
        "two",
        [("<image>\n<image>\nWhich is larger?", "The first one, by far.")],
        ["coffee.png", "tall.png"],
    ),
    row(
        "middle",
        [("Look at <image>\nand read it.", "12:30, 3 € for a café crème 中文")],
        "page.png",
    ),
    row("strip", [("<image>\nDescribe the image in detail.", "An orange suit.")], "strip.png"),
    row("turned", [("<image>\nWho is this?", "An astronaut.")], "turned.jpg"),
    row("alpha", [("<image>\nRead.", "scikit-image")], "logo.png"),
    row("grey", [("<image>\nWhat is it?", "The moon, with craters")], "moon.png"),
    row("tiny", [("<image>\nAnd this?", "A few pixels.")], "tiny.png"),
    row(
        "jpeg", [("<image>\nAnd this?", "A rocket at night."), ("When?", "In  2014.")], "rocket.jpg"
    ),
]

# Whole-name regular expressions over module names in memory, and the lft targets
# that select the same layers.
LLM = r".*language_model.*\.(q_proj|k_proj|v_proj|o_proj|gate_proj|up_proj|down_proj)"
PROJECTOR = r".*multi_modal_projector\.linear_[12]"
VISION = r".*vision_tower.*\.(q_proj|k_proj|v_proj|out_proj|fc1|fc2)"
ADAPTERS = {
    "llm": dict(target_modules=LLM, targets=["llm:all-linear"], r=4, lora_alpha=8),
    "llm_projector_whole": dict(
        target_modules=LLM,
        targets=["llm:all-linear"],
        r=3,
        lora_alpha=12,
        modules_to_save=["multi_modal_projector"],
    ),
    "rslora_everywhere": dict(
        target_modules=f"({LLM})|({PROJECTOR})|({VISION})",
        r=8,
        lora_alpha=4,
        use_rslora=True,
        targets=["llm:all-linear", "projector:all-linear", "vision:all-linear"],
    ),
    "lora_bias_everywhere": dict(
        target_modules=f"({LLM})|({PROJECTOR})|({VISION})",
        r=4,
        lora_alpha=8,
        lora_bias=True,
        targets=["llm:all-linear", "projector:all-linear", "vision:all-linear"],
    ),
    "dora_everywhere": dict(
        target_modules=f"({LLM})|({PROJECTOR})|({VISION})",
        r=4,
        lora_alpha=8,
        use_dora=True,
        targets=["llm:all-linear", "projector:all-linear", "vision:all-linear"],
    ),
    "patterns": dict(
        target_modules=f"({LLM})|({VISION})",
        targets=["llm:all-linear", "vision:all-linear"],
        r=4,
        lora_alpha=8,
        rank_pattern={"q_proj": 2, "up_proj": 6},
        alpha_pattern={"layers.0.self_attn.v_proj": 3.5, "q_proj": 5},
    ),
    "attention": dict(
        target_modules=r".*language_model.*\.(q_proj|v_proj)",
        targets=["llm:q_proj", "llm:v_proj"],
        r=2,
        lora_alpha=2,
    ),
}

STEPS = 20
# Checkpoint, adapter, template and fit, batch and accumulation, and the optimizer.
# Eleven rows make short batches and short groups.
CASES = {
    "cosine_clip_decay": dict(
        checkpoint="plain",
        adapter="llm",
        template="llava-v1",
        fit="pad",
        batch_size=4,
        grad_accum=1,
        held_out=True,
        optim=dict(
            lr=1e-3, schedule="cosine", warmup_ratio=0.12, weight_decay=0.02, clip_grad_norm=0.5
        ),
    ),
    "linear_accumulate_projector": dict(
        checkpoint="gqa_tied",
        adapter="llm_projector_whole",
        template="llava-hf",
        fit="crop",
        batch_size=2,
        grad_accum=3,
        full=["projector"],
        optim=dict(
            lr=1e-3,
            projector_lr=2e-4,
            schedule="linear",
            warmup_ratio=0.2,
            weight_decay=0.1,
            clip_grad_norm=1.0,
        ),
    ),
    "constant_rslora_every_tower": dict(
        checkpoint="head_dim_bias",
        adapter="rslora_everywhere",
        template="llava-v1",
        fit="pad",
        batch_size=3,
        grad_accum=2,
        optim=dict(
            lr=5e-4, schedule="constant", warmup_ratio=0.1, weight_decay=0.0, clip_grad_norm=0.7
        ),
    ),
    "ranks_and_alphas_by_pattern": dict(
        checkpoint="head_dim_bias",
        adapter="patterns",
        template="llava-v1",
        fit="pad",
        batch_size=4,
        grad_accum=1,
        optim=dict(
            lr=1e-3, schedule="constant", warmup_ratio=0.1, weight_decay=0.0, clip_grad_norm=1.0
        ),
    ),
    "cosine_dora_every_tower": dict(
        checkpoint="head_dim_bias",
        adapter="dora_everywhere",
        template="llava-hf",
        fit="crop",
        batch_size=4,
        grad_accum=1,
        optim=dict(
            lr=1e-3, schedule="cosine", warmup_ratio=0.1, weight_decay=0.05, clip_grad_norm=0.5
        ),
    ),
    "parts_by_wsd": dict(
        checkpoint="plain",
        adapter=None,
        template="llava-v1",
        fit="pad",
        batch_size=4,
        grad_accum=1,
        full=["projector", "vision"],
        optim=dict(
            lr=1e-3,
            vision_lr=3e-4,
            schedule="wsd",
            warmup_ratio=0.1,
            decay_ratio=0.4,
            min_lr_ratio=0.1,
            weight_decay=0.05,
            clip_grad_norm=0.5,
        ),
    ),
    # One row per step: a text row reaches neither projector nor vision tower,
    # and no row the last vision layer.
    "whole_model_row_by_row": dict(
        checkpoint="gqa_tied",
        adapter=None,
        template="llava-v1",
        fit="pad",
        batch_size=1,
        grad_accum=1,
        full=["all"],
        optim=dict(
            lr=2e-4, schedule="linear", warmup_ratio=0.1, weight_decay=0.05, clip_grad_norm=1.0
        ),
    ),
}
WHOLE_OR_ADAPTER = [
    name for name, case in CASES.items() if case["adapter"] or case["full"] == ["all"]
]
ADAPTER_CASES = [name for name, case in CASES.items() if case["adapter"]]


def variant_of(options):
    flags = {"use_dora": "dora", "use_rslora": "rslora", "lora_bias": "lora_bias"}
    return next((name for flag, name in flags.items() if options.get(flag)), "lora")


def make_recipe(case, out, model_dir, adapter, images, rows):
    """The recipe of a case; its rows are also its held-out rows, if it has any."""
    recipe = dict(
        version=1,
        output_dir=str(out),
        model=dict(path=str(model_dir), base_dtype="fp32"),
        data=dict(
            train=str(rows),
            image_root=str(images),
            template=case["template"],
            image_fit=case["fit"],
            shuffle=False,
            workers=2,
        ),
        optim=case["optim"],
        precision=dict(compute="fp32"),
        train=dict(
            max_steps=STEPS, batch_size=case["batch_size"], grad_accum=case["grad_accum"], seed=1
        ),
        log=dict(answers=0),
    )
    if case["adapter"]:
        options = ADAPTERS[case["adapter"]]
        recipe["lora"] = dict(
            variant=variant_of(options),
            rank=options["r"],
            alpha=options["lora_alpha"],
            dropout=0.0,
            targets=options["targets"],
            init_from=str(adapter),
            **{key: options[key] for key in ("rank_pattern", "alpha_pattern") if key in options},
        )
    elif case.get("full", ["all"]) != ["all"]:
        recipe["lora"] = dict(targets=[])
    if "full" in case:
        recipe["full"] = case["full"]
    if "held_out" in case:
        recipe["data"]["eval"] = str(rows)
    return recipe
