"""scripts/gpu --pack, built here and checked for a machine that has only the repository's files,
the pinned PyTorch and Ubuntu 22.04's C and C++ runtime: no toolkit, no OpenCV, none
of this machine's libraries."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts/bench"))
from on_gpu import cases, machine, pack

BUILD = pathlib.Path(os.environ.get("LFT_BUILD", ROOT / "build"))
CACHE = (BUILD / "CMakeCache.txt").read_text()
if not re.search(r"^CMAKE_CUDA_COMPILER:\w+=/", CACHE, re.M) or "LFT_CUDA:STRING=OFF" in CACHE:
    pytest.skip("a build without CUDA kernels has nothing to pack", allow_module_level=True)
if "LFT_OPENCV:BOOL=OFF" in CACHE:
    pytest.skip("a build without OpenCV cannot prepare the rows", allow_module_level=True)


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    out = tmp_path_factory.mktemp("pack") / "pack"
    command = [
        sys.executable,
        "scripts/gpu",
        "--pack",
        out,
        "--build",
        BUILD,
        "--python",
        sys.executable,
    ]
    done = subprocess.run([str(part) for part in command], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    print(done.stdout)
    return out


@pytest.fixture(scope="module")
def folders(packed):
    return [packed / "lib", *machine.torch_libraries(sys.executable)[1]]


def test_it_travels_with_the_repositorys_files(packed):
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split("\0")
    sources = sum(
        (ROOT / name).stat().st_size for name in listed if name and (ROOT / name).exists()
    )
    archive = packed.with_name("pack.tar.xz")
    assert archive.stat().st_size + sources < 64 << 20, (
        f"{archive.stat().st_size / 2**20:.1f} MiB and {sources / 2**20:.1f}"
    )
    assert not (
        packed / "shards"
    ).exists()  # it is transferred compressed, and unpacked at its destination
    assert (
        re.fullmatch(r"[0-9a-f]{7,}\n", (packed / "commit").read_text())
        and (packed / "torch").read_text() == "2.11.0\n"
    )


def test_its_programs_need_no_newer_runtime_and_no_symbol_that_is_not_there(packed, folders):
    assert pack.check(packed, sys.executable) == []
    for name in pack.PROGRAMS:
        libraries, missing = pack.loaded(packed / name, folders)
        assert not missing
        assert all("opencv" not in library.name for library in libraries), name
    linked = {library.name for library in pack.loaded(packed / "test_gpu", folders)[0]}
    assert {
        "libtorch_cpu.so",
        "libc10.so",
        "libcudart.so.13",
    } <= linked  # so that the check has seen everything
    assert len(pack.symbols(packed / "test_gpu")[1]) > 500


def test_what_would_not_run_is_named(packed, folders, tmp_path, monkeypatch):
    assert "lft needs libtorch_cpu.so, which nothing brings" in pack.faults(
        packed / "lft", [packed / "lib"]
    )
    source, library = tmp_path / "asks.c", tmp_path / "libasks.so"
    source.write_text("int nobody_has_this(void); int asks(void) { return nobody_has_this(); }")
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, source], check=True)
    assert pack.faults(library, folders) == [
        "libasks.so needs the symbol nobody_has_this, which none of its libraries has"
    ]
    assert (
        not pack.too_new("GLIBC_2.35")
        and pack.too_new("GLIBC_2.36")
        and pack.too_new("GLIBCXX_3.4.31")
        and not pack.too_new("libcudart.so.13")
    )
    monkeypatch.setitem(pack.NEWEST, "GLIBC", (2, 2, 4))
    assert any(
        re.fullmatch(r"lft needs \w+ of GLIBC_2\.\d+", line)
        for line in pack.faults(packed / "lft", folders)
    )


def test_it_runs_with_nothing_but_itself_and_pytorch(packed):
    """On the CPU, the device of this machine, and in a folder other than the build's."""
    env = machine.environment(packed, sys.executable)
    doctor = json.loads(
        subprocess.run(
            [packed / "lft", "doctor", "--json"],
            env=env,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    )
    assert doctor["lft"]["images"] is None and doctor["problems"] == []
    assert doctor["lft"]["cuda_toolkit"] and pack.library_in(
        "libtorch_cpu.so", [doctor["libtorch"]["folder"]]
    )
    for name in ("test_gpu", "test_kernels"):
        listed = subprocess.run(
            [packed / name, "--gtest_list_tests"],
            env=env,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        assert len(re.findall(r"^\S+\.", listed, re.M)) > 5
    done = subprocess.run(
        [packed / "test_gpu", "--gtest_filter=On/*/cpu-*Losses*:*Graphs*:*Step*"],
        env=env,
        cwd=packed.parent,
        capture_output=True,
        text=True,
    )
    assert (
        done.returncode == 0 and "[  PASSED  ]" in done.stdout and "SKIPPED" not in done.stdout
    ), done.stdout[-4000:]
    driver = packed.parent / "driver"
    driver.mkdir()
    shutil.copy(BUILD / "tests/liblft_fake_cuda.so", driver / "libcuda.so.1")
    with_driver = {
        **env,
        "LD_LIBRARY_PATH": f"{driver}:{env['LD_LIBRARY_PATH']}",
        "FAKE_CUDA_VERSION": "13000",
    }
    done = subprocess.run(
        [packed / "lft", "doctor", "--json"], env=with_driver, capture_output=True, text=True
    )
    # LibTorch's CUDA library was loaded with all its dependencies,
    # and only the driver is fake.
    assert (
        json.loads(done.stdout)["gpu"]
        == "a GPU is here, but LibTorch's CUDA library finds no device"
    ), done.stdout + done.stderr
    trained = packed.parent / "run"
    command = [
        packed / "lft",
        "train",
        "recipes/quickstart.yaml",
        "--set",
        f"output_dir={trained}",
        "--set",
        "train.max_steps=1",
        "--set",
        "train.batch_size=2",
        "--set",
        "optim.warmup_ratio=0",
        "--set",
        'data.eval=""',
        "--set",
        f"data.train={cases.packed(packed, 'quickstart-train')}",
    ]
    done = subprocess.run(
        [str(part) for part in command], cwd=ROOT, env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    shutil.rmtree(trained)
    assert sorted(path.name for path in (packed / "shards").iterdir()) == [
        "7b-1076",
        "7b-2076",
        "7b-776",
        "families",
        "quickstart-held_out",
        "quickstart-train",
        "qwen25-7b-4096",
        "qwen25vl-7b-1024",
        "qwen3vl-8b-1024",
    ]
