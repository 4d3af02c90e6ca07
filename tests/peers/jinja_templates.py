"""Whole chat templates in the style of published ones, written for these tests."""

CHATML = """\
{% for message in messages %}
{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}
{% endfor %}
{% if add_generation_prompt %}
{{ '<|im_start|>assistant\n' }}
{% endif %}"""

CHATML_ONE_LINE = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou help.<|im_end|>\n' }}{% endif %}"
    "{{'<|im_start|>' + message['role'] + '\n' + message['content']}}"
    "{% if (loop.last and add_generation_prompt) or not loop.last %}{{ '<|im_end|>' + '\n'}}"
    "{% endif %}{% endfor %}"
    "{% if add_generation_prompt and messages[-1]['role'] != 'assistant' %}"
    "{{ '<|im_start|>assistant\n' }}{% endif %}"
)

CHATML_GENERATION = """\
{%- for message in messages %}
    {%- if message.role == 'assistant' %}
        {{- '<|im_start|>assistant\n' }}
        {%- generation %}
            {{- message.content }}
            {{- '<|im_end|>' }}
        {%- endgeneration %}
        {{- '\n' }}
    {%- else %}
        {{- '<|im_start|>' ~ message.role ~ '\n' ~ message.content ~ '<|im_end|>\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
{%- endif %}"""

CHATML_PARTS = """\
{%- macro words(content) -%}
    {%- if content is string -%}
        {{- content -}}
    {%- elif content is iterable and content is not mapping -%}
        {%- for part in content -%}
            {%- if part.type == 'image' or 'image_url' in part -%}
                <|vision_start|><|image_pad|><|vision_end|>
            {%- elif part.type == 'video' -%}
                <|vision_start|><|video_pad|><|vision_end|>
            {%- elif 'text' in part -%}
                {{- part.text -}}
            {%- else -%}
                {{- raise_exception('a part of an unknown type') -}}
            {%- endif -%}
        {%- endfor -%}
    {%- elif content is none or content is undefined -%}
    {%- else -%}
        {{- raise_exception('content of an unknown type') -}}
    {%- endif -%}
{%- endmacro -%}
{%- for m in messages -%}
    <|im_start|>{{ m.role }}
{{ words(m.content) }}<|im_end|>
{% endfor -%}
{%- if add_generation_prompt -%}
    <|im_start|>assistant
{% endif -%}"""

