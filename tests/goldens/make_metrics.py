"""Writes tests/goldens/metrics/metrics.json: answers, references, and the score of each metric.

Captions come from pycocoevalcap 1.2 itself (pip install pycocoevalcap; its tokenizer needs java).
The others are reimplemented here from the published evaluations: VQA's vqaEval.py, DocVQA's
ANLS, ChartQA's relaxed accuracy as in Pix2Struct.

    python tests/goldens/make_metrics.py
"""

import json
import pathlib
import random
import re

from pycocoevalcap.bleu.bleu import Bleu
from pycocoevalcap.cider.cider import Cider
from pycocoevalcap.tokenizer.ptbtokenizer import PTBTokenizer

OUT = pathlib.Path(__file__).parent / "metrics" / "metrics.json"

# --- VQAv2 ---------------------------------------------------------------------------------------
MARKS = [
    ";",
    "/",
    "[",
    "]",
    '"',
    "{",
    "}",
    "(",
    ")",
    "=",
    "+",
    "\\",
    "_",
    "-",
    ">",
    "<",
    "@",
    "`",
    ",",
    "?",
    "!",
]
DIGITS = {
    "none": "0",
    "zero": "0",
    "one": "1",
    "two": "2",
    "three": "3",
    "four": "4",
    "five": "5",
    "six": "6",
    "seven": "7",
    "eight": "8",
    "nine": "9",
    "ten": "10",
}
CONTRACTIONS = {
    "dont": "don't",
    "isnt": "isn't",
    "hes": "he's",
    "couldnt've": "couldn't've",
    "couldn'tve": "couldn't've",
    "yall'll": "y'all'll",
    "whats": "what's",
    "oclock": "o'clock",
    "somebody'd": "somebodyd",
}


def vqa_punctuation(text):
    out = text
    for mark in MARKS:
        if mark + " " in text or " " + mark in text or re.search(r"(\d)(\,)(\d)", text):
            out = out.replace(mark, "")
        else:
            out = out.replace(mark, " ")
    return re.sub(r"(?!<=\d)(\.)(?!\d)", "", out, count=32)


def vqa_words(text):
    words = [DIGITS.get(word, word) for word in text.lower().split()]
    return " ".join(CONTRACTIONS.get(w, w) for w in words if w not in ("a", "an", "the"))


def vqa_normal(text):
    return vqa_words(vqa_punctuation(text.replace("\n", " ").replace("\t", " ").strip()))


def vqa(answer, references):
    given, right = vqa_normal(answer), [vqa_normal(r) for r in references]
    scores = []
    for person in range(len(right)):
        others = right[:person] + right[person + 1 :]
        scores.append(min(1, sum(other == given for other in others) / 3))
    return sum(scores) / len(scores)


# --- ANLS, relaxed accuracy ----------------------------------------------------------------------
def distance(a, b):
    row = list(range(len(b) + 1))
    for i, x in enumerate(a):
        new = [i + 1]
        for j, y in enumerate(b):
            new.append(min(row[j] + (x != y), row[j + 1] + 1, new[j] + 1))
        row = new
    return row[-1]


def anls(answer, references):
    best = 0
    for reference in references:
        a, b = (" ".join(t.strip().lower().split()) for t in (answer, reference))
        longer = max(len(a), len(b))
        near = 1 - (0 if longer == 0 else distance(a, b) / longer)
        best = max(best, near if near >= 0.5 else 0)
    return best


def number(text):
    try:
        return float(text.rstrip("%")) / 100 if text.endswith("%") else float(text)
    except ValueError:
        return None


def relaxed(answer, references):
    best = 0
    for reference in references:
        given, right = number(answer.strip()), number(reference.strip())
        if given is not None and right:
            best = max(best, float(abs(given - right) / abs(right) <= 0.05))
        else:
            best = max(best, float(answer.strip().lower() == reference.strip().lower()))
    return best


