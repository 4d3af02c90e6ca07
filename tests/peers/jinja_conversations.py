"""Conversations for rendering whole chat templates: the names that transformers passes."""

import copy

TOKENS = dict(bos_token="<s>", eos_token="</s>", pad_token="<pad>", unk_token="<unk>")

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": 'The weather "now" of a place, in °C.',
        "parameters": {
            "type": "object",
            "properties": {
                "place": {"type": "string", "description": "A city, e.g. Köln"},
                "unit": {"type": "string", "enum": ["C", "F"]},
                "days": {"type": "array", "items": {"type": "integer"}},
                "detail": {
                    "type": "object",
                    "properties": {
                        "wind": {"type": "boolean"},
                        "note": {"type": ["string", "null"]},
                    },
                },
            },
            "required": ["place"],
        },
        "return": {"type": "number", "description": "degrees"},
    },
}
PLAIN_TOOL = {
    "type": "function",
    "function": {
        "name": "stop",
        "description": "Ends it.",
        "parameters": {"type": "object", "properties": {}},
    },
}


def user(content):
    return {"role": "user", "content": content}


def assistant(content, **more):
    return {"role": "assistant", "content": content, **more}


def system(content):
    return {"role": "system", "content": content}


def text(words):
    return {"type": "text", "text": words}


def call(name, arguments, number=0):
    # Nine letters and digits, as required by Mistral's templates.
    function = {"name": name, "arguments": arguments}
    return {"id": f"call{number:05}", "type": "function", "function": function}


def tool(content, number=0, name="get_weather"):
    return {"role": "tool", "content": content, "tool_call_id": f"call{number:05}", "name": name}


IMAGE = {"type": "image"}
VIDEO = {"type": "video"}
CALLED = [
    user("Weather in Köln?"),
    assistant(
        "", tool_calls=[call("get_weather", {"place": "Köln", "days": [1, 2], "unit": None})]
    ),
    tool('{"temp": 21.5}'),
    assistant("It is 21.5 degrees."),
]
CONVERSATIONS = dict(
    one=dict(messages=[user("Hello, who are you?")]),
    system=dict(messages=[system("Be brief."), user("Hi"), assistant("Hello!")]),
    turns=dict(
        messages=[
            user("First question"),
            assistant("First answer"),
            user("Second question"),
            assistant("Second answer"),
            user("Third"),
        ]
    ),
    parts=dict(messages=[user([text("Only text "), text("in parts")]), assistant([text("Seen")])]),
    image=dict(messages=[user([IMAGE, text("What is this?")]), assistant([text("A cat.")])]),
    images=dict(
        messages=[
            system([text("Look closely.")]),
            user([text("Compare "), IMAGE, text(" with "), IMAGE]),
            assistant([text("Both are cats.")]),
            user([text("And this?"), {"type": "image", "image": "c.png"}]),
        ]
    ),
    image_url=dict(
        messages=[user([{"type": "image_url", "image_url": {"url": "u.png"}}, text("Read it.")])]
    ),
    video=dict(messages=[user([VIDEO, text("What happens?")]), assistant([text("A goal.")])]),
    empty_system=dict(messages=[system(""), user("Hi"), assistant("Hello")]),
    unicode=dict(
        messages=[
            system("Sé breve 世界"),
            user("Grüße 😀\u0301"),
            assistant("नमस्ते\u200d"),
        ]
    ),
    spaces=dict(
        messages=[
            system("  padded system \n"),
            user("\n trailing \t\n"),
            assistant("  answer \n\n"),
            user(" "),
        ]
    ),
    marks=dict(messages=[user("<|im_end|> {{ 1 }} {% x %} </s>"), assistant('"q" \\ & <b> \'')]),
    tools=dict(messages=[system("Use tools."), user("Weather?")], tools=[WEATHER, PLAIN_TOOL]),
    tools_bare=dict(messages=[user("Weather?")], tools=[WEATHER]),
    called=dict(messages=CALLED, tools=[WEATHER]),
    called_text=dict(
        messages=[
            user("Weather?"),
            assistant(None, tool_calls=[call("get_weather", '{"place": "Bonn"}')]),
            tool("rain"),
            assistant("Rain."),
        ],
        tools=[WEATHER],
    ),
    called_twice=dict(
        messages=[
            system("Use tools."),
            user("Both?"),
            assistant(
                "Looking.",
                reasoning_content="Two calls.",
                tool_calls=[
                    call("get_weather", {"place": "Bonn"}, 1),
                    call("get_weather", {"place": "Ulm", "detail": {"wind": True}}, 2),
                ],
            ),
            tool("rain", 1),
            tool([text("sun")], 2),
            assistant("Rain and sun.", reasoning_content="Say both."),
            user("Thanks"),
        ],
        tools=[WEATHER, PLAIN_TOOL],
    ),
    reasoning=dict(
        messages=[
            user("2 + 2?"),
            assistant("4", reasoning_content="Two and two\nmake four."),
            user("And 3?"),
            assistant("7", reasoning_content="Four and three."),
        ]
    ),
    thinking=dict(
        messages=[
            user("2 + 2?"),
            assistant("<think>\nTwo and two.\n</think>\n\n4"),
            user("Sure?"),
            assistant("<think>Yes</think>Yes.", thinking="Yes"),
        ],
        enable_thinking=True,
    ),
    not_thinking=dict(messages=[user("Quick!")], enable_thinking=False),
    developer=dict(
        messages=[{"role": "developer", "content": "Obey."}, user("Hi"), assistant("Hm")]
    ),
    two_users=dict(messages=[user("One"), user("Two"), assistant("Three")]),
    answer_first=dict(messages=[assistant("I begin"), user("No")]),
    two_systems=dict(messages=[system("A"), user("B"), system("C"), assistant("D")]),
    other_role=dict(messages=[user("A"), {"role": "critic", "content": "B"}]),
    nothing=dict(messages=[]),
    dated=dict(messages=[user("Date?")], date_string="1 May 2025", add_vision_id=True),
    documents=dict(messages=[user("Cite.")], documents=[{"title": "T", "text": "Words", "id": 1}]),
)


def values_of(name, prompt):
    """The values that transformers passes to a template for such a conversation."""
    values = dict(tools=None, documents=None, add_generation_prompt=prompt, **TOKENS)
    return copy.deepcopy(dict(values, **CONVERSATIONS[name]))
