"""scripts/gpu and scripts/bench/gpu as on a machine with a GPU, with fakes for all programs
that they start: every documented call, in order and on time, with its records and
logs; and the behaviour if a program crashes, hangs, prints a lot, or finds no GPU."""

import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts/bench"))
from on_gpu import cases, family_runs, machine, predict

CALL = re.compile(r"^[^#\n]*?(scripts/(?:bench/)?gpu .*--build runs/pack.*)$", re.M)
NVIDIA_SMI = """#!/bin/sh
case "$*" in
  *-lms*) while :; do echo "1000, 1980, 700"; sleep 0.1; done ;;
  *) echo "A Card, 580.1, 1980 MHz, 3201 MHz, 1980 MHz, 100 W, 30, 10 MiB, 81559 MiB" ;;
esac
"""
HEADER = (ROOT / "scripts/gpu").read_text().split('"""')[1]


@pytest.fixture
def bench(tmp_path):
    """A pack and a PATH of fake programs."""
    pack, bin_ = tmp_path / "pack", tmp_path / "bin"
    for folder in (
        pack / "lib",
        bin_,
        *(
            pack / "shards" / name
            for name in (
                *("7b-776", "7b-1076", "7b-2076", "quickstart-train", "quickstart-held_out"),
                "families",
            )
        ),
    ):
        folder.mkdir(parents=True)
    cpu = {"losses": [1.0] * family_runs.STEPS, "norms": [2.0] * family_runs.STEPS, "events": []}
    recovered = {"losses": cpu["losses"][1:], "norms": cpu["norms"][1:]}
    ways = {way: cpu for way in family_runs.WAYS}
    ways["padded"] = {**cpu, "answers": ["seven"]}
    ways["recovered"] = {**recovered, "events": ["fp32_recovery"]}
    (pack / "shards/families/cpu.json").write_text(
        json.dumps({name: ways for name in family_runs.CHECKPOINTS})
    )
    for folder, names in (
        (pack, ("lft", "test_kernels", "test_gpu", "kernel_bench")),
        (bin_, ("python", "compute-sanitizer")),
    ):
        for name in names:
            shutil.copy(ROOT / "tests/gpu/stand_in.py", folder / name)
            (folder / name).chmod(0o755)
    (bin_ / "nvidia-smi").write_text(NVIDIA_SMI)
    (bin_ / "nvidia-smi").chmod(0o755)
    (pack / "torch").write_text("9.9.9\n")
    (pack / "commit").write_text("abc1234\n")
    return tmp_path


def run(bench, command, how="", expect=0):
    env = {**os.environ, "PATH": f"{bench / 'bin'}:{os.environ['PATH']}", "STAND_IN": how}
    command = [sys.executable, *shlex.split(command), "--python", bench / "bin/python"]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
    assert done.returncode == expect, done.stdout + done.stderr
    return done.stdout


def documented(bench, out):
    return [
        call.replace("runs/pack", str(bench / "pack")).replace("FOLDER", str(out))
        for call in CALL.findall(HEADER)
    ]


def records(out):
    return {path.stem: json.loads(path.read_text()) for path in out.glob("*.json")}


def test_the_documented_calls_run_in_their_order_and_leave_records_and_logs(bench):
    calls = documented(bench, bench / "out")
    assert [call.split()[0] for call in calls] == ["scripts/gpu"] * 3 + ["scripts/bench/gpu"]
    steps = {
        1: ["smoke", "train"],
        2: ["runs", "kernels", "train"],
        3: ["primitives", "counts", "sanitizer"],
    }
    trained = {}
    for number, names in steps.items():
        out = bench / f"out{number}"
        text = run(bench, documented(bench, out)[number - 1] + " --minutes 3")
        assert re.findall(r"^== (\w+)", text, re.M) == names
        files = sorted(path.name for path in out.iterdir())
        assert files == sorted(
            [f"{name}.json" for name in names] + [f"{name}.log" for name in names]
        )  # at most six
        found = records(out)
        assert all(record["commit"] == "abc1234" for record in found.values())
        for name in ("smoke", "runs", "sanitizer"):
            assert {
                part["result"] for part in found.get(name, {"parts": {}})["parts"].values()
            } <= {"pass"}, found[name]
        if "train" in found:
            case = found["train"]["results"][0]
            assert case["case"] == "7b:r128:s1076:t16k:d0" and case["over"][
                "peft+ckpt"
            ] == pytest.approx(16140 / 0.8 / 9000)
            for case, sides in trained.items():  # the second call continues after the first
                for side, done in sides.items():
                    assert found["train"]["runs"][case][side][: len(done)] == done
            if number == 1:
                assert "trained, says lft" in (out / "train.log").read_text()
            trained = found["train"]["runs"]
        results = bench / "pack/results"
        results.mkdir(exist_ok=True)
        for path in out.iterdir():
            shutil.copy(path, results)
    assert found["counts"]["per_step"][0]["per_step"]["launches"] == 0
    assert "error" not in json.dumps(found["counts"])


def test_a_train_goes_on_from_an_earlier_record(bench):
    case = "--cases 7b:r16:s776:t1:d0 --sides lft --runs 2 --minutes 5"
    out = bench / "train.json"
    run(
        bench,
        f"scripts/bench/gpu train {case} --build {bench / 'pack'} --out {out} "
        f"--after {bench / 'nothing.json'}",
    )
    assert len(records(bench)["train"]["runs"]["7b:r16:s776:t1:d0"]["lft"]) == 2
    run(
        bench,
        f"scripts/bench/gpu train {case} --build {bench / 'pack'} --out {bench / 'more.json'} "
        f"--after {out}",
    )
    assert len(records(bench)["more"]["runs"]["7b:r16:s776:t1:d0"]["lft"]) == 2
    assert "trained, says lft" not in (bench / "more.log").read_text()


