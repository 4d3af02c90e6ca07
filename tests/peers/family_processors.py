"""Chat templates in the published form, and processors for the tokenizers."""

from transformers import (
    AutoTokenizer,
    Gemma3ImageProcessor,
    Gemma3Processor,
    GotOcr2ImageProcessor,
    Idefics3Processor,
    InternVLProcessor,
    InternVLVideoProcessor,
    LlavaImageProcessor,
    LlavaNextImageProcessor,
    LlavaNextProcessor,
    LlavaOnevisionImageProcessor,
    LlavaOnevisionProcessor,
    LlavaOnevisionVideoProcessor,
    LlavaProcessor,
    PreTrainedTokenizerFast,
    Qwen2VLImageProcessor,
    SiglipImageProcessor,
)
from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil
from transformers.models.smolvlm.image_processing_pil_smolvlm import SmolVLMImageProcessorPil

from family_specs_wide import WIDE

QWEN25_TEMPLATE = (
    "{% for message in messages %}{% if loop.first and message['role'] != 'system' %}"
    "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n{% endif %}"
    "<|im_start|>{{ message['role'] }}\n"
    "{% if message['content'] is string %}{{ message['content'] }}<|im_end|>\n{% else %}"
    "{% for content in message['content'] %}"
    "{% if content['type'] == 'image' or 'image' in content %}"
    "<|vision_start|><|image_pad|><|vision_end|>"
    "{% elif 'text' in content %}{{ content['text'] }}{% endif %}{% endfor %}"
    "<|im_end|>\n{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
QWEN3_TEMPLATE = QWEN25_TEMPLATE.replace(
    "{% if loop.first and message['role'] != 'system' %}"
    "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n{% endif %}",
    "",
)
SMOL_TEMPLATE = (
    "<|im_start|>{% for message in messages %}{{message['role'] | capitalize}}"
    "{% if message['content'][0]['type'] == 'image' %}{{':'}}{% else %}{{': '}}{% endif %}"
    "{% for line in message['content'] %}{% if line['type'] == 'text' %}{{line['text']}}"
    "{% elif line['type'] == 'image' %}{{ '<image>' }}{% endif %}{% endfor %}"
    "<end_of_utterance>\n{% endfor %}"
    "{% if add_generation_prompt %}{{ 'Assistant:' }}{% endif %}"
)
GEMMA_TEMPLATE = (
    "{{ bos_token }}\n"
    "{%- if messages[0]['role'] == 'system' -%}\n"
    "    {%- if messages[0]['content'] is string -%}\n"
    "        {%- set first_user_prefix = messages[0]['content'] + '\n\n' -%}\n"
    "    {%- else -%}\n"
    "        {%- set first_user_prefix = messages[0]['content'][0]['text'] + '\n\n' -%}\n"
    "    {%- endif -%}\n"
    "    {%- set loop_messages = messages[1:] -%}\n"
    "{%- else -%}\n"
    '    {%- set first_user_prefix = "" -%}\n'
    "    {%- set loop_messages = messages -%}\n"
    "{%- endif -%}\n"
    "{%- for message in loop_messages -%}\n"
    "    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}\n"
    '        {{ raise_exception("Conversation roles must alternate '
    'user/assistant/user/assistant/...") }}\n'
    "    {%- endif -%}\n"
    "    {%- if (message['role'] == 'assistant') -%}\n"
    '        {%- set role = "model" -%}\n'
    "    {%- else -%}\n"
    "        {%- set role = message['role'] -%}\n"
    "    {%- endif -%}\n"
    "    {{ '<start_of_turn>' + role + '\n' + (first_user_prefix if loop.first else \"\") }}\n"
    "    {%- if message['content'] is string -%}\n"
    "        {{ message['content'] | trim }}\n"
    "    {%- elif message['content'] is iterable -%}\n"
    "        {%- for item in message['content'] -%}\n"
    "            {%- if item['type'] == 'image' -%}\n"
    "                {{ '<start_of_image>' }}\n"
    "            {%- elif item['type'] == 'text' -%}\n"
    "                {{ item['text'] | trim }}\n"
    "            {%- endif -%}\n"
    "        {%- endfor -%}\n"
    "    {%- else -%}\n"
    '        {{ raise_exception("Invalid content type") }}\n'
    "    {%- endif -%}\n"
    "    {{ '<end_of_turn>\n' }}\n"
    "{%- endfor -%}\n"
    "{%- if add_generation_prompt -%}\n"
    "    {{'<start_of_turn>model\n'}}\n"
    "{%- endif -%}\n"
)
INTERN_TEMPLATE = (
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n'}}"
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}"
    "{% for content in message['content'] %}"
    "{% if content['type'] == 'image' %}{{ '<IMG_CONTEXT>\n' }}"
    "{% elif content['type'] == 'video' %}{{ '<video>\n' }}"
    "{% elif content['type'] == 'text' %}{{ content['text'] }}{% endif %}{% endfor %}{% endif %}"
    "{{'<|im_end|>\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{'<|im_start|>assistant\n' }}{% endif %}"
)
# As in the llava-hf checkpoints: the images first, then the texts.
# IN_PLACE keeps each image at its position.
VICUNA_TEMPLATE = (
    "{% for message in messages %}{% if message['role'] != 'system' %}"
    "{{ message['role'].upper() + ': ' }}{% endif %}"
    "{% for content in message['content'] | selectattr('type', 'equalto', 'image') %}"
    "{{ '<image>\n' }}{% endfor %}"
    "{% for content in message['content'] | selectattr('type', 'equalto', 'text') %}"
    "{{ content['text'] + ' ' }}{% endfor %}"
    "{% endfor %}{% if add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %}"
)
MISTRAL_TEMPLATE = (
    "{% for message in messages %}{% if message['role'] == 'system' %}"
    "{{ '<<SYS>>\n' + message['content'][0]['text'] + '\n<</SYS>>\n\n' }}"
    "{% elif message['role'] == 'user' %}{{ '[INST] ' }}"
    "{% for content in message['content'] | selectattr('type', 'equalto', 'image') %}"
    "{{ '<image>\n' }}{% endfor %}"
    "{% for content in message['content'] | selectattr('type', 'equalto', 'text') %}"
    "{{ content['text'] }}{% endfor %}{{ ' [/INST]' }}"
    "{% elif message['role'] == 'assistant' %}{{ ' ' + message['content'][0]['text'] + '</s> ' }}"
    "{% endif %}{% endfor %}"
)
ONEVISION_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' }}"
    "{% for content in message['content'] | selectattr('type', 'equalto', 'image') %}"
    "{{ '<image>\n' }}{% endfor %}"
    "{% for content in message['content'] | selectattr('type', 'equalto', 'text') %}"
    "{{ content['text'] }}{% endfor %}"
    "{{ '<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