VQA = [
    ("yes", ["yes"] * 10),
    ("Yes.", ["yes"] * 10),
    ("yes", ["no"] * 3 + ["yes"] * 7),
    ("no", ["no"] * 3 + ["yes"] * 7),
    ("no", ["no"] * 2 + ["yes"] * 8),
    ("no", ["no"] + ["yes"] * 9),
    ("two", ["2"] * 4 + ["two"] * 6),
    ("The cat", ["cat"] * 5 + ["a cat"] * 5),
    ("1,000", ["1000"] * 10),
    ("3.5", ["3.5"] * 6 + ["35"] * 4),
    ("dont know", ["don't know"] * 10),
    ("red/white", ["red white"] * 10),
    ("red , white", ["red white"] * 10),
    ("U.S.A.", ["usa"] * 10),
    ("9:00", ["9:00"] * 10),
    ("t-shirt", ["t shirt"] * 8 + ["tshirt"] * 2),
    ("he's", ["hes"] * 10),
    ("somebody'd", ["somebodyd"] * 10),
    ("none", ["0"] * 10),
    ("(left)", ["left"] * 10),
    ("couldnt've", ["couldn't've"] * 10),
    ("what\ntime", ["what time"] * 10),
    ("", ["yes"] * 10),
    ("Éclair", ["éclair"] * 10),
    ("a", ["an"] * 10),
]
ANLS = [
    ("ITC Limited", ["ITC limited", "itc"]),
    ("ITC Limted", ["ITC limited"]),
    ("", ["x"]),
    ("  12  May 1990", ["12 may 1990"]),
    ("abc", ["xyz"]),
    ("abcd", ["abxy"]),
    ("abcde", ["abxyz"]),
    ("naïve café", ["naive cafe"]),
    ("東京", ["東京都"]),
    ("ÀÉ", ["àé"]),
]
RELAXED = [
    ("10.4", ["10"]),
    ("10.51", ["10"]),
    ("9.5", ["10"]),
    ("9.49", ["10"]),
    ("12%", ["0.12"]),
    ("12%", ["12"]),
    ("Yes", ["yes"]),
    ("0", ["0"]),
    ("0.0", ["0"]),
    ("-3", ["-3.1"]),
    ("1e3", ["1000"]),
    ("+5", ["5"]),
    ("1_000", ["1000"]),
    ("1,000", ["1000"]),
    ("3 apples", ["3"]),
    ("nan", ["nan"]),
    ("1.", ["1"]),
    (".5", ["0.5"]),
    ("0x10", ["16"]),
    ("5 %", ["0.05"]),
    ("--5", ["5"]),
    ("inf", ["1"]),
]
CAPTIONS = [
    (
        "A man is riding a bike down the street.",
        [
            "A man rides a bicycle on a city street.",
            "A person riding a bike down a road.",
            "Man on a bike in the street.",
        ],
    ),
    (
        "Two dogs play in the snow",
        ["Two dogs are playing in the snow.", "A pair of dogs run through snow"],
    ),
    (
        "a red double-decker bus",
        ["A red double-decker bus is parked near a building.", "The bus is red."],
    ),
    ("It's a cat, isn't it?", ["A cat sits on a mat.", "It's a cat on a mat."]),
    ('A sign that says "STOP"', ["A stop sign at the corner.", "A red stop sign that says stop."]),
    ("", ["A plate of food.", "Food on a plate"]),
    (
        "A plate of food (rice & beans) for $5.00",
        ["A plate of rice and beans.", "rice & beans on a plate"],
    ),
    ("a man a man a man a man", ["A man stands.", "a man with a man"]),
]
SENTENCES = [
    "A man's dog, isn't it? It's 3.5 ft. tall.",
    'Two people (a boy & a girl) play "ball" in the U.S. -- really...',
    "A red/blue T-shirt costs $5.00; can't buy.",
    "the dogs' bowls",
    "Mr. Smith doesn't like well-known cafés",
    "I'm we're you've he'd they'll",
    "a cat.A dog",
    "10:30 a.m. on 5/6/2020",
    "50% of #1",
    "gonna wanna cannot",
    "'quoted' words",
    "half-eaten pizza w/ cheese",
    "A man, woman and child's kite.",
    "1,000 people",
    "black&white photo",
    "a — b – c",
    "the 1990's",
    "what?! wow!!",
    "etc. and so on",
]


def captions(pairs):
    hypotheses = {i: [{"caption": answer}] for i, (answer, _) in enumerate(pairs)}
    references = {i: [{"caption": r} for r in refs] for i, (_, refs) in enumerate(pairs)}
    tokenizer = PTBTokenizer()
    hypotheses, references = tokenizer.tokenize(hypotheses), tokenizer.tokenize(references)
    bleu, _ = Bleu(4).compute_score(references, hypotheses, verbose=0)
    cider, each = Cider().compute_score(references, hypotheses)
    return {"bleu4": bleu[3], "cider": float(cider), "ciders": [float(x) for x in each]}


def generated(seed, count):
    """Captions of a few words, some of them rare."""
    rng = random.Random(seed)
    words = "a the man woman dog red blue bus sits runs on in street park with ball".split()
    sentence = lambda: " ".join(rng.choice(words) for _ in range(rng.randint(3, 12)))
    return [(sentence(), [sentence() for _ in range(rng.randint(1, 5))]) for _ in range(count)]


def main():
    words = PTBTokenizer().tokenize({i: [{"caption": s}] for i, s in enumerate(SENTENCES)})
    many = generated(1, 40)
    golden = {
        "vqa": [[a, r, vqa(a, r)] for a, r in VQA],
        "anls": [[a, r, anls(a, r)] for a, r in ANLS],
        "relaxed": [[a, r, relaxed(a, r)] for a, r in RELAXED],
        "caption": [{"pairs": pairs, **captions(pairs)} for pairs in (CAPTIONS, many)],
        "words": [[s, words[i][0]] for i, s in enumerate(SENTENCES)],
    }
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text(json.dumps(golden, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