COUNTED_IMAGES = (
    "{% set images = namespace(value=0) %}{% set videos = namespace(value=0) %}"
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{% if message['content'] is string %}{{ message['content'] }}<|im_end|>\n"
    "{% else %}{% for content in message['content'] %}"
    "{% if content['type'] == 'image' or 'image' in content or 'image_url' in content %}"
    "{% set images.value = images.value + 1 %}"
    "{% if add_vision_id %}Picture {{ images.value }}: {% endif %}<|image_pad|>"
    "{% elif content['type'] == 'video' or 'video' in content %}"
    "{% set videos.value = videos.value + 1 %}"
    "{% if add_vision_id %}Video {{ videos.value }}: {% endif %}<|video_pad|>"
    "{% elif 'text' in content %}{{ content['text'] }}{% endif %}{% endfor %}<|im_end|>\n"
    "{% endif %}{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

TOOLS_XML = """\
{%- if tools %}
    {{- '<|im_start|>system\n' }}
    {%- if messages[0].role == 'system' %}
        {{- messages[0].content + '\n\n' }}
    {%- endif %}
    {{- "# Tools\n\nYou may call functions.\n<tools>" }}
    {%- for tool in tools %}
        {{- "\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- '\n</tools>\nAnswer {"name": <name>, "arguments": <json>}<|im_end|>\n' }}
{%- else %}
    {%- if messages[0].role == 'system' %}
        {{- '<|im_start|>system\n' + messages[0].content + '<|im_end|>\n' }}
    {%- endif %}
{%- endif %}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>' + '\n' }}
    {%- elif message.role == "assistant" %}
        {{- '<|im_start|>' + message.role }}
        {%- if message.content %}
            {{- '\n' + message.content }}
        {%- endif %}
        {%- for tool_call in message.tool_calls %}
            {%- if tool_call.function is defined %}
                {%- set tool_call = tool_call.function %}
            {%- endif %}
            {{- '\n<tool_call>\n{"name": "' }}
            {{- tool_call.name }}
            {{- '", "arguments": ' }}
            {%- if tool_call.arguments is string %}
                {{- tool_call.arguments }}
            {%- else %}
                {{- tool_call.arguments | tojson }}
            {%- endif %}
            {{- '}\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\n' }}
    {%- elif message.role == "tool" %}
        {%- if (loop.index0 == 0) or (messages[loop.index0 - 1].role != "tool") %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\n<tool_response>\n' }}
        {{- message.content }}
        {{- '\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}
            {{- '<|im_end|>\n' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
{%- endif %}
"""

REASONING = """\
{%- set ns = namespace(open=true, last=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.open and message.role == "user" and message.content is string and not(
        message.content.startswith('<tool_response>') and
        message.content.endswith('</tool_response>')) %}
        {%- set ns.open = false %}
        {%- set ns.last = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- set content = message.content if message.content is string else '' %}
    {%- if message.role == "assistant" %}
        {%- set reasoning = '' %}
        {%- if message.reasoning_content is string %}
            {%- set reasoning = message.reasoning_content %}
        {%- elif '</think>' in content %}
            {%- set reasoning = content.split('</think>')[0].rstrip('\n').split('<think>')[-1] %}
            {%- set content = content.split('</think>')[-1].lstrip('\n') %}
        {%- endif %}
        {%- if loop.index0 > ns.last and (loop.last or reasoning) %}
            {{- '<|im_start|>assistant\n<think>\n' ~ reasoning.strip('\n') ~ '\n</think>\n\n' }}
            {{- content.lstrip('\n') }}
        {%- else %}
            {{- '<|im_start|>' + message.role + '\n' + content }}
        {%- endif %}
        {{- '<|im_end|>\n' }}
    {%- else %}
        {{- '<|im_start|>' + message.role + '\n' + content + '<|im_end|>\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\n\n</think>\n\n' }}
    {%- endif %}
{%- endif %}"""

LLAMA2 = (
    "{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}"
    "{% set system_message = messages[0]['content'] %}{% else %}"
    "{% set loop_messages = messages %}{% set system_message = false %}{% endif %}"
    "{% for message in loop_messages %}"
    "{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant/...') }}{% endif %}"
    "{% if loop.index0 == 0 and system_message != false %}"
    "{% set content = '<<SYS>>\\n' + system_message + '\\n<</SYS>>\\n\\n' + message['content'] %}"
    "{% else %}{% set content = message['content'] %}{% endif %}"
    "{% if message['role'] == 'user' %}"
    "{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}"
    "{% elif message['role'] == 'assistant' %}{{ ' ' + content.strip() + ' ' + eos_token }}"
    "{% endif %}{% endfor %}"
)

LLAMA3 = """\
{{- bos_token }}
{%- if not date_string is defined %}
    {%- if strftime_now is defined %}
        {%- set date_string = strftime_now("%d %b %Y") %}
    {%- else %}
        {%- set date_string = "26 Jul 2024" %}
    {%- endif %}
{%- endif %}
{%- if messages and messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content'] | trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\n\n" }}
{{- "Cutting Knowledge Date: December 2023\nToday Date: " + date_string + "\n\n" }}
{%- if tools is not none %}
    {{- "You have access to these functions.\n\n" }}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- "\n\n" }}
    {%- endfor %}
{%- endif %}
{{- system_message }}
{{- "<|eot_id|>" }}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' }}
        {%- if message['content'] is string %}
            {{- message['content'] | trim }}
        {%- else %}
            {%- for content in message['content'] %}
                {%- if content['type'] == 'image' %}
                    {{- '<|image|>' }}
                {%- elif content['type'] == 'text' %}
                    {{- content['text'] | trim }}
                {%- endif %}
            {%- endfor %}
        {%- endif %}
        {{- '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls|length == 1 %}
            {{- raise_exception("This model only supports single tool-calls at once!") }}
        {%- endif %}
        {%- set tool_call = message.tool_calls[0].function %}
        {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' -}}
        {{- '{"name": "' + tool_call.name + '", ' }}
        {{- '"parameters": ' }}
        {{- tool_call.arguments | tojson }}
        {{- "}" }}
        {{- "<|eot_id|>" }}
    {%- elif message.role == "tool" or message.role == "ipython" %}
        {{- "<|start_header_id|>ipython<|end_header_id|>\n\n" }}
        {%- if message.content is mapping or message.content is iterable %}
            {{- message.content | tojson }}
        {%- else %}
            {{- message.content }}
        {%- endif %}
        {{- "<|eot_id|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}
{%- endif %}
"""

GEMMA = """\
{{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
    {%- set prefix = messages[0]['content'] if messages[0]['content'] is string
        else messages[0]['content'][0]['text'] -%}
    {%- set first_user_prefix = prefix + '\n\n' -%}
    {%- set loop_messages = messages[1:] -%}
{%- else -%}
    {%- set first_user_prefix = "" -%}
    {%- set loop_messages = messages -%}
{%- endif -%}
{%- for message in loop_messages -%}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}
        {{ raise_exception("Conversation roles must alternate") }}
    {%- endif -%}
    {%- set role = "model" if (message['role'] == 'assistant') else message['role'] -%}
    {{ '<start_of_turn>' + role + '\n' + (first_user_prefix if loop.first else "") }}
    {%- if message['content'] is string -%}
        {{ message['content'] | trim }}
    {%- else -%}
        {%- for item in message['content'] -%}
            {{ '<start_of_image>' if item['type'] == 'image' else item['text'] | trim }}
        {%- endfor -%}
    {%- endif -%}
    {{ '<end_of_turn>\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{'<start_of_turn>model\n'}}
{%- endif -%}
"""

IMAGES_FIRST = (
    "{% for message in messages %}{{ message['role'].upper() + ': ' }}"
    "{# Render all images first #}"
    "{% for content in message['content'] | selectattr('type', 'equalto', 'image') %}"
    "{{ '<image>\n' }}{% endfor %}{# Render all text next #}"
    "{% for content in message['content'] | selectattr('type', 'equalto', 'text') %}"
    "{{ content['text'] + ' ' }}{% endfor %}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %}"
)

IMAGES_FIRST_GENERATION = (
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + ' '}}"
    "{% for content in message['content'] | selectattr('type', 'equalto', 'image') %}"
    "{{ '<image>' }}{% endfor %}{% if message['role'] != 'assistant' %}"
    "{% for content in message['content'] | selectattr('type', 'equalto', 'text') %}"
    "{{ '\n' + content['text'] }}{% endfor %}{% else %}"
    "{% for content in message['content'] | selectattr('type', 'equalto', 'text') %}"
    "{% generation %}{{ '\n' + content['text'] }}{% endgeneration %}{% endfor %}{% endif %}"
    "{{'<|im_end|>'}}{% endfor %}{% if add_generation_prompt %}"
    "{{ '<|im_start|>assistant\n' }}{% endif %}"
)

