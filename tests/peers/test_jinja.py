"""The renderer of chat templates against jinja2 in transformers' environment: expressions, whole
templates, published ones, and the origin of each piece of the text."""

import html
import json
import os
import re
import subprocess
import threading

import pytest
from transformers.utils.chat_template_utils import render_jinja_template

import jinja_published
import jinja_random
from jinja_cases import BY_NAME, CASES, CONTEXT, OPTIONS
from jinja_conversations import CONVERSATIONS, TOKENS, values_of
from jinja_hostile import HOSTILE
from jinja_peer import DATE, PROGRAM, Renderer, difference, reference, request_line
from jinja_templates import TEMPLATES

SECOND, MEMORY = 1.0, 256 << 20  # limits for a hostile template, in s and bytes

# jinja2 has integers of any size: refusing values beyond 64 bits is right, another text is not.
EDGES = [
    "{{ 2 ** 62 * 2 }}",
    "{{ 2 ** 63 }} {{ big * big }}",
    "{{ 2 ** 100 }}",
    "{{ 9223372036854775807 + 1 }}",
    "{{ -9223372036854775807 - 2 }}",
    "{{ 9223372036854775807 * 9223372036854775807 }}",
    "{{ -9223372036854775808 }}",
    "{{ (-9223372036854775807 - 1) // -1 }}",
    "{{ (-9223372036854775807 - 1) % -1 }}",
    "{{ -(-9223372036854775807 - 1) }}",
    "{{ (-9223372036854775807 - 1) | abs }}",
    "{{ 99999999999999999999 }}",
    "{{ '99999999999999999999' | int }}",
    "{{ 1e30 | int }}",
    "{{ 1e300 | round | int }}",
    "{{ 'inf' | float | int }}",
    "{{ 'nan' | float | int }}",
    "{{ 'inf' | float | round }}",
    "{{ 1e308 * 10 }}",
    "{{ 0x7fffffffffffffff }} {{ 0xffffffffffffffff }}",
    "{{ range(9223372036854775807) | first }}",
    "{{ range(-9223372036854775807, 9223372036854775807) | length }}",
    "{{ xs[9223372036854775807:] }} {{ xs[-9223372036854775807:] }}",
    "{{ xs[99999999999999999999:] }}",
    "{{ xs[::9223372036854775807] }} {{ xs[::-9223372036854775807] }}",
    "{{ 'a' * -9223372036854775807 }}",
    "{{ 7 // -9223372036854775807 }} {{ 7 % -9223372036854775807 }}",
    "{{ 3 ** -9223372036854775807 }}",
    "{{ 0 ** 9223372036854775807 }} {{ 1 ** 9223372036854775807 }}",
    "{{ (-1) ** 9223372036854775807 }}",
    "{{ 9223372036854775807 == 9223372036854775807.0 }}",
    "{{ 9223372036854775807 < 9223372036854775808.0 }}",
    "{{ 9223372036854775807 | float }} {{ 9223372036854775807 / 3 }}",
    "{{ [9223372036854775807, 1] | sum }}",
    "{{ 'x'.center(-9223372036854775807) }}|{{ 'x' | indent(-5) }}",
    "{{ 'abc' | truncate(-1, true, '', 0) }}",
    "{{ 2.5 | round(400) }} {{ 2.5 | round(-400) }}",
    "{{ 123 | round(-400) }}",
    "{{ '%c' % 1114112 }}",
    "{{ '%c' % 55296 }}",
    "{{ '\\ud800' }}",
    "{{ '\\U00110000' }}",
    "{{ '\\x00' }}{{ '\\x00' | length }}",
    "{{ 'a\\x00b' | upper }}{{ 'a\\x00b'.split('\\x00') }}",
]


@pytest.fixture(scope="module")
def renderer():
    with Renderer() as program:
        yield program


def different(renderer, templates, values, options=None):
    """The differing results of the templates, one below the other."""
    found = [difference(renderer, template, values, options) for template in templates]
    return "\n".join(line for line in found if line)


@pytest.mark.parametrize("kind", CASES)
def test_expressions_are_as_in_jinja2(kind, renderer):
    found = different(renderer, CASES[kind], CONTEXT)
    assert not found, found


@pytest.mark.parametrize("name", OPTIONS)
def test_white_space_is_as_in_jinja2_under_other_options(name, renderer):
    found = different(renderer, CASES["whitespace"] + CASES["loops"], CONTEXT, OPTIONS[name])
    assert not found, found


def test_what_64_bits_do_not_hold_is_refused_or_as_in_jinja2(renderer):
    for template in EDGES:
        found = renderer.render(template, CONTEXT)
        want = reference(template, CONTEXT)
        assert found.text is None or found.same(want), (template, found.seen(), want.seen())


