"""How fast texts become signatures, and signatures candidates, and what is found, against peers in the same run.

    python benchmarks/near_duplicates.py [--quick] [--json FILE]

**Signatures.** The peers are used as their documentation shows: words by `str.split`, shingles of three words joined
and encoded, `datasketch.MinHash().update_batch` (128 permutations) or `rensa.RMinHash`, text by text. Texts are the
questions of two dumps, cs and travel, of about 125 words; `short_…` are Quora's, of about 10.

- `text_to_signature_…`: from the text in the HTML. Ours brings it to the project's tokens first (NFKC, lower case,
  addresses, Unicode's letters), the peers only split it; `…_vs_datasketch_tokens` has them use `tokens.tokens`.
- `tokenised_text_to_signature_…`: from texts as the near-duplicates stage reads them, tokens joined by single spaces,
  which the peers get too.

Where the time goes is told per kernel: bytes read a second beside what `memcpy` copies, and the permutations'
multiply-adds a second beside what the same kernel does on one endless text.

**Candidates.** `banding_vs_polars`: from the signatures of all these texts, of which one in eight is a near copy, to
distinct candidate pairs, against what text-dedup does, in polars: a row a text and band, grouped by band and key,
groups of several exploded to a star, each pair once. Both begin with `band_keys`; polars gives the pairs with the
first of each group only, ours up to 32 followers of each, so `banding_pairs` are more than `polars_pairs`.

**What is found.** `recall_over_threshold` is the share of the pairs over the threshold among 20,000 distinct real
texts, a third of them edits of others, that banding and exact verification find, `false_edges` how many of those
found are not over it, both against comparing all pairs without any hash (`all_pairs.py`).

All on one thread. Seconds are of processor time, medians of several rounds in turns. Needs `pip install '.[bench]'`,
and the dumps of DUPQ_SHARED_DATA (default: ../shared/data).
"""

import argparse
import csv
import io
import json
import lzma
import os
import platform
import random
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from all_pairs import all_pairs, with_edits

from dupq.near_duplicates.minhash import band_keys, bands_of, signatures, text_signatures
from dupq.near_duplicates.pairing import candidate_pairs
from dupq.near_duplicates.shingles import jaccard, shingle, shingle_sets
from dupq.settings.sections import NearDuplicateSettings
from dupq.text.token_arrays import strings_of, token_texts
from dupq.text.tokens import html_to_text, tokens

SETTINGS = NearDuplicateSettings()
BANDS, ROWS = bands_of(SETTINGS)
SITES = ("cs.stackexchange.com", "travel.stackexchange.com")
SEED = 1


def main() -> None:
    """Read the texts, measure, print a table, write the JSON."""
    options = arguments()
    os.environ["POLARS_MAX_THREADS"] = "1"
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    figures = measure(options)
    width = max(map(len, figures))
    for name, value in figures.items():
        print(f"{name:{width}}  {value}")
    if options.json:
        Path(options.json).write_text(json.dumps(figures, indent=2) + "\n")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer texts, one round")
    parser.add_argument("--json", metavar="FILE", help="where the figures go")
    shared = os.environ.get("DUPQ_SHARED_DATA", Path(__file__).parents[2] / "shared" / "data")
    parser.add_argument("--data", default=shared, type=Path, help="the folder of dumps (default: %(default)s)")
    return parser.parse_args()


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """All figures."""
    rounds, sample = (1, 300) if options.quick else (7, 1_500)
    raw = pa.array(text for site in SITES for text in question_texts(options.data, site))
    short = pa.array(quora_texts(options.data))
    figures = signature_speed(raw, sample, rounds)
    figures |= {f"short_{name}": value for name, value in signature_speed(short, sample, rounds).items()}
    return {
        **figures,
        **kernels(raw, rounds),
        **banding_speed([*token_texts(raw).to_pylist(), *token_texts(short).to_pylist()], rounds),
        **quality(token_texts(raw).to_pylist(), token_texts(short).to_pylist(), 4_000 if options.quick else 20_000),
        "cores": 1,
        "date": time.strftime("%Y-%m-%d"),
        "machine": f"{platform.machine()}, Python {platform.python_version()}",
    }


