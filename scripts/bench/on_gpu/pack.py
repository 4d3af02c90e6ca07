"""A folder with everything that a machine without the toolchain needs in addition to the sources
and PyTorch: written, and checked against such a machine."""

import functools
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile

from . import cases, family_runs
from .machine import ROOT, WORK, commit, program, torch_libraries

# Names in the pack and in the build. An lft that decodes no images needs no OpenCV.
PROGRAMS = {
    "lft": "lft_no_images",
    "test_kernels": "test_kernels",
    "test_gpu": "test_gpu",
    "kernel_bench": "kernel_bench",
    "libcuda_counts.so": "libcuda_counts.so",
    "libcuda_trace.so": "libcuda_trace.so",
    "liblft_cudnn.so": "liblft_cudnn.so",
}
TARGETS = [
    "lft",
    "lft_no_images",
    "test_kernels",
    "test_gpu",
    "kernel_bench",
    "cuda_counts",
    "cuda_trace",
    "lft_cudnn",
]
LIMIT = 60 << 20  # archive plus repository files; a machine may accept 64
# The C and C++ runtime of Ubuntu 22.04, the oldest with the libstdc++ of GCC 12,
# which compiles the programs; PyTorch's wheels require less.
NEWEST = {"GLIBC": (2, 35), "GLIBCXX": (3, 4, 30), "CXXABI": (1, 3, 13), "GCC": (12, 0, 0)}
RUNTIME = re.compile(r"^(lib(c|m|dl|rt|util|resolv|pthread|stdc\+\+|gcc_s)\.so|ld-linux)")


def said(*command):
    return subprocess.run(
        [str(part) for part in command], check=True, capture_output=True, text=True
    ).stdout


@functools.cache
def needed(path):
    """Names of the libraries that a program or library requires (DT_NEEDED)."""
    return re.findall(r"\(NEEDED\).*\[(.+)\]", said("readelf", "-dW", path))


@functools.cache
def symbols(path):
    """({defined symbols}, {(symbol, version)} required from others);
    weak ones are optional."""
    brings, asks = set(), set()
    for line in said("nm", "-D", path).splitlines():
        kind, name = line.split()[-2:]
        name, _, version = name.partition("@")
        if kind == "U":
            asks.add((name, version))
        elif kind not in "wv":
            brings.add(name)
    return brings, asks


def too_new(version):
    """Whether a symbol version such as "GLIBC_2.36" is newer than the runtime NEWEST."""
    family, _, number = version.partition("_")
    return (
        family in NEWEST
        and re.fullmatch(r"[\d.]+", number) is not None
        and tuple(map(int, number.split("."))) > NEWEST[family]
    )


def library_in(name, folders):
    return next(
        (path for folder in folders if (path := pathlib.Path(folder) / name).exists()), None
    )


def loaded(path, folders):
    """(libraries that the loader finds for a program in these folders, names it does not find);
    the C and C++ runtime is ignored."""
    found, missing, rest = {}, set(), [path]
    while rest:
        for name in needed(rest.pop()):
            if name in found or name in missing or RUNTIME.match(name):
                continue
            if library := library_in(name, folders):
                found[name] = library
                rest.append(library)
            else:
                missing.add(name)
    return found.values(), missing


def faults(path, folders):
    """Reasons why a program of the pack cannot run with these folders and the oldest runtime,
    one line each."""
    libraries, missing = loaded(path, folders)
    out = [f"{path.name} needs {name}, which nothing brings" for name in sorted(missing)]
    brought = set().union(*(symbols(library)[0] for library in libraries))
    for name, version in sorted(symbols(path)[1]):
        if too_new(version):
            out.append(f"{path.name} needs {name} of {version}")
        elif name not in brought and version.partition("_")[0] not in NEWEST:
            out.append(f"{path.name} needs the symbol {name}, which none of its libraries has")
    return out


