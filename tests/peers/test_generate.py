"""Greedy answers equal those of transformers: with the whole sequence for every token,
and from generate()."""

import json
import signal
import subprocess

import pytest
import torch

from cases import ROWS, row
from reference import images_of, turns_of
from tools import BINARY, event_lines, lft, score, write_rows

MODELS = ["plain", "gqa_tied", "llama3_rope", "linear_rope_full"]


def evaluate(out, model, data, images, *more):
    done = lft(
        "eval",
        "--model",
        model,
        "--data",
        data,
        "--image-root",
        images,
        "--out",
        out,
        "--max-new-tokens",
        24,
        *more,
    )
    return json.loads(done.stdout.splitlines()[-1]), [
        json.loads(line) for line in out.read_text().splitlines()
    ]


@pytest.mark.parametrize("name", MODELS)
def test_eval_answers_are_greedy(name, peer, model_dir, images, rows_file, tmp_path):
    total, records = evaluate(tmp_path / "out.jsonl", model_dir(name), rows_file, images)
    scored = score(tmp_path / "score.jsonl", model_dir(name), rows_file, images)
    lengths = []
    for item, record, line in zip(ROWS, records, scored):
        answer, ids = peer(name).greedy(item, images, "llava-v1", "pad", 24)
        lengths.append(len(ids))
        question, reference = turns_of(item)[-1]
        assert record["answer"].strip() == answer.strip(), item["id"]
        assert record["reference"] == reference and question.endswith(
            record["question"].removeprefix("<image>\n")
        )
        assert record["exact"] == (answer.strip() == reference.strip())
        assert record["loss"] == pytest.approx(line["loss"], abs=1e-4)
    count = [len(line["logprobs"]) for line in scored]
    assert total["samples"] == len(ROWS) == len(records)
    assert total["loss"] == pytest.approx(
        sum(n * line["loss"] for n, line in zip(count, scored)) / sum(count), abs=1e-4
    )
    assert total["exact_match"] == sum(record["exact"] for record in records) / len(records)
    assert len(set(record["answer"] for record in records)) > 1


def test_the_end_token_ends_answers_in_some_rows_and_not_in_others(peer, images):
    lengths = [
        len(peer(name).greedy(item, images, "llava-v1", "pad", 24)[1])
        for name in MODELS
        for item in ROWS
    ]
    assert min(lengths) < 24 and max(lengths) == 24


def test_eval_of_a_recipe_takes_its_adapter_rows_template_and_fit(
    trained, model_dir, images, rows_file, tmp_path
):
    run = trained("cosine_clip_decay")
    done = lft("eval", run.parent / "recipe.yaml", "--max-new-tokens", 2)
    total = json.loads(done.stdout.splitlines()[-1])
    scored = score(
        tmp_path / "score.jsonl",
        model_dir("plain"),
        rows_file,
        images,
        "--adapter",
        run / "adapter",
    )
    logprobs = [value for line in scored for value in line["logprobs"]]
    assert total["samples"] == len(ROWS)
    assert total["loss"] == pytest.approx(-sum(logprobs) / len(logprobs), abs=1e-4)
    assert event_lines(run, "eval")[-1]["eval_loss"] == pytest.approx(total["loss"], abs=1e-4)
    base = score(tmp_path / "base.jsonl", model_dir("plain"), rows_file, images)
    assert total["loss"] < 0.95 * -sum(value for line in base for value in line["logprobs"]) / len(
        logprobs
    )


def test_eval_of_a_recipe_takes_the_whole_model_it_trained(
    trained, model_dir, images, rows_file, tmp_path
):
    run = trained("whole_model_row_by_row")
    done = lft("eval", run.parent / "recipe.yaml", "--data", rows_file, "--max-new-tokens", 2)
    scored = score(tmp_path / "score.jsonl", run / "model", rows_file, images)
    logprobs = [value for line in scored for value in line["logprobs"]]
    assert json.loads(done.stdout.splitlines()[-1])["loss"] == pytest.approx(
        -sum(logprobs) / len(logprobs), abs=1e-4
    )