def test_random_expressions_are_as_in_jinja2(renderer):
    found, unsupported = [], 0
    for template in jinja_random.expressions(1500):
        line = difference(renderer, template, CONTEXT)
        if "not supported" in line.partition("found")[2]:
            unsupported += 1
        elif line:
            found.append(line)
    assert not found, "\n".join(found)
    assert unsupported <= 15


def test_random_templates_are_as_in_jinja2(renderer):
    found = different(renderer, jinja_random.templates(300), CONTEXT)
    assert not found, found


@pytest.mark.parametrize("name", BY_NAME)
def test_what_the_renderer_has_not_it_refuses_by_name(name, renderer):
    found, want = renderer.render(BY_NAME[name], CONTEXT), reference(BY_NAME[name], CONTEXT)
    assert name in found.refusal if found.text is None else found.same(want), found.seen()


def test_a_refusal_names_file_line_and_words(renderer):
    found = renderer.render("one\ntwo {{ n }}\n{{ s | nofilter }}\n", CONTEXT)
    assert "nofilter" in found.refusal and ":3" in found.refusal, found.refusal
    found = renderer.render("\n\n{{ raise_exception('my own ' ~ 'words') }}")
    assert found.raised and "my own words" in found.refusal, found.refusal


@pytest.mark.parametrize("prompt", [False, True])
def test_the_reference_is_what_transformers_renders(prompt):
    for name in ["chatml_generation", "images_first_generation", "whole_generation"]:
        values = dict(values_of("images", prompt), tools=None)
        texts, spans = render_jinja_template(
            [values["messages"]],
            chat_template=TEMPLATES[name],
            return_assistant_tokens_mask=True,
            add_generation_prompt=prompt,
            **TOKENS,
        )
        found = reference(TEMPLATES[name], values)
        found.generation = [
            tuple(len(found.text.encode()[:place].decode()) for place in span)
            for span in found.generation
        ]
        assert (found.text, found.generation) == (texts[0], spans[0])


def rows():
    """Yields each conversation's name, with and without a prompt, and the template's values."""
    for name in CONVERSATIONS:
        for prompt in [False, True]:
            yield (name, prompt), values_of(name, prompt)


def check_whole(renderer, template):
    """A template renders some of the conversations, and all of them as transformers does."""
    rendered = 0
    for name, values in rows():
        want = reference(template, values)
        found = renderer.render(template, values)
        assert want.same(found), f"{name}\n expected {want.seen()}\n found    {found.seen()}"
        rendered += want.text is not None
    assert rendered >= 4


@pytest.mark.parametrize("name", TEMPLATES)
def test_whole_templates_are_as_in_transformers(name, renderer):
    check_whole(renderer, TEMPLATES[name])


@pytest.mark.parametrize("name", jinja_published.templates())
def test_published_templates_are_as_in_transformers(name, renderer):
    check_whole(renderer, jinja_published.templates()[name])


def test_published_templates_are_many_and_of_every_family():
    assert len(jinja_published.templates()) >= 180
    assert set(jinja_published.FAMILIES.values()) <= set(jinja_published.templates())


def sources_of(value, found=None):
    """The values of a JSON value in the order in which they are numbered."""
    found = [] if found is None else found
    found.append(value)
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
    for part in parts:
        sources_of(part, found)
    return found


def globals_sources(values):
    return [source for value in values.values() for source in sources_of(value)]


def marked(values):
    """The same conversation with words in every text of its messages that identify their source."""
    numbers = iter(range(1 << 30))

    def walk(value, key, inside):
        number = next(numbers)
        if isinstance(value, dict):
            return {name: walk(part, name, inside) for name, part in value.items()}
        if isinstance(value, list):
            return [walk(part, key, inside) for part in value]
        if inside and key in ["content", "text", "reasoning_content", "place", "description"]:
            if isinstance(value, str):
                return f"mark{number}a {value} mark{number}z"
        return value

    return {key: walk(value, key, key in ["messages", "tools"]) for key, value in values.items()}


def is_copy(piece, source, offset):
    """Whether bytes of the text come from a source, unchanged or as JSON, Python or HTML
    write them."""
    if piece == source[offset : offset + len(piece)]:
        return True
    words = piece.decode("utf-8", "surrogatepass")
    for read in [
        lambda: json.loads(f'"{words}"'),
        lambda: html.unescape(words),
        lambda: words.replace("\\'", "'").replace("\\n", "\n").replace("\\\\", "\\"),
    ]:
        try:
            plain = read().encode("utf-8", "surrogatepass")
        except ValueError:
            continue
        if plain == source[offset : offset + len(plain)]:
            return True
    return False


