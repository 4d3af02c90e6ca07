"""The renderer of chat templates (tests/jinja_render of the build folder, set by LFT_BUILD), and
transformers' renderer as its reference."""

import contextlib
import dataclasses
import datetime
import json
import select
import subprocess

from transformers.utils.chat_template_utils import _compile_jinja_template

from tools import BUILD

PROGRAM = BUILD / "tests/jinja_render"
DATE = "2024-07-26"
TIMEOUT = 240  # seconds for one answer, on a shared machine
DEFAULTS = dict(trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=False)


@dataclasses.dataclass
class Outcome:
    """The result of a template: a text, or the message of a refusal."""

    text: str | None = None
    refusal: str | None = None
    raised: bool = False  # whether raise_exception was called
    generation: list = dataclasses.field(default_factory=list)  # byte offsets
    runs: list = dataclasses.field(default_factory=list)

    def same(self, other):
        """Equal texts with equal spans, or two refusals, whose messages may differ."""
        if self.text is None or other.text is None:
            return self.text is None and other.text is None and self.raised == other.raised
        return (self.text, self.generation) == (other.text, other.generation)

    def seen(self):
        if self.text is None:
            return f"refused: {self.refusal}"
        return repr(self.text) + (f" {self.generation}" if self.generation else "")


def request_line(template, values=None, options=None, date=DATE):
    request = dict(template=template, globals=values or {}, date=date)
    if options:
        request["options"] = dict(DEFAULTS, **options)
    return json.dumps(request, ensure_ascii=False).encode("utf-8", "surrogatepass") + b"\n"


def read_answer(line):
    answer = json.loads(line)
    if "error" in answer:
        error = answer["error"]
        words = " | ".join(f"{key}: {value}" for key, value in error.items() if value)
        return Outcome(refusal=words, raised=bool(answer.get("refused")))
    spans = [tuple(span) for span in answer["generation"]]
    return Outcome(text=answer["text"], generation=spans, runs=answer["runs"])


class Renderer:
    """One process of jinja_render, queried line by line; restarted if it dies."""

    def __init__(self):
        self.process = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process:
            self.process.stdin.close()
            assert self.process.wait(TIMEOUT) == 0, "jinja_render ends with 0 after the last line"
            self.process.stdout.close()
            self.process = None

    def render(self, template, values=None, options=None, date=DATE):
        if not self.process:
            self.process = subprocess.Popen(
                [PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
        line = b""
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(request_line(template, values, options, date))
            self.process.stdin.flush()
            if select.select([self.process.stdout], [], [], TIMEOUT)[0]:
                line = self.process.stdout.readline()
        if line:
            return read_answer(line)
        process, self.process = self.process, None
        process.kill()
        raise AssertionError(f"no answer, jinja_render ended with {process.wait()}: {template!r}")


def reference(template, values=None, options=None, date=DATE):
    """The same with the environment in which transformers renders."""
    values = values or {}
    try:
        compiled = _compile_jinja_template(template)
        environment = compiled.environment
        if options:
            environment = environment.overlay(**dict(DEFAULTS, **options))
            compiled = environment.from_string(template)
        now = datetime.datetime.fromisoformat(date)
        compiled.globals["strftime_now"] = now.strftime
        blocks, spans = [], []
        if options:
            text = compiled.render(**values)
        else:
            with environment.activate_tracker(blocks, spans):
                for block in compiled.generate(**values):
                    blocks.append(block)
            text = "".join(blocks)
    except Exception as error:  # a template may raise anything: each exception is a refusal
        raised = type(error).__name__ == "TemplateError"
        return Outcome(refusal=f"{type(error).__name__}: {error}", raised=raised)
    size = [len(text[:end].encode("utf-8", "surrogatepass")) for span in spans for end in span]
    return Outcome(text=text, generation=list(zip(size[::2], size[1::2], strict=True)))


def difference(renderer, template, values=None, options=None):
    """Differences between the renderer and the reference, as a text; empty if there are none."""
    want = reference(template, values, options)
    found = renderer.render(template, values, options)
    if want.same(found):
        return ""
    return f"{template}\n  expected {want.seen()}\n  found    {found.seen()}"