SMOL = (
    "<|im_start|>{% for message in messages %}{{message['role'] | capitalize}}"
    "{% if message['content'][0]['type'] == 'image' %}{{':'}}{% else %}{{': '}}{% endif %}"
    "{% for line in message['content'] %}{% if line['type'] == 'text' %}{{line['text']}}"
    "{% elif line['type'] == 'image' %}{{ '<image>' }}{% elif line['type'] == 'video' %}"
    "{{ '<video>' }}{% endif %}{% endfor %}<end_of_utterance>\n{% endfor %}"
    "{% if add_generation_prompt %}{{ 'Assistant:' }}{% endif %}"
)

MISTRAL = """\
{%- if messages and messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}
{%- set user_messages = loop_messages | selectattr("role", "equalto", "user") | list %}
{%- set ns = namespace() %}
{%- set ns.index = 0 %}
{%- for message in loop_messages %}
    {%- if not (message.role == "tool" or (message.tool_calls is defined and
        message.tool_calls is not none)) %}
        {%- if (message["role"] == "user") != (ns.index % 2 == 0) %}
            {{- raise_exception("After the optional system message, roles must alternate") }}
        {%- endif %}
        {%- set ns.index = ns.index + 1 %}
    {%- endif %}
{%- endfor %}
{{- bos_token }}
{%- for message in loop_messages %}
    {%- if message["role"] == "user" %}
        {%- if tools is not none and (message == user_messages[-1]) %}
            {{- "[AVAILABLE_TOOLS][" }}
            {%- for tool in tools %}
                {%- set tool = tool.function %}
                {{- '{"type": "function", "function": {' }}
                {%- for key, val in tool.items() if key != "return" %}
                    {%- if val is string %}
                        {{- '"' + key + '": "' + val + '"' }}
                    {%- else %}
                        {{- '"' + key + '": ' + val|tojson }}
                    {%- endif %}
                    {%- if not loop.last %}
                        {{- ", " }}
                    {%- endif %}
                {%- endfor %}
                {{- "}}" }}
                {%- if not loop.last %}{{- ", " }}{%- else %}{{- "]" }}{%- endif %}
            {%- endfor %}
            {{- "[/AVAILABLE_TOOLS]" }}
        {%- endif %}
        {%- if loop.last and system_message is defined %}
            {{- "[INST]" + system_message + "\n\n" + message["content"] + "[/INST]" }}
        {%- else %}
            {{- "[INST]" + message["content"] + "[/INST]" }}
        {%- endif %}
    {%- elif message.tool_calls is defined and message.tool_calls is not none %}
        {{- "[TOOL_CALLS][" }}
        {%- for tool_call in message.tool_calls %}
            {%- set out = tool_call.function|tojson %}
            {{- out[:-1] }}
            {%- if not tool_call.id is defined or tool_call.id|length != 9 %}
                {{- raise_exception("Tool call IDs should have 9 characters!") }}
            {%- endif %}
            {{- ', "id": "' + tool_call.id + '"}' }}
            {%- if not loop.last %}
                {{- ", " }}
            {%- else %}
                {{- "]" + eos_token }}
            {%- endif %}
        {%- endfor %}
    {%- elif message["role"] == "assistant" %}
        {{- message["content"]|trim + eos_token}}
    {%- elif message["role"] in ["tool_results", "tool"] %}
        {%- set content = message.content if message.content is string
            else message.content | map(attribute='text') | join %}
        {{- '[TOOL_RESULTS]{"content": ' + content|tojson + ", " }}
        {{- '"call_id": "' + message.tool_call_id + '"}[/TOOL_RESULTS]' }}
    {%- else %}
        {{- raise_exception("Only user and assistant roles are supported!") }}
    {%- endif %}
{%- endfor %}
"""