def check_runs(found, sources):
    """Runs are in order, within the text, and match their sources."""
    text, end = found.text.encode("utf-8", "surrogatepass"), 0
    for begin, stop, source, offset in found.runs:
        assert end <= begin < stop <= len(text), (begin, stop, found.runs)
        end = stop
        value = sources[source]
        if isinstance(value, str):
            place = value.encode("utf-8", "surrogatepass")
            assert is_copy(text[begin:stop], place, offset), (text[begin:stop], value, offset)
        else:
            assert offset == 0, (text[begin:stop], value, offset)
            if not isinstance(value, list | dict):
                written = text[begin:stop].decode().lower()
                assert written in [str(value).lower(), json.dumps(value)], (written, value)


def check_marks(found):
    """Every word that identifies a source has that source as its origin, over its whole length."""
    text, marks = found.text.encode("utf-8", "surrogatepass"), 0
    for mark in re.finditer(rb"mark([0-9]+)[az]", text):
        cover = [
            source
            for begin, stop, source, _ in found.runs
            if begin <= mark.start() and mark.end() <= stop
        ]
        assert cover == [int(mark[1])], (mark[0], found.seen(), found.runs)
        marks += 1
    return marks


# These change words while writing them: the origin may be lost with the words.
CHANGING = {
    "caller",
    "place_upper",
    "place_lower",
    "place_replace",
    "place_reverse",
    "sorted_tools",
}


@pytest.mark.parametrize("name", [*TEMPLATES, *jinja_published.FAMILIES.values()])
def test_every_word_of_a_message_is_known_to_be_its(name, renderer):
    template = TEMPLATES.get(name) or jinja_published.templates()[name]
    marks = 0
    for conversation in CONVERSATIONS:
        values = marked(values_of(conversation, True))
        found = renderer.render(template, values)
        if found.text is not None:
            check_runs(found, globals_sources(values))
            if name not in CHANGING:
                marks += check_marks(found)
    assert marks > 0 or name in CHANGING


def test_what_a_template_writes_itself_has_no_origin(renderer):
    found = renderer.render("mine {{ 'mine' ~ s }} {{ ['a', 'b'] | join('-') }}", {"s": "yours"})
    assert (found.text, found.runs) == ("mine mineyours a-b", [[9, 14, 0, 0]])


def test_a_dictionary_as_json_is_its_own_words_but_for_the_texts_in_it(renderer):
    values = {"m": [{"arguments": {"n": 12, "s": 'a"ü\n'}}]}
    found = renderer.render("x{{ m[0].arguments | tojson }}y", values)
    text = found.text.encode()
    covered = [place for begin, end, *_ in found.runs for place in range(begin, end)]
    assert covered == list(range(1, len(text) - 1)), found.runs
    owners = {source for *_, source, _ in found.runs}
    assert owners <= {2, 3, 4} and 4 in owners and 2 in owners, found.runs
    check_runs(found, globals_sources(values))


def used(process):
    """CPU seconds and peak memory in bytes of the process so far. CPU time is independent of
    other programs on the machine."""
    with open(f"/proc/{process.pid}/stat") as file:
        times = file.read().rpartition(")")[2].split()[11:13]
    with open(f"/proc/{process.pid}/status") as file:
        peak = next(line for line in file if line.startswith("VmHWM"))
    seconds = sum(map(int, times)) / os.sysconf("SC_CLK_TCK")
    return seconds, int(peak.split()[1]) << 10


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_template_is_refused_soon_and_in_little_memory(name):
    with subprocess.Popen([PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        answer = ask(process, request_line(HOSTILE[name]), 20)
        seconds, memory = used(process)
        process.stdin.close()
        assert process.wait(20) == 0
    assert "error" in answer, str(answer)[:300]
    assert seconds < SECOND and memory < MEMORY, (seconds, memory >> 20)


def ask(process, line, timeout):
    """The program's answer; a program that dies or takes longer fails the test."""
    timer = threading.Timer(timeout, process.kill)
    timer.start()
    try:
        process.stdin.write(line)
        process.stdin.flush()
        answer = process.stdout.readline()
    finally:
        timer.cancel()
    assert answer, f"no answer, jinja_render ended with {process.wait()}"
    return json.loads(answer)


def test_the_date_is_the_callers(renderer):
    found = renderer.render("{{ strftime_now('%Y-%m-%d') }}", date="2019-02-03")
    assert found.text == "2019-02-03"
    assert renderer.render("{{ strftime_now('%d %b %Y') }}").text == "26 Jul 2024", DATE
