"""A pytest plugin under which jinja2's own tests use jinja_render for rendering
(test_jinja_own.py starts it). LFT_JINJA_OUTCOMES names its output file: a JSON object,
test -> [outcome, reason]."""

import json
import os
import re

import jinja2
import jinja2.environment
import pytest
from jinja2 import meta

from jinja_peer import Outcome, Renderer, reference

Plain = jinja2.Environment
DEFAULT = Plain()
# The environment options that the renderer supports; all others keep their defaults.
OPTIONS = ["trim_blocks", "lstrip_blocks", "keep_trailing_newline"]
OTHERS = [
    "block_start_string",
    "block_end_string",
    "variable_start_string",
    "variable_end_string",
    "comment_start_string",
    "comment_end_string",
    "line_statement_prefix",
    "line_comment_prefix",
    "newline_sequence",
    "undefined",
    "finalize",
    "autoescape",
    "is_async",
    "loader",
]
# Features that no chat template can use: other templates, and values that change between runs.
ELSEWHERE = r"\{%[-+]?\s*(include|import|from|extends|block|autoescape|trans|do|debug)\b"
# Features that the renderer refuses by name, and this name.
BY_NAME = r"\b(striptags|wordwrap|xmlattr|urlize|random|lipsum|pprint)\b"
WIDE = "more than 64 bits"

renderer = Renderer()
counts = {"rendered": 0}
outcomes = {}


def not_applicable(reason):
    pytest.skip(f"not applicable: {reason}")


def jsonable(environment, source, values):
    """The values that a template uses, converted to JSON: a tuple is a list, an object a dict."""

    def plain(value):
        if isinstance(value, dict) and all(type(key) is str for key in value):
            return {key: plain(part) for key, part in value.items()}
        if isinstance(value, list | tuple | range):
            return [plain(part) for part in value]
        if value is None or type(value) in (bool, int, float, str):
            return value
        if type(value).__module__ in ("builtins", "markupsafe") or not hasattr(value, "__dict__"):
            not_applicable("a value that JSON does not have")
        return plain(vars(value))

    named = meta.find_undeclared_variables(environment.parse(source))
    return {name: plain(value) for name, value in values.items() if name in named}


class Template:
    """A template compiled by jinja2 and rendered by jinja_render."""

    def __init__(self, environment, template, source):
        self.environment, self.template, self.source = environment, template, source
        self.options = {name: getattr(environment, name) for name in OPTIONS}

    def __getattr__(self, name):
        not_applicable(f"Template.{name}")

    def plain(self, values):
        try:
            return Outcome(text=self.template.render(**values)), None
        except Exception as error:  # any: the test expects a specific one
            return Outcome(refusal=str(error)), error

    def render(self, *arguments, **more):
        values = dict(*arguments, **more)
        want, error = self.plain(values)
        values = jsonable(self.environment, self.source, values)
        if not want.same(reference(self.source, values, self.options)):
            not_applicable("transformers' environment, or a value as JSON, does otherwise")
        found = renderer.render(self.source, values, self.options)
        counts["rendered"] += 1
        if error:
            assert found.text is None, f"not refused as in jinja2 ({error}): {found.seen()}"
            raise error
        if found.text is None:
            names = set(re.findall(BY_NAME, self.source))
            if WIDE in found.refusal or any(name in found.refusal for name in names):
                pytest.skip(f"refused by name: {found.refusal}")
            raise AssertionError(f"{self.source!r}: {found.seen()}")
        return found.text

    def generate(self, *arguments, **more):
        yield self.render(*arguments, **more)


class Environment(Plain):
    """An environment whose templates are rendered by jinja_render, if it supports its options."""

    def from_string(self, source, globals=None, template_class=None):
        try:
            template = super().from_string(source, globals, template_class)
        except jinja2.TemplateSyntaxError as error:
            if self.expressible(source):
                found = renderer.render(source, {}, {name: getattr(self, name) for name in OPTIONS})
                counts["rendered"] += 1
                assert found.text is None, f"not refused as in jinja2 ({error}): {found.seen()}"
            raise
        if globals or template_class or not isinstance(source, str) or not self.expressible(source):
            not_applicable("the environment or the template")
        return Template(self, template, source)

    def expressible(self, source):
        return (
            isinstance(source, str)
            and all(getattr(self, name) == getattr(DEFAULT, name) for name in OTHERS)
            and set(self.extensions) <= {"jinja2.ext.LoopControlExtension"}
            and (self.filters, self.tests) == (DEFAULT.filters, DEFAULT.tests)
            and self.globals.keys() == DEFAULT.globals.keys()
            and self.policies == DEFAULT.policies
            and not re.search(ELSEWHERE, source)
        )


jinja2.Environment = jinja2.environment.Environment = Environment


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    counts["rendered"] = 0
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if report.when != "call" and not report.failed:
        return report
    name = item.nodeid.split("tests/")[-1]
    if report.skipped:
        kind, _, reason = str(call.excinfo.value).partition(": ")
        outcomes[name] = [kind, reason]
    elif report.failed:
        outcomes[name] = ["failed", str(call.excinfo.value)[-800:]]
    elif counts["rendered"]:
        outcomes[name] = ["passed", ""]
    else:
        outcomes[name] = ["not applicable", "nothing is rendered"]
    return report


def pytest_sessionfinish():
    renderer.__exit__()
    with open(os.environ["LFT_JINJA_OUTCOMES"], "w") as file:
        json.dump(outcomes, file, indent=1)