SCHEMA = """\
{%- macro type_of(spec, level=0) -%}
    {%- if spec.enum is defined -%}
        {%- for value in spec.enum -%}
            {{ value | tojson }}{% if not loop.last %} | {% endif %}
        {%- endfor -%}
    {%- elif spec.type is defined and spec.type is not string and spec.type is iterable -%}
        {{ spec.type | join(' | ') }}
    {%- elif spec.type == 'array' -%}
        {{ type_of(spec['items'], level) ~ '[]' }}
    {%- elif spec.type == 'object' -%}
        {{ object_of(spec, level + 1) }}
    {%- elif spec.type == 'integer' -%}
        number
    {%- else -%}
        {{ spec.type | default('any', true) }}
    {%- endif -%}
{%- endmacro -%}
{%- macro object_of(spec, level=1) -%}
    {%- set required = spec.required or [] -%}
    {{ '{\n' }}
    {%- for name, value in spec.properties | dictsort -%}
        {{ '  ' * level }}
        {%- if value.description %}{{ '// ' ~ value.description ~ '\n' ~ '  ' * level }}{% endif -%}
        {{ name }}{{ '' if name in required else '?' }}: {{ type_of(value, level=level) }}
        {{- ',\n' if not loop.last else '\n' }}
    {%- endfor -%}
    {{ '  ' * (level - 1) ~ '}' }}
{%- endmacro -%}
{%- if tools -%}
namespace functions {
{% for tool in tools -%}
{%- set fn = tool.function %}
// {{ fn.description }}
type {{ fn.name }} = (_: {{ object_of(fn.parameters) }}) => any;
{% endfor -%}
}
{% endif -%}
{%- for m in messages -%}
<|start|>{{ m.role }}<|message|>
    {{- m.content if m.content is string else m.content | tojson }}<|end|>
{%- endfor -%}
{{- '<|start|>assistant' if add_generation_prompt }}"""

CHANNELS = """\
{%- macro turn(role, content, channel=none, to=none) -%}
    <|start|>{{ role }}{{ ' to=' ~ to if to }}
    {{- '<|channel|>' ~ channel if channel is not none }}<|message|>{{ content }}<|end|>
{%- endmacro -%}
{{- turn('system', 'Today is ' ~ strftime_now('%Y-%m-%d') ~ '.') -}}
{%- for message in messages -%}
    {%- if message.role in ['system', 'developer'] -%}
        {{- turn('developer', '# Instructions\n\n' ~ message.content) -}}
    {%- elif message.role == 'assistant' -%}
        {%- if message.reasoning_content -%}
            {{- turn('assistant', message.reasoning_content, channel='analysis') -}}
        {%- endif -%}
        {%- for item in message.tool_calls or [] -%}
            {%- set f = item.function -%}
            {{- turn('assistant', f.arguments | tojson if f.arguments is mapping else f.arguments,
                     'commentary', 'functions.' ~ f.name) -}}
        {%- endfor -%}
        {%- if message.content -%}
            {{- turn('assistant', message.content, channel='final') -}}
        {%- endif -%}
    {%- else -%}
        {{- turn(message.role, message.content) -}}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}<|start|>assistant{%- endif -%}"""

VICUNA = """\
{% if messages[0]['role'] == 'system' %}{% set messages = messages[1:] %}\
{% set system = messages[0]['content'] %}{% else %}{% set system = 'A chat.' %}{% endif %}
{{ system }}
{%- for m in messages %}
 {{ loop.cycle('USER', 'ASSISTANT') }}: {{ m['content'] | trim -}}
{{ eos_token if m['role'] == 'assistant' }}
{%- endfor %}
{% if add_generation_prompt %} ASSISTANT:{% endif %}"""

