"""jinja2's own tests, unpacked by scripts/setup --peers, with jinja_render instead of jinja2."""

import collections
import json
import os
import subprocess
import sys

import pytest

from tools import ROOT

TESTS = next((ROOT / ".deps/templates").glob("jinja2-*/tests"))
FILES = ["core_tags", "filters", "tests", "lexnparse", "regression", "api", "ext"]
PASSED = 350  # at least; the others use features that no chat template has


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """test -> [outcome, reason]"""
    file = tmp_path_factory.mktemp("own") / "outcomes.json"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--no-header", "-p", "no:cacheprovider"]
        + [
            "-p",
            "jinja_own",
            "--rootdir",
            TESTS.parent,
            *(TESTS / f"test_{name}.py" for name in FILES),
        ],
        capture_output=True,
        text=True,
        timeout=300,
        env=dict(os.environ, LFT_JINJA_OUTCOMES=str(file), PYTHONPATH=str(ROOT / "tests/peers")),
    )
    assert file.exists(), done.stdout[-3000:] + done.stderr[-3000:]
    return json.loads(file.read_text())


def test_jinja2s_own_tests_pass(outcomes):
    failed = [f"{name}: {reason}" for name, (kind, reason) in outcomes.items() if kind == "failed"]
    assert not failed, "\n".join(failed)


def test_most_of_jinja2s_own_tests_apply(outcomes):
    numbers = collections.Counter(kind for kind, _ in outcomes.values())
    print(dict(numbers))
    assert set(numbers) <= {"passed", "refused by name", "not applicable", "failed"}, numbers
    assert numbers["passed"] >= PASSED, numbers