TEMPLATES = dict(
    gemma3=GEMMA_TEMPLATE,
    internvl=INTERN_TEMPLATE,
    qwen2_vl=QWEN25_TEMPLATE,
    qwen2_5_vl=QWEN25_TEMPLATE,
    qwen3_vl=QWEN3_TEMPLATE,
    qwen3_vl_moe=QWEN3_TEMPLATE,
    qwen3_5=QWEN3_TEMPLATE,
    qwen3_5_moe=QWEN3_TEMPLATE,
    smolvlm=SMOL_TEMPLATE,
    idefics3=SMOL_TEMPLATE,
)


def template_of(spec):
    """The chat template published with such a checkpoint."""
    if spec["family"] not in WIDE:
        return TEMPLATES[spec["family"]]
    return dict(llama=VICUNA_TEMPLATE, mistral=MISTRAL_TEMPLATE, qwen2=ONEVISION_TEMPLATE)[
        spec["decoder"]
    ]


def write_wide_processor(path, spec):
    """The processor of a LLaVA with another tower or decoder,
    whose tokenizer is already in `path`."""
    tokenizer = AutoTokenizer.from_pretrained(path)
    tokenizer.chat_template = template_of(spec)
    side, patch = spec["vision"]["image_size"], spec["vision"]["patch_size"]
    siglip = spec["tower"] == "siglip"
    strategy = "full" if siglip else "default"
    square = dict(height=side, width=side)
    if spec["family"] == "llava_onevision":
        LlavaOnevisionProcessor(
            LlavaOnevisionImageProcessor(
                size=square,
                image_grid_pinpoints=spec["canvases"],
                image_mean=[0.5] * 3,
                image_std=[0.5] * 3,
            ),
            tokenizer,
            LlavaOnevisionVideoProcessor(size=square),
            num_image_tokens=(side // patch) ** 2,
            vision_feature_select_strategy=strategy,
            vision_aspect_ratio=spec.get("aspect", "anyres_max_9"),
        ).save_pretrained(path)
        return
    if spec["family"] == "llava_next":
        images = LlavaNextImageProcessor(
            size=dict(shortest_edge=side), crop_size=square, image_grid_pinpoints=spec["canvases"]
        )
        kind = LlavaNextProcessor
    else:
        images = (
            SiglipImageProcessor(size=square, resample=3)
            if siglip
            else LlavaImageProcessor(size=dict(shortest_edge=side), crop_size=square)
        )
        kind = LlavaProcessor
    kind(
        images,
        tokenizer,
        patch_size=patch,
        vision_feature_select_strategy=strategy,
        num_additional_image_tokens=0 if siglip else 1,
    ).save_pretrained(path)


def write_gemma_processor(path, spec, tokenizer):
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<bos>",
        eos_token="<eos>",
        pad_token="<pad>",
        unk_token="<unk>",
        extra_special_tokens=dict(
            image_token="<image_soft_token>",
            boi_token="<start_of_image>",
            eoi_token="<end_of_image>",
        ),
        chat_template=GEMMA_TEMPLATE,
    )
    side = spec["vision"]["image_size"]
    Gemma3Processor(
        Gemma3ImageProcessor(size=dict(height=side, width=side)),
        fast,
        chat_template=GEMMA_TEMPLATE,
        image_seq_length=spec["side"] ** 2,
    ).save_pretrained(path)


