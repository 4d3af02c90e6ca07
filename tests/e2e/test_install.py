"""An installation by cmake --install runs and includes recipes, completions and man page;
on a separate disk, if the user may mount one."""

import os
import pathlib
import re
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("LFT_BUILD", ROOT / "build"))


def torch_root():
    return next(
        line.split("=", 1)[1]
        for line in (BUILD / "CMakeCache.txt").read_text().splitlines()
        if line.startswith("LFT_TORCH_ROOT:PATH=")
    )


def dynamic(program, kind):
    header = subprocess.run(
        ["readelf", "-d", program], check=True, capture_output=True, text=True
    ).stdout
    return [line.split("[")[1].rstrip("]") for line in header.splitlines() if f"({kind})" in line]


def runpath(program):
    return dynamic(program, "RUNPATH")[0]


@pytest.fixture(scope="module")
def prefix(tmp_path_factory):
    folder = tmp_path_factory.mktemp("installed")
    subprocess.run(
        ["cmake", "--install", str(BUILD), "--prefix", str(folder)], check=True, capture_output=True
    )
    return folder


def installed(prefix, *arguments, folder="/"):
    done = subprocess.run(
        [str(prefix / "bin/lft"), *arguments], cwd=folder, env={}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_it_finds_its_libraries_and_recipes(prefix):
    assert installed(prefix, "--version").startswith("lft ")
    names = {line.split()[0] for line in installed(prefix, "recipe", "ls").splitlines()}
    assert names == {path.stem for path in (ROOT / "recipes").glob("*.yaml")}
    assert "the recipe as it is" in installed(
        prefix, "check", "--plan", str(prefix / "share/lft/recipes/llava-lora.yaml")
    )


def test_its_quickstart_trains_in_any_folder(prefix, tmp_path):
    installed(
        prefix, "train", "recipes/quickstart.yaml", "--set", "train.max_steps=2", folder=tmp_path
    )
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]
    assert (tmp_path / "runs/quickstart/adapter/adapter_model.safetensors").exists()


def test_completions_and_man_page_are_where_they_are_looked_for(prefix):
    share = prefix / "share"
    assert "complete -o default" in (share / "bash-completion/completions/lft").read_text()
    assert (share / "zsh/site-functions/_lft").read_text().startswith("#compdef lft")
    assert "complete -c lft" in (share / "fish/vendor_completions.d/lft.fish").read_text()
    assert (share / "man/man1/lft.1").read_text().startswith(".TH LFT 1")
    subprocess.run(["bash", "-n", str(share / "bash-completion/completions/lft")], check=True)


def test_a_copy_of_libtorch_beside_it_is_found_first(prefix):
    """Laid out as by LFT_BUNDLE_TORCH, with links instead of gigabytes of copies."""
    torch = torch_root()
    site = prefix / "lib/lft/site-packages"
    (site / "torch").mkdir(parents=True)
    (site / "torch/lib").symlink_to(pathlib.Path(torch) / "lib")
    loaded = subprocess.run(
        ["ldd", str(prefix / "bin/lft")], capture_output=True, text=True, check=True
    ).stdout
    shutil.rmtree(prefix / "lib/lft")
    assert str(prefix) + "/bin/../lib/lft/site-packages/torch/lib/libtorch_cpu.so" in loaded


def test_a_wheel_holds_the_program_its_data_and_no_path_of_the_build(tmp_path):
    """Configured and installed as by scikit-build-core, with the existing program."""
    build, scripts, data = tmp_path / "build", tmp_path / "scripts", tmp_path / "data"
    options = {
        "SKBUILD": "2",
        "SKBUILD_SCRIPTS_DIR": scripts,
        "SKBUILD_DATA_DIR": data,
        "LFT_TESTS": "OFF",
        "LFT_CUDA": "OFF",
        "LFT_ARROW": "OFF",
        "LFT_TORCH_ROOT": torch_root(),
    }
    subprocess.run(
        [
            "cmake",
            "-S",
            ROOT,
            "-B",
            build,
            "-G",
            "Ninja",
            *(f"-D{key}={value}" for key, value in options.items()),
        ],
        check=True,
        capture_output=True,
    )
    for name in ("lft", "liblft_opencv.so"):
        shutil.copy(BUILD / name, build / name)
    shutil.copytree(BUILD / "texts", build / "texts")
    # The program was linked with the paths of another configuration,
    # which this step replaces.
    step = build / "cmake_install.cmake"
    step.write_text(
        re.sub('OLD_RPATH "[^"]*"', f'OLD_RPATH "{runpath(BUILD / "lft")}"', step.read_text())
    )
    subprocess.run(
        ["cmake", "--install", build, "--prefix", tmp_path / "platlib"],
        check=True,
        capture_output=True,
    )
    assert [path.name for path in scripts.iterdir()] == ["lft"]
    assert not (tmp_path / "platlib").exists()
    share = {
        str(path.relative_to(data))
        for path in data.rglob("*")
        if path.is_file() and "digits" not in path.parts and "model" not in path.parts
    }
    recipes = {
        f"share/lft/recipes/{path.name}" for path in (ROOT / "recipes").iterdir() if path.is_file()
    }
    assert share == recipes | {
        "lib/lft/liblft_opencv.so",
        "share/bash-completion/completions/lft",
        "share/zsh/site-functions/_lft",
        "share/fish/vendor_completions.d/lft.fish",
        "share/man/man1/lft.1",
    }
    places = runpath(scripts / "lft").split(":")
    assert any(place.endswith("site-packages/torch/lib") for place in places) and all(
        place.startswith("$ORIGIN/../lib/") for place in places
    )


def test_the_modules_are_built_with_the_program():
    """A wheel builds the targets in pyproject.toml: lft and everything installed with it."""
    inputs = subprocess.run(
        ["ninja", "-C", BUILD, "-t", "inputs", "lft"], check=True, capture_output=True, text=True
    ).stdout.split()
    modules = [path.name for path in BUILD.glob("liblft_*.so")]
    assert modules and set(modules) <= set(inputs)


def test_a_package_depends_on_what_the_program_is_linked_to(tmp_path):
    script = tmp_path / "depends.cmake"
    script.write_text(
        f'include("{ROOT}/scripts/cmake/deb.cmake")\nmessage("${{CPACK_DEBIAN_PACKAGE_DEPENDS}}")\n'
    )
    values = {
        "CPACK_PACKAGE_DIRECTORY": tmp_path,
        "CPACK_LFT_PROGRAMS": f"{BUILD}/lft;{BUILD}/liblft_opencv.so",
        "CPACK_LFT_TORCH": torch_root() + "/lib",
    }
    done = subprocess.run(
        ["cmake", *(f"-D{key}={value}" for key, value in values.items()), "-P", script],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    depends = {entry.split()[0] for entry in done.stderr.strip().split(", ")}
    names = dynamic(BUILD / "lft", "NEEDED")
    for library in ("libyaml-cpp", "libsentencepiece", "libpcre2-8"):
        assert any(name.startswith(library) for name in names) and any(
            package.startswith(library) for package in depends
        )
    assert any(package.startswith("libopencv-imgcodecs") for package in depends)
    assert not any("torch" in package for package in depends)