ALPACA = """\
{% for message in messages %}
{% if message.role == 'user' %}
### Instruction: {{ message.content|trim }}{% if not loop.last %}{{ "\n" }}{% endif %}
{% elif message.role == 'assistant' %}
### Response: {{ message.content|trim }}{% if not loop.last %}{{ "\n" }}{% endif %}
{% elif message.role == 'system' %}
{{ message.content }}

{% endif %}
{% endfor %}
{% if add_generation_prompt and messages[-1]['role'] != 'assistant' %}
### Response:
{% endif %}"""

STRICT = """\
{%- set allowed = ['system', 'user', 'assistant'] -%}
{%- for m in messages -%}
    {%- if m.role not in allowed -%}
        {{- raise_exception('unknown role ' ~ m.role) -}}
    {%- elif m.role == 'system' and not loop.first -%}
        {{- raise_exception('a system message stands first') -}}
    {%- elif loop.previtem is defined and loop.previtem.role == m.role -%}
        {{- raise_exception('two ' ~ m.role ~ ' messages in a row at ' ~ loop.index) -}}
    {%- elif m.content is not string or not m.content | trim -%}
        {{- raise_exception('empty content') -}}
    {%- endif -%}
    [{{ m.role[0] | upper }}]{{ m.content }}
{%- endfor -%}
{%- if add_generation_prompt and messages[-1].role == 'assistant' -%}
    {{- raise_exception('nothing is asked') -}}
{%- endif -%}"""

MERGED_SYSTEM = """\
{%- set ns = namespace(system='', rest=[]) -%}
{%- for m in messages -%}
    {%- if m.role in ('system', 'developer') -%}
        {%- set ns.system = ns.system ~ ('\n' if ns.system) ~ m.content -%}
    {%- else -%}
        {%- set ns.rest = ns.rest + [m] -%}
    {%- endif -%}
{%- endfor -%}
{%- for m in ns.rest -%}
    {%- set words -%}
        {%- if loop.first and ns.system -%}{{ ns.system }}{{ '\n\n' }}{%- endif -%}
        {{ m.content }}
    {%- endset -%}
    <{{ m.role }}>{{ words }}</{{ m.role }}>
{%- else -%}
    <empty>
{%- endfor -%}"""

COMMAND = """\
{%- macro tool_lines(tools) -%}
{% for tool in tools or [] %}
{% set f = tool['function'] %}
def {{ f.name }}(
{%- for name, spec in (f.parameters.properties or {}).items() -%}
{{ name }}: {% if spec.type == 'string' %}str{% elif spec.type == 'array' %}List{% else %}object
{%- endif %}
{%- if name not in (f.parameters.required or []) %} = None{% endif %}{{ ', ' if not loop.last }}
{%- endfor -%}
):
    \"\"\"{{ f.description | replace('"', "'") }}\"\"\"
{% endfor %}
{%- endmacro -%}
{{ bos_token }}<|SYSTEM|>{{ tool_lines(tools) | trim | indent(4, first=True) }}
{%- for message in messages %}
{%- set role = {'user': 'USER', 'assistant': 'CHATBOT'}.get(message.role, 'SYSTEM') %}
<|{{ role }}|>{{ message.content if message.content is string else '' -}}
{%- for tc in message.tool_calls if tc.type == 'function' %}
Action: {{ [tc.function] | tojson(indent=2) }}
{%- endfor -%}
{%- endfor %}
{% if add_generation_prompt %}<|CHATBOT|>{% endif %}"""

PYTHON_CALLS = """\
{%- macro value_of(value) -%}
    {%- if value is string -%}'{{ value | replace("'", "\\\\'") }}'
    {%- elif value is boolean -%}{{ 'True' if value else 'False' }}
    {%- elif value is none -%}None
    {%- elif value is mapping -%}
        {{ '{' }}{% for k in value %}'{{ k }}': {{ value_of(value[k]) }}
        {{- ', ' if not loop.last }}{% endfor %}{{ '}' }}
    {%- elif value is sequence -%}
        [{% for v in value %}{{ value_of(v) }}{{ ', ' if not loop.last }}{% endfor %}]
    {%- else -%}{{ value }}{%- endif -%}
{%- endmacro -%}
{%- for m in messages -%}
{{ m.role }}: {{ m.content or '' }}
{%- if m.tool_calls -%}
[
{%- for c in m.tool_calls -%}
    {{ c.function.name }}(
    {%- if c.function.arguments is mapping -%}
        {%- for k, v in c.function.arguments.items() -%}
            {{ k }}={{ value_of(v) }}{{ ', ' if not loop.last -}}
        {%- endfor -%}
    {%- else -%}{{ c.function.arguments }}{%- endif -%}
    ){{ ', ' if not loop.last -}}
{%- endfor -%}
]
{%- endif %}
{% endfor -%}"""