def intern_positions(spec):
    """Positions of a tile."""
    side = spec["vision"]["image_size"] // spec["vision"]["patch_size"] // spec["scale"]
    return side**2


def write_intern_processor(path, spec, tokenizer):
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        unk_token="<|endoftext|>",
        extra_special_tokens=dict(
            start_image_token="<img>",
            end_image_token="</img>",
            context_image_token="<IMG_CONTEXT>",
            video_token="<video>",
        ),
        chat_template=INTERN_TEMPLATE,
    )
    side, (fewest, most) = spec["vision"]["image_size"], spec["tiles"]
    images = GotOcr2ImageProcessor(
        size=dict(height=side, width=side),
        image_mean=[0.485, 0.456, 0.406],
        image_std=[0.229, 0.224, 0.225],
        min_patches=fewest,
        max_patches=most,
    )
    InternVLProcessor(
        images,
        fast,
        InternVLVideoProcessor(size=dict(height=side, width=side)),
        image_seq_length=intern_positions(spec),
        chat_template=INTERN_TEMPLATE,
    ).save_pretrained(path)


def write_processor(path, spec, tokenizer):
    """Tokenizer and image processor files as written by save_pretrained."""
    smol = spec["family"] in ("smolvlm", "idefics3")
    end = "<end_of_utterance>" if smol else "<|im_end|>"
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<|im_start|>" if smol else None,
        eos_token=end,
        pad_token="<|im_end|>" if smol else "<|endoftext|>",
        unk_token="<|endoftext|>",
        chat_template=TEMPLATES[spec["family"]],
    )
    fast.save_pretrained(path)
    if not smol:
        patch = 16 if spec["family"].startswith("qwen3") else 14
        shortest, longest = spec["pixels"]
        mean = dict(image_mean=[0.5] * 3, image_std=[0.5] * 3) if patch == 16 else {}
        Qwen2VLImageProcessor(
            patch_size=patch,
            merge_size=2,
            temporal_patch_size=2,
            size=dict(shortest_edge=shortest, longest_edge=longest),
            **mean,
        ).save_pretrained(path)
        return
    kind = SmolVLMImageProcessorPil if spec["family"] == "smolvlm" else Idefics3ImageProcessorPil
    side = spec["vision"]["image_size"]
    images = kind(
        size=dict(longest_edge=spec["longest"]),
        max_image_size=dict(longest_edge=side),
        do_image_splitting=True,
    )
    sequence = (side // spec["vision"]["patch_size"]) ** 2 // spec["scale"] ** 2
    Idefics3Processor(
        images, fast, image_seq_len=sequence, chat_template=TEMPLATES[spec["family"]]
    ).save_pretrained(path)
