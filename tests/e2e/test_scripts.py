"""Exit status of the scripts that users run. scripts/quickstart, scripts/test and
scripts/follow run in full elsewhere; here each refuses unknown arguments, and none fails
because the reader of a pipe closed it."""

import os
import pathlib
import re
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPTS = sorted(
    path.relative_to(ROOT)
    for path in (ROOT / "scripts").rglob("*")
    if path.is_file() and os.access(path, os.X_OK)
)
SHELL = [path for path in SCRIPTS if "bash" in (ROOT / path).read_text().splitlines()[0]]
PYTHON = [path for path in SCRIPTS if path not in SHELL]
# scripts/test passes its arguments to ctest, and train.sbatch is a template to copy.
REFUSE = [path for path in SHELL if path.name not in ("test", "train.sbatch")]


def run(*command):
    return subprocess.run(
        [str(word) for word in command], cwd=ROOT, capture_output=True, text=True, timeout=60
    )


@pytest.mark.parametrize("script", PYTHON, ids=str)
def test_help_exits_with_0(script):
    done = run(script, "--help")
    assert done.returncode == 0, done.stderr
    assert "usage" in done.stdout


@pytest.mark.parametrize("script", PYTHON + REFUSE, ids=str)
def test_an_unknown_option_exits_with_2(script):
    done = run(script, "--no-such-option")
    assert done.returncode == 2, (done.stdout, done.stderr)
    assert "usage:" in done.stderr or "--no-such-option" in done.stderr


@pytest.mark.parametrize("arguments", [("--seed",), ("--seed", "x"), ("--seed", "1", "2"), ("3",)])
def test_the_quickstart_refuses_a_seed_that_is_none(arguments):
    assert run("scripts/quickstart", *arguments).returncode == 2


@pytest.mark.parametrize("script", SHELL, ids=str)
def test_no_reader_closes_a_pipe_early(script):
    """Under pipefail, a writer killed by SIGPIPE makes the script exit with 141 at random."""
    text = (ROOT / script).read_text()
    early = r"\|\s*\\?\n?\s*(head\b|grep\s+-\w*[qm]|sed\s[^|]*\bq\b|awk\s[^|]*\bexit\b)"
    assert not re.search(early, text), re.search(early, text)
