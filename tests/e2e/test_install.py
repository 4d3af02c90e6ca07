"""What cmake --install puts down runs from there, and brings its recipes, completions and man page; on a disk of its own, as far as a user may mount one."""
import os
import pathlib
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("LFT_BUILD", ROOT / "build"))


@pytest.fixture(scope="module")
def prefix(tmp_path_factory):
    folder = tmp_path_factory.mktemp("installed")
    subprocess.run(["cmake", "--install", str(BUILD), "--prefix", str(folder)], check=True, capture_output=True)
    return folder


def installed(prefix, *arguments):
    done = subprocess.run([str(prefix / "bin/lft"), *arguments], cwd="/", env={}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_it_finds_its_libraries_and_recipes(prefix):
    assert installed(prefix, "--version").startswith("lft ")
    names = {line.split()[0] for line in installed(prefix, "recipe", "ls").splitlines()}
    assert names == {path.stem for path in (ROOT / "recipes").glob("*.yaml")}
    assert "the recipe as it is" in installed(prefix, "check", "--plan", str(prefix / "share/lft/recipes/llava-lora.yaml"))


def test_completions_and_man_page_are_where_they_are_looked_for(prefix):
    share = prefix / "share"
    assert "complete -o default" in (share / "bash-completion/completions/lft").read_text()
    assert (share / "zsh/site-functions/_lft").read_text().startswith("#compdef lft")
    assert "complete -c lft" in (share / "fish/vendor_completions.d/lft.fish").read_text()
    assert (share / "man/man1/lft.1").read_text().startswith(".TH LFT 1")
    subprocess.run(["bash", "-n", str(share / "bash-completion/completions/lft")], check=True)


def test_a_copy_of_libtorch_beside_it_is_found_first(prefix):
    """As LFT_BUNDLE_TORCH lays it out: links in the place of gigabytes."""
    torch = next(line.split("LFT_TORCH_ROOT:PATH=")[1] for line in (BUILD / "CMakeCache.txt").read_text().splitlines() if "LFT_TORCH_ROOT:PATH=" in line)
    site = prefix / "lib/lft/site-packages"
    (site / "torch").mkdir(parents=True)
    (site / "torch/lib").symlink_to(pathlib.Path(torch) / "lib")
    loaded = subprocess.run(["ldd", str(prefix / "bin/lft")], capture_output=True, text=True, check=True).stdout
    shutil.rmtree(prefix / "lib/lft")
    assert str(prefix) + "/bin/../lib/lft/site-packages/torch/lib/libtorch_cpu.so" in loaded