def check(out, python):
    """All faults of a pack: its programs and libraries with PyTorch's libraries,
    and its size together with the repository's files."""
    _, torch = torch_libraries(python)
    folders = [out / "lib", *torch]
    lines = [
        fault
        for path in [*(out / name for name in PROGRAMS), *sorted((out / "lib").iterdir())]
        for fault in faults(path, folders)
    ]
    lines += [
        f"libtorch_cuda.so, which lft opens itself, needs {name}, which nothing brings"
        for name in sorted(loaded(library_in("libtorch_cuda.so", torch), folders)[1])
    ]
    listed = said("git", "-C", ROOT, "ls-files", "-co", "--exclude-standard").splitlines()
    sources = sum((ROOT / name).stat().st_size for name in listed if (ROOT / name).is_file())
    archive = out.with_name(out.name + ".tar.xz")
    if (total := archive.stat().st_size + sources) > LIMIT:
        lines.append(
            f"the pack's archive and the repository's files are {total / 2**20:.1f} MiB, more than "
            f"{LIMIT >> 20}"
        )
    return lines


def size(path):
    return sum(each.stat().st_size for each in [path, *path.rglob("*")] if each.is_file())


def system_libraries(path, torch):
    """Libraries that neither the C and C++ runtime nor PyTorch provides,
    as found by this machine's loader."""
    found = re.findall(r"^\s*(\S+) => (/\S+)", said("ldd", path), re.M)
    return [
        (name, pathlib.Path(place))
        for name, place in found
        if not RUNTIME.match(name) and not library_in(name, torch)
    ]


def prepare(lft, name, env=None):
    """The quickstart's digits of one kind, prepared once by an lft that decodes images."""
    out, digits = WORK / name, ROOT / "recipes/quickstart/digits"
    if not out.exists():
        rows = digits / f"{name.removeprefix('quickstart-')}.json"
        command = [
            lft,
            "prepare",
            ROOT / "recipes/quickstart.yaml",
            "--out",
            out,
            "--set",
            f"data.train={rows}",
            "--set",
            'data.eval=""',
        ]
        subprocess.run(
            [str(part) for part in command],
            check=True,
            cwd=ROOT,
            env=env,
            stdout=subprocess.DEVNULL,
        )
    return out


def make_data(build, python):
    """Prepares the rows again: an older build may have prepared other samples."""
    for stale in [*WORK.glob("shards-*"), *WORK.glob("quickstart-*")]:
        shutil.rmtree(stale)
    said(sys.executable, ROOT / "scripts/bench/gpu", "data", "--build", build)
    names = [f"{size}-{positions}" for size, positions in cases.ROWS]
    folders = {name: WORK / f"shards-{name}" for name in names}
    return {
        **folders,
        **{
            name: prepare(program(build, "lft"), name)
            for name in ("quickstart-train", "quickstart-held_out")
        },
        "families": family_runs.prepare(program(build, "lft"), python, WORK / "families"),
    }


def make(build, out, python):
    """Returns exit status 0, or the faults."""
    subprocess.run(["cmake", "--build", build, "--target", *TARGETS], check=True, cwd=ROOT)
    shutil.rmtree(out, ignore_errors=True)
    (out / "lib").mkdir(parents=True)
    version, torch = torch_libraries(python)
    if not version:
        return f"{python} has no PyTorch: name one with --python"
    for name, built in PROGRAMS.items():
        said("strip", "-o", out / name, program(build, built))
        for library, place in system_libraries(program(build, built), torch):
            shutil.copy(place.resolve(), out / "lib" / library)
    with tarfile.open(
        out / "shards.tar.xz", "w:xz"
    ) as tar:  # the rows of a benchmark share four images
        for name, folder in make_data(build, python).items():
            tar.add(folder, name)
    (out / "torch").write_text(version + "\n")
    (out / "commit").write_text(commit(build) + "\n")
    for path in sorted(out.iterdir()):
        print(f"{size(path) / 2**20:7.1f} MiB  {path.name}")
    archive = out.with_name(out.name + ".tar.xz")
    with tarfile.open(archive, "w:xz", preset=3) as tar:
        tar.add(out, out.name)
    print(f"{size(out) / 2**20:7.1f} MiB in all, in {out}")
    print(f"{archive.stat().st_size / 2**20:7.1f} MiB as {archive}, which is what travels")
    lines = check(out, python)
    return "\n".join(["the pack does not run where it should:", *lines]) if lines else 0