PARAMETERS = """\
{%- macro extra(spec, done) -%}
    {%- if spec is mapping -%}
        {%- for key in spec if key not in done -%}
            {%- if spec[key] is mapping or (spec[key] is sequence and spec[key] is not string) -%}
                {{- '\n<' ~ key ~ '>' ~ (spec[key] | tojson | safe) ~ '</' ~ key ~ '>' -}}
            {%- else -%}
                {{- '\n<' ~ key ~ '>' ~ (spec[key] | string) ~ '</' ~ key ~ '>' -}}
            {%- endif -%}
        {%- endfor -%}
    {%- endif -%}
{%- endmacro -%}
{%- for tool in tools or [] -%}
    {%- if tool.function is defined %}{% set tool = tool.function %}{% endif -%}
    <function><name>{{ tool.name }}</name>
    {%- for name, spec in tool.parameters.properties | items -%}
        {{ '\n' }}<parameter><name>{{ name }}</name>{{ extra(spec, ['name', 'type']) }}</parameter>
    {%- endfor -%}
    {{ extra(tool, ['type', 'name', 'description', 'parameters']) }}</function>
{% endfor -%}
{%- for message in messages -%}
    <{{ message.role }}>{{ message.content | default('', true) | string | trim }}
    {%- for tool_call in message.tool_calls or [] -%}
        {%- set tool_call = tool_call.function if tool_call.function is defined else tool_call -%}
        {{ '\n' }}<function={{ tool_call.name }}>
        {%- if tool_call.arguments is mapping -%}
            {%- for name, value in tool_call.arguments | items -%}
                {%- set value = value | tojson | safe if value is mapping or (value is sequence and
                    value is not string) else value | string -%}
                {{ '\n<parameter=' ~ name ~ '>\n' ~ value ~ '\n</parameter>' }}
            {%- endfor -%}
        {%- endif -%}
        {{ '\n</function>' }}
    {%- endfor -%}
    </{{ message.role }}>
{% endfor -%}"""

LAST_ONLY = """\
{%- for message in messages -%}
    {%- if message.role != 'user' %}{% continue %}{% endif -%}
    {%- set rest = messages[loop.index:] | selectattr('role', 'eq', 'user') | list -%}
    {%- if not rest -%}
        {%- generation -%}{{ message.content }}{%- endgeneration -%}{%- break -%}
    {%- endif -%}
{%- endfor -%}"""

DOCUMENTS = """\
{%- set documents = documents or [] -%}
{{ bos_token }}{% if documents %}<documents>{{ '\n' }}
{%- for doc in documents -%}
    <doc n="{{ loop.index }}/{{ loop.length }}" id="{{ doc.id | default(loop.index0) }}">
    {%- for key, value in doc | dictsort(by='key') -%}
        {{ key | title }}: {{ value | string | trim | indent(2) }};
    {%- endfor -%}
    </doc>{{ '\n' }}
{%- endfor -%}
</documents>{% endif %}
{%- for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor -%}"""

NUMBERED = """\
{% set ns = namespace(turn=0, chars=0) %}
{% for m in messages %}
{% if m.role == 'user' %}{% set ns.turn = ns.turn + 1 %}{% endif %}
{% set ns.chars = ns.chars + (m.content | length if m.content is string else 0) %}
Turn {{ '%02d' | format(ns.turn) }} ({{ loop.index }} of {{ loop.length }}, {{ loop.revindex0 }})
{{ '-' * 8 }} {{ m.role | upper | center(11) }} {{ '-' * 8 }}
{{ m.content | string | indent(2, true) }}
{% endfor %}
{{ ns.chars }} characters{{ '' if ns.turn == 1 else ', %d turns' % ns.turn }}"""

RECURSIVE = """\
{%- macro show(value, depth=0) -%}
    {%- if value is mapping -%}
        {%- for k, v in value.items() -%}
            {{ '\n' ~ '  ' * depth ~ k ~ ':' }}{{ show(v, depth + 1) }}
        {%- endfor -%}
    {%- elif value is string -%} {{ value }}
    {%- elif value is iterable -%}
        {%- for v in value -%}{{ '\n' ~ '  ' * depth ~ '-' }}{{ show(v, depth + 1) }}{%- endfor -%}
    {%- else -%} {{ value | tojson }}
    {%- endif -%}
{%- endmacro -%}
{{ show(messages) }}{{ show(tools) if tools }}"""

CALLER = """\
{%- macro turn(m) -%}
<turn role="{{ m.role | e }}">{{ caller(m.content) }}</turn>
{%- endmacro -%}
{%- for m in messages -%}
    {%- call(content) turn(m) -%}
        {{ content | escape if content is string else content | tojson }}
    {%- endcall -%}
{%- endfor -%}"""