def test_exact_match_counts_answers_that_are_right(peer, model_dir, images, tmp_path):
    answers = [
        peer("plain").greedy(item, images, "llava-v1", "pad", 8)[0].strip() for item in ROWS[:4]
    ]
    rows = []
    for item, answer, right in zip(ROWS[:4], answers, [True, False, True, False]):
        question = turns_of(item)[0][0]
        rows.append(
            row(
                item["id"],
                [(question, answer if right else "nothing of the kind")],
                images_of(item) or None,
            )
        )
    data = write_rows(tmp_path / "rows.jsonl", rows)
    done = lft(
        "eval",
        "--model",
        model_dir("plain"),
        "--data",
        data,
        "--image-root",
        images,
        "--max-new-tokens",
        8,
    )
    want = sum(
        right and answer == peer("plain").greedy(item, images, "llava-v1", "pad", 8)[0].strip()
        for item, answer, right in zip(rows, answers, [True, False, True, False])
    )
    assert json.loads(done.stdout.splitlines()[-1])["exact_match"] == want / 4


def test_generate_equals_transformers_generate(peer, model_dir, images):
    question = "What do you see in the picture?"
    item = row("x", [("<image>\n" + question, "")], "chelsea.png")
    for name in MODELS:
        ids, _, pixels = peer(name).encode(item, images, "llava-v1", "pad", generate=True)
        out = peer(name).model.generate(
            input_ids=torch.tensor([ids]),
            attention_mask=torch.ones(1, len(ids), dtype=torch.long),
            pixel_values=pixels,
            do_sample=False,
            max_new_tokens=30,
            eos_token_id=2,
            pad_token_id=0,
        )
        want = peer(name).processor.tokenizer.decode(
            out[0, len(ids) :], skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        done = lft(
            "generate",
            "--model",
            model_dir(name),
            "--image",
            images / "chelsea.png",
            "--prompt",
            question,
            "--max-new-tokens",
            30,
        )
        assert done.stdout.strip() == want.strip(), name


def test_penalty_and_stops_are_those_of_transformers(peer, model_dir, images):
    question = "What do you see in the picture?"
    item = row("x", [("<image>\n" + question, "")], "chelsea.png")
    command = ["--image", images / "chelsea.png", "--prompt", question, "--max-new-tokens", 30]
    changed = stopped = 0
    for name in MODELS:
        tokenizer = peer(name).processor.tokenizer
        ids, _, pixels = peer(name).encode(item, images, "llava-v1", "pad", generate=True)

        def answer(**more):
            out = peer(name).model.generate(
                input_ids=torch.tensor([ids]),
                attention_mask=torch.ones(1, len(ids), dtype=torch.long),
                pixel_values=pixels,
                do_sample=False,
                max_new_tokens=30,
                eos_token_id=2,
                pad_token_id=0,
                **more,
            )
            return tokenizer.decode(
                out[0, len(ids) :], skip_special_tokens=True, clean_up_tokenization_spaces=False
            )

        plain, penalised = answer(), answer(repetition_penalty=1.5)
        changed += plain != penalised
        done = lft("generate", "--model", model_dir(name), *command, "--repetition-penalty", 1.5)
        assert done.stdout.strip() == penalised.strip(), name
        text = plain.strip()
        stop = text[len(text) // 2 :][:3]
        if len(stop) < 3:
            continue
        stopped += 1
        want = answer(stop_strings=["never", stop], tokenizer=tokenizer)
        assert stop in want and len(want) < len(plain) + 1
        done = lft(
            "generate", "--model", model_dir(name), *command, "--stop", "never", "--stop", stop
        )
        assert done.stdout.strip() == want[: want.index(stop)].strip(), name
    assert changed and stopped


def test_rows_without_answers_are_answered(model_dir, images, tmp_path):
    rows = [json.loads(json.dumps(item)) for item in ROWS[:4]]
    with_answers, _ = evaluate(
        tmp_path / "all.jsonl", model_dir("plain"), write_rows(tmp_path / "all.json", rows), images
    )
    asked = [json.loads(json.dumps(item)) for item in rows]
    for item in asked:
        messages = item.get("conversations") or item["messages"]
        messages.pop()
    asked[0]["answers"] = ["nothing of the kind", "more"]
    total, records = evaluate(
        tmp_path / "asked.jsonl",
        model_dir("plain"),
        write_rows(tmp_path / "asked.json", asked),
        images,
        "--metric",
        "anls",
    )
    before = [json.loads(line) for line in (tmp_path / "all.jsonl").read_text().splitlines()]
    assert all(other["answer"].startswith(one["answer"]) for one, other in zip(before, records))
    assert [one["anls"] is None for one in records] == [False, True, True, True]
    assert (
        total["loss"] is None
        and total["samples"] == 4
        and total["exact_match"] == 0
        and 0 <= total["anls"] <= 1
    )
    assert with_answers["loss"] is not None and records[1]["reference"] is None


def test_several_images_stand_in_front_or_where_the_prompt_says(peer, model_dir, images):
    def want(question):
        return (
            peer("plain")
            .greedy(
                row("x", [(question, "")], ["coffee.png", "tall.png"]),
                images,
                "llava-hf",
                "crop",
                12,
            )[0]
            .strip()
        )

    def answer(prompt):
        return lft(
            "generate",
            "--model",
            model_dir("plain"),
            "--image",
            images / "coffee.png",
            "--image",
            images / "tall.png",
            "--prompt",
            prompt,
            "--max-new-tokens",
            12,
            "--template",
            "llava-hf",
            "--image-fit",
            "crop",
        ).stdout.strip()

    assert answer("Which is larger?") == want("<image>\n<image>\nWhich is larger?")
    assert answer("Is <image> larger than <image>?") == want("Is <image> larger than <image>?")


def test_ctrl_c_ends_a_waiting_chat(model_dir):
    chat = subprocess.Popen(
        [BINARY, "generate", "--model", str(model_dir("plain"))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    for line in chat.stderr:
        if "template" in line:  # options have been read and signal handlers installed
            break
    chat.send_signal(signal.SIGINT)
    assert chat.wait(timeout=60) == 130
    chat.communicate()


def test_chat_keeps_the_history(peer, model_dir, images):
    def want(turns):
        return (
            peer("plain")
            .greedy(row("x", turns, "china.jpg"), images, "llava-v1", "pad", 12)[0]
            .strip()
        )

    first = want([("<image>\nWhere?", "")])
    second = want([("<image>\nWhere?", first), ("Sure?", "")])
    done = lft(
        "generate",
        "--model",
        model_dir("plain"),
        "--image",
        images / "china.jpg",
        "--max-new-tokens",
        12,
        stdin="Where?\n\nSure?\n/exit\nno\n",
    )
    assert [line.strip() for line in done.stdout.splitlines()] == [first, second]


def test_sampling_is_a_function_of_the_seed(model_dir):
    def draw(seed):
        return lft(
            "generate",
            "--model",
            model_dir("plain"),
            "--prompt",
            "Describe",
            "--temperature",
            1.5,
            "--top-p",
            0.9,
            "--seed",
            seed,
            "--max-new-tokens",
            16,
        ).stdout

    assert draw(1) == draw(1)
    assert len({draw(seed) for seed in [1, 2, 3]}) > 1


@pytest.mark.parametrize(
    "arguments, word",
    [
        (["--temperature", "-1"], "temperature"),
        (["--top-p", "0"], "top-p"),
        (["--dtype", "int4"], "int4"),
        (["--template", "llava"], "llava"),
        (["--image-fit", "stretch"], "stretch"),
    ],
)
def test_a_bad_option_is_one_error_block(arguments, word, model_dir):
    done = lft("generate", "--model", model_dir("plain"), "--prompt", "Hi", *arguments, code=2)
    assert done.stderr.count("error:") == 1 and word in done.stderr