def question_texts(data: Path, site: str) -> Iterator[str]:
    """Title and text of each question of a dump."""
    for title, body in posts(data, site):
        yield f"{title}\n{html_to_text(body, 'removed')}"


def posts(data: Path, site: str) -> Iterator[tuple[str, str]]:
    """Title and HTML of each question of a dump."""
    import py7zr
    from lxml import etree

    factory = py7zr.io.BytesIOFactory(1 << 32)
    with py7zr.SevenZipFile(data / "dumps" / f"{site}.7z") as packed:
        name = next(name for name in packed.getnames() if name.endswith("Posts.xml"))
        packed.extract(targets=[name], factory=factory)
    for _, row in etree.iterparse(io.BytesIO(factory.products[name].read()), tag="row"):
        yield row.attrib.get("Title", ""), row.attrib.get("Body", "")


def quora_texts(data: Path) -> list[str]:
    with lzma.open(data / "quora" / "questions.tsv.xz", "rt", encoding="utf-8", newline="") as stream:
        return [row[1] for row in csv.reader(stream, delimiter="\t", quoting=csv.QUOTE_NONE)][1:]


def signature_speed(raw: pa.StringArray, sample: int, rounds: int) -> dict[str, float]:
    """How many times as fast as the peers; they get a sample of the texts, ours gets all."""
    texts = token_texts(raw)
    chosen = np.random.default_rng(SEED).permutation(len(raw))[:sample]
    few, few_raw = texts.take(chosen).to_pylist(), raw.take(chosen).to_pylist()
    seconds = in_turns(
        {
            "ours": lambda: text_signatures(texts, SETTINGS),
            "ours_raw": lambda: text_signatures(token_texts(raw), SETTINGS),
            "datasketch": lambda: datasketch_signatures(few, str.split),
            "datasketch_raw": lambda: datasketch_signatures(few_raw, str.split),
            "datasketch_tokens": lambda: datasketch_signatures(few_raw, tokens),
            "rensa": lambda: rensa_signatures(few),
            "rensa_raw": lambda: rensa_signatures(few_raw),
        },
        rounds,
    )
    each = {name: 1e6 * spent / (len(raw) if name.startswith("ours") else sample) for name, spent in seconds.items()}
    return {
        "text_to_signature_vs_datasketch": round(each["datasketch_raw"] / each["ours_raw"], 1),
        "text_to_signature_vs_rensa": round(each["rensa_raw"] / each["ours_raw"], 1),
        "text_to_signature_vs_datasketch_tokens": round(each["datasketch_tokens"] / each["ours_raw"], 1),
        "tokenised_text_to_signature_vs_datasketch": round(each["datasketch"] / each["ours"], 1),
        "tokenised_text_to_signature_vs_rensa": round(each["rensa"] / each["ours"], 1),
        **{f"us_a_text_{name}": round(value, 3) for name, value in each.items()},
        "texts": len(raw),
        "tokens_a_text": round(sum(text.count(" ") + 1 for text in few) / sample, 1),
    }


def datasketch_signatures(texts: list[str], words_of: Callable[[str], list[str]]) -> None:
    from datasketch import MinHash

    for text in texts:
        minhash = MinHash()
        minhash.update_batch([shingle.encode("utf-8") for shingle in word_shingles(words_of(text))])


def rensa_signatures(texts: list[str]) -> None:
    from rensa import RMinHash

    for text in texts:
        minhash = RMinHash(num_perm=SETTINGS.permutations, seed=42)
        minhash.update(word_shingles(text.split()))
        minhash.digest()


def word_shingles(words: list[str]) -> list[str]:
    return [" ".join(words[start : start + 3]) for start in range(max(1, len(words) - 2))]