def test_calls_end_within_ten_minutes_and_are_short():
    text = (ROOT / "scripts/gpu").read_text()
    most = float(re.search(r'"--minutes", type=float, default=([\d.]+)', text)[1])
    # Three calls plus the time that a step may exceed, within half an hour including start-up.
    assert 3 * (most + 0.5) < 30
    assert all(len(call) < 2000 for call in CALL.findall(HEADER))


def smoke(bench, parts, how, expect):
    """(why the last part failed, the log)"""
    run(
        bench,
        f"scripts/gpu --only '{parts}' --build {bench / 'pack'} --out {bench / 'smoke.json'}",
        how,
        expect,
    )
    return list(json.loads((bench / "smoke.json").read_text())["parts"].values())[-1].get("why"), (
        bench / "smoke.log"
    ).read_text()


def test_an_illegal_access_fails_one_suite_and_the_log_has_all(bench):
    why, log = smoke(bench, "doctor,gpu tests", "crash", 1)
    assert (
        why.startswith("2 passed, 0 skipped; Crashing: exit -6")
        and "an illegal memory access" in why
    )
    assert all(
        said in log
        for said in (
            "an illegal memory access was encountered",
            "On/DeviceOps.Rope/gpu",
            "DeviceMemory.Predicted",
            '"device_used"',
        )
    )
    assert "Rope/cpu" not in log and "gtest_brief" not in log


def test_of_an_error_4000_characters_are_kept_and_all_is_in_the_log(bench):
    why, log = smoke(bench, "gpu tests", "long", 1)
    assert (
        3900 < len(why) < 4100 and "1 failed: Crashing.Reads; first: gpu/test.cpp:7: Failure" in why
    )
    assert log.count("wrong ") == 3000


def test_without_a_gpu_a_call_ends_at_once_and_says_why(bench):
    out = bench / "out"
    text = run(bench, documented(bench, out)[0], "cpu", 1)
    assert "there is no NVIDIA driver" in text and "== train" not in text
    assert sorted(path.name for path in out.iterdir()) == ["smoke.json", "smoke.log"]
    assert list(records(out)["smoke"]["parts"]) == ["doctor"]


def test_a_doctor_that_crashes_ends_no_call(bench):
    text = run(bench, documented(bench, bench / "out")[0], "dies", 1)
    assert "exit -6" in text and "== train" in text
    parts = records(bench / "out")["smoke"]["parts"]
    assert parts["doctor"]["result"] == "FAIL" and parts["gpu tests"]["result"] == "pass"


def test_a_family_whose_losses_are_not_the_cpus_is_named(bench):
    why, _ = smoke(bench, "families", "drift", 1)
    assert "onevision, packed: losses [1.1, 1.1, 1.1, 1.1], on the CPU [1.0" in why


def test_another_pytorch_than_the_packs_is_named_at_once(bench):
    (bench / "pack/torch").write_text("2.11.0\n")
    done = subprocess.run(
        [
            sys.executable,
            "scripts/gpu",
            "--build",
            bench / "pack",
            "--python",
            bench / "bin/python",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert (
        done.returncode == 1
        and "was built with PyTorch 2.11.0, and" in done.stderr
        and "has 9.9.9" in done.stderr
    )


def test_a_program_that_hangs_is_ended_with_its_children_and_its_words_are_kept(tmp_path):
    begin = time.monotonic()
    machine.log_to(tmp_path / "log")
    code, text = machine.call(
        ["sh", "-c", "echo before it hangs; sleep 100 & wait"], dict(os.environ), 1
    )
    machine.log = None
    assert code is None and text == "before it hangs\n" and time.monotonic() - begin < 10
    assert (tmp_path / "log").read_text().endswith("before it hangs\n")


def test_the_predicted_speed_is_the_measured_one_within_a_tenth():
    """Of the steps that were measured on an H200."""
    results = ROOT / "scripts/bench/results"
    measured = {
        row["case"]: row["sides"]["lft"]["tokens_per_s"]
        for name in ("gpu-train", "gpu-qwen")
        for row in json.loads((results / f"{name}.json").read_text())["results"]
        if "lft" in row["sides"]
    }
    assert len(measured) == 5
    for text, speed in measured.items():
        case = cases.parse_case(text)
        took = sum(part[3] for part in predict.times(case, "h200").values())
        assert 1e3 * case["batch"] * case["tokens"] / took == pytest.approx(speed, rel=0.1), text


def test_a_trace_is_divided_into_the_predicted_parts():
    trace = json.loads((ROOT / "scripts/bench/results/gpu-trace.json").read_text())
    found = predict.traced(trace["kernels"])
    total = sum(took for _, took in found.values())
    assert total == pytest.approx(trace["busy_ms"], rel=0.01)
    assert found["the rest"][1] < 0.01 * total
    lines = predict.table(cases.parse_case("7b:r16:s1076:t16k:d0"), "h200", trace["kernels"])
    frozen = next(line for line in lines if line.startswith("frozen products"))
    assert 0.9 < float(frozen.split()[-1]) < 1.1