TERNARIES = """\
{{- bos_token if bos_token is defined and messages else 'none' -}}
{%- for m in messages -%}
{{- ('U' if m.role == 'user' else 'A' if m.role == 'assistant' else
     'S' if m.role == 'system' else '?') ~ ': ' ~ (m.content if m.content is string else
    (m.content | selectattr('type', 'equalto', 'text') | map(attribute='text') | join('+')
     if m.content else '(none)')) ~ ('' if loop.last else ' / ') -}}
{%- endfor -%}
{{- ' / A:' if add_generation_prompt and (not messages or messages[-1].role != 'assistant') -}}"""

GROUPS = """\
{%- for role, group in messages | groupby('role') -%}
{{ role }}={{ group | length }}{% if not loop.last %}, {% endif %}
{%- endfor %}
{% for message in messages | rejectattr('role', 'in', ['system', 'tool']) %}
{{ message.role }}: {{ message.content | default('-', true) | string | truncate(12, true, '…') }}
{% endfor %}
{{ messages | map(attribute='role') | unique | join('|') }}"""

SPLIT_THINKING = """\
{%- for message in messages -%}
    {%- if message['role'] == 'assistant' and message['content'] is not none and
        message['content'] is string -%}
        {%- set content = message['content'] -%}
        {%- if '</think>' in content -%}
            {%- set content = content.split('</think>')[-1] -%}
        {%- endif -%}
        {{ '<|A|>' }}{% generation %}{{ content + '<|end|>' }}{% endgeneration %}
    {%- elif message['role'] == 'assistant' -%}
        {{ '<|A|>' }}
        {%- for tool in message['tool_calls'] -%}
            {%- if not loop.first %}{{ '\n' }}{% endif -%}
            {% generation %}{{ tool['type'] + '<|sep|>' + tool['function']['name'] + '\n```json\n' +
                tool['function']['arguments'] + '\n```' }}{% endgeneration %}
        {%- endfor -%}
    {%- else -%}
        {{ '<|' ~ message['role'][0] | upper ~ '|>' ~ message['content'] }}
    {%- endif -%}
{%- endfor -%}
{% if add_generation_prompt %}{{ '<|A|><think>\n' }}{% endif %}"""

WITH_BLOCKS = """\
{% for m in messages %}
  {% with role = m.role, words = m.content %}
    {% set line %}{% filter trim %}  {{ role }} -> {{ words }}  {% endfilter %}{% endset %}
[{{ line }}]
  {% endwith %}
{% endfor %}
{% raw %}{{ kept }} {% if %}{% endraw %}

{# the end #}
"""

ROLE_TABLE = """\
{%- set names = {'system': 'S', 'user': 'U', 'assistant': 'A'} -%}
{%- set marks = dict(begin='<', end='>') -%}
{%- for m in messages -%}
    {{- marks.begin ~ names[m.role] ~ (names.get(m.role) or '?') ~ marks['end'] -}}
    {{- m.content if m.content is string else m.content | length -}}
{%- endfor -%}"""

THINK_BUDGET = """\
{%- set budget = thinking_budget | default(-1) -%}
{%- set think = enable_thinking is not defined or enable_thinking -%}
{{- '<seed:bos>system\n' ~ (budget if budget >= 0 else 'no limit') ~ '<seed:eos>' if think -}}
{%- for m in messages -%}
    {{- '<seed:bos>' ~ m.role ~ '\n' -}}
    {%- if m.role == 'assistant' and (m.reasoning_content or m.thinking) is string
        and (m.reasoning_content or m.thinking) | trim | length > 0 -%}
        {{- '<seed:think>' ~ (m.reasoning_content or m.thinking) | trim ~ '</seed:think>' -}}
    {%- endif -%}
    {%- if m.content is string and m.content | trim | length > 0 -%}
        {{- '\n' ~ m.content | trim ~ '\n' -}}
    {%- endif -%}
    {{- '<seed:eos>' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{- '<seed:bos>assistant\n' ~ ('' if think else '<seed:think>\n</seed:think>') -}}
{%- endif -%}"""

SORTED_TOOLS = """\
{% for tool in tools | default([], true) | sort(attribute='function.name') %}
{{ loop.index }}. {{ tool.function.name }}: {{ tool.function.description | capitalize }}
{% for name in tool.function.parameters.properties.keys() | sort %}
   {{ name | title }} ({{ tool.function.parameters.properties[name].type | string | lower }})
{% else %}
   (no parameters)
{% endfor %}
{% endfor %}
{{ messages | tojson(indent=1, sort_keys=true) }}"""