def banding_speed(texts: list[str], rounds: int) -> dict[str, float]:
    """How many times as fast as polars candidates are found, one text in eight being a near copy."""
    column = pa.array(with_edits(distinct(texts), len(set(texts)) * 8 // 7, random.Random(SEED)))
    found = text_signatures(column, SETTINGS)
    seconds = in_turns({"ours": lambda: our_pairs(found), "polars": lambda: polars_pairs(found)}, min(rounds, 3))
    return {
        "banding_vs_polars": round(seconds["polars"] / seconds["ours"], 1),
        "banding_s": round(seconds["ours"], 3),
        "polars_s": round(seconds["polars"], 3),
        "banding_texts": len(column),
        "banding_pairs": len(our_pairs(found)),
        "polars_pairs": polars_pairs(found),
    }


def distinct(texts: list[str]) -> list[str]:
    """Each text once, without the empty one."""
    return [text for text in dict.fromkeys(texts) if text]


def our_pairs(found: np.ndarray) -> np.ndarray:
    keys = band_keys(found, BANDS, ROWS)
    return candidate_pairs(keys, np.arange(len(found)))[0]


def polars_pairs(found: np.ndarray) -> int:
    """How many pairs polars finds."""
    import polars as pl

    keys = band_keys(found, BANDS, ROWS)
    rows = {
        "id": np.repeat(np.arange(len(keys)), BANDS),
        "band": np.tile(np.arange(BANDS, dtype=np.uint8), len(keys)),
        "key": keys.ravel(),
    }
    groups = pl.DataFrame(rows).group_by("band", "key").agg(pl.col("id")).filter(pl.col("id").list.len() > 1)
    stars = groups.select(left=pl.col("id").list.first(), right=pl.col("id").list.slice(1)).explode("right")
    return stars.unique().height


def quality(long: list[str], short: list[str], count: int) -> dict[str, float]:
    """What is found of what there is."""
    generator = random.Random(SEED)
    real = generator.sample(distinct([*long, *short[: len(long)]]), count * 2 // 3)
    texts = with_edits(real, count, generator)
    column = pa.array(texts)
    pairs = our_pairs(text_signatures(column, SETTINGS))
    coefficients = jaccard(shingle_sets(column, SETTINGS.shingle_size), pairs[:, 0], pairs[:, 1])
    edges = set(map(tuple, pairs[coefficients >= SETTINGS.threshold].tolist()))
    true = all_pairs(texts, SETTINGS.shingle_size, SETTINGS.threshold)
    return {
        "recall_over_threshold": round(len(edges & true.keys()) / len(true), 5),
        "false_edges": len(edges - true.keys()),
        "pairs_over_threshold": len(true),
        "recall_texts": len(texts),
    }


def kernels(raw: pa.StringArray, rounds: int) -> dict[str, float]:
    """Where the time goes, and how far each kernel is from what the machine can do."""
    texts = token_texts(raw)
    shingles = shingle(texts, SETTINGS.shingle_size)
    endless = shingles._replace(offsets=shingles.offsets[[0, -1]])
    size, size_raw = (strings_of(column)[0][-1] for column in (texts, raw))
    source = np.ones(256 << 20, np.uint8)
    target = np.empty_like(source)
    seconds = in_turns(
        {
            "tokenise": lambda: token_texts(raw),
            "hash_shingles": lambda: shingle(texts, SETTINGS.shingle_size),
            "permute": lambda: signatures(shingles, SETTINGS.permutations),
            "permute_endless": lambda: signatures(endless, SETTINGS.permutations),
            "shingle_sets": lambda: shingle_sets(texts, SETTINGS.shingle_size),
            "memcpy": lambda: np.copyto(target, source),
        },
        rounds,
    )
    multiply_adds = len(shingles.hashes) * SETTINGS.permutations
    read = ("hash_shingles", "shingle_sets")
    return {
        "kernel_tokenise_gb_s": round(size_raw / seconds["tokenise"] / 1e9, 2),
        **{f"kernel_{name}_gb_s": round(size / seconds[name] / 1e9, 2) for name in read},
        "memcpy_gb_s": round(len(source) / seconds["memcpy"] / 1e9, 2),
        "kernel_permute_multiply_adds_g_s": round(multiply_adds / seconds["permute"] / 1e9, 2),
        "endless_permute_multiply_adds_g_s": round(multiply_adds / seconds["permute_endless"] / 1e9, 2),
    }


def in_turns(work: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """The median processor seconds of each, after one round to warm up."""
    spent: dict[str, list[float]] = {name: [] for name in work}
    for number in range(rounds + 1):
        for name, task in work.items():
            start = time.process_time()
            task()
            if number:
                spent[name].append(time.process_time() - start)
    return {name: statistics.median(times) for name, times in spent.items()}


if __name__ == "__main__":
    main()