BATCHES = """\
{% for pair in messages | batch(2) %}
{{ loop.index }}: {% for m in pair -%}
{{ m.role }}={{ m.content | string | length }}{{ ';' if not loop.last }}
{%- endfor %}

{% endfor %}
{{ messages | selectattr('content', 'string') | map(attribute='content') | map('trim')
    | join(' # ') }}
{{ (messages | last).role if messages }} {{ (messages | first).content | string if messages }}"""

SAFE_GET = """\
{%- for m in messages -%}
    {%- set content = m.get('content') or m.get('reasoning_content', '') or '' -%}
    {{- m.get('name', m['role']) | lower ~ '> ' ~ (content if content is string else
        content | map(attribute='text', default='<media>') | join('')) ~ '\n' -}}
{%- endfor -%}"""

JOINED = """\
{%- set sep = joiner(' | ') -%}
{%- for m in messages -%}
    {{ sep() }}{{ m.role }}
    {%- set one = [{'type': 'text', 'text': m.content}] -%}
    {%- for part in (m.content if m.content is not string else one) or [] -%}
        {{ ':' ~ part.type }}{{ '=' ~ part.text if part.type == 'text' }}
    {%- endfor -%}
{%- endfor -%}"""

WHOLE_GENERATION = """\
{%- for m in messages -%}
    {%- set lead = '<' ~ m.role ~ '>' -%}
    {%- if m.role == 'assistant' -%}
        {{ lead }}{%- generation -%}
            {%- if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif -%}
            {{ m.content or '' }}
            {%- for c in m.tool_calls or [] -%}
                <call>{{ c.function | tojson }}</call>
            {%- endfor -%}
            {{ eos_token }}
        {%- endgeneration -%}
    {%- else -%}
        {{ lead }}{{ m.content if m.content is string else m.content | tojson }}
    {%- endif -%}
{%- endfor -%}"""


def wrapped(begin, middle, end):
    """A template of one form, with these marks around role and words."""
    return (
        "{% for message in messages %}{{ '"
        + begin
        + "' + message['role'] + '"
        + middle
        + "' + message['content'] + '"
        + end
        + "' }}{% endfor %}{% if add_generation_prompt %}{{ '"
        + begin
        + "assistant"
        + middle
        + "' }}{% endif %}"
    )


def parts_in_place(image, newline, last):
    """A template that keeps the images at their positions and marks the answers."""
    return (
        "{%- for m in messages %}{{ '[' ~ m.role ~ ']' }}"
        "{%- if m.role == 'assistant' %}{% generation %}{% endgeneration %}{%- endif %}"
        "{%- for part in m.content if m.content is not string %}"
        "{%- if part.type == 'image' %}{{ '" + image + "' }}"
        "{%- elif part.type == 'text' %}{{ part.text" + newline + " }}{%- endif %}"
        "{%- else %}{{ m.content }}{%- endfor %}" + last + "{%- endfor %}"
    )


TEMPLATES = {
    name.lower(): value
    for name, value in globals().items()
    if name.isupper() and isinstance(value, str)
}
TEMPLATES.update(
    phi=wrapped("<|", "|>\\n", "<|end|>\\n"),
    zephyr=wrapped("<|", "|>\\n", "</s>\\n"),
    header=wrapped("<|start_header_id|>", "<|end_header_id|>\\n\\n", "<|eot_id|>"),
    granite=wrapped("<|start_of_role|>", "<|end_of_role|>", "<|end_of_text|>\\n"),
    falcon=wrapped("", ": ", "\\n"),
    bars=wrapped("｜", "｜", "▁end▁"),
    place=parts_in_place("<image>", "", "{{ '\n' }}"),
    place_newline=parts_in_place("<image>\\n", " ~ '\n'", ""),
    place_trim=parts_in_place("<|image|>", " | trim", "{{ eos_token }}"),
    place_upper=parts_in_place("<img>", " | upper", "{{ eos_token }}"),
    place_replace=parts_in_place("<img>", " | replace('a', 'AA')", ""),
    place_strip=parts_in_place("<img>", ".strip()", "{{ bos_token }}"),
    place_slice=parts_in_place("<img>", "[:4] ~ part.text[4:]", ""),
    place_reverse=parts_in_place("<img>", "[::-1]", ""),
    place_split=parts_in_place("<img>", ".split() | join(' ')", ""),
    place_words=parts_in_place("<img>", ".split(' ')[0]", " "),
    place_lower=parts_in_place("<img>", " | lower | capitalize", ""),
    place_format=parts_in_place("<img>", " | string ~ '%s' % part.text", ""),
    place_format_words=parts_in_place("<img>", " ~ '{}!'.format(part.text)", ""),
    place_json=parts_in_place("<img>", " | tojson", ""),
    place_list=parts_in_place("<img>", " | list | join", ""),
    place_indent=parts_in_place("<img>", " | indent(2)", ""),
)
