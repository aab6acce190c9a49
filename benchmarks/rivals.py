"""Clusters made by BM25 or MiniLM alone beside dupq's: how many joined pairs, and of the next likeliest, are right.

    python benchmarks/rivals.py --run out/travel/runs [--also "MiniLM as encoder=out/minilm/runs"] [--json FILE]

All decide over the questions that --run did not find to be near copies of others. A pair is a candidate if either
question lists the other among its ten nearest; inside a component all pairs are scored; the partition is dupq's. As
scores of BM25 and MiniLM are no probabilities, both join as many pairs as dupq joined by meaning, or some fewer.
`next` are the likeliest pairs of other clusters without a link, one for two clusters, as in a worklist.
BM25's score is the mean of both directions, each as a share of a question's score for itself; MiniLM's is the cosine.

A pair is right if it is linked as a duplicate, or if a reading (a language model's label) calls it the same, in
benchmarks/verdicts/SITE.tsv or rivals/SITE.tsv there. The reader of rivals/ did not know who proposed a pair; no model
learned from its readings. --sheet writes the pairs without a reading.
"""

import argparse
import json
import random
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from minilm import INSTALL, MiniLM, model_folder
from scipy.special import expit

from dupq.clusters.components import components, represented
from dupq.clusters.decision import decide, likeliest
from dupq.evaluation.measures import Ranker
from dupq.evaluation.rankers import BM25, EncoderRanker
from dupq.evaluation.verdicts import Verdict, format_verdicts, last_verdicts
from dupq.links import known_duplicates
from dupq.neighbours.embeddings import Embeddings, Measure
from dupq.runs.reader import Run, open_run
from dupq.settings.sections import TextSettings
from dupq.text.keys import Sites, are_pairs_among
from dupq.text.questions import texts_table
from dupq.text.tokens import LINK_MARK, html_to_text

VERDICTS, K, NEXT = Path(__file__).parent / "verdicts", 10, 50
_SLOPE = 10.0  # from scores to log-odds; another one gives the same partition
_ENDS = ["question_id_left", "question_id_right"]  # of one site: the keys too
_NO_PAIRS = np.zeros((0, 2), np.int64)


class Proposed(NamedTuple):
    """The pairs (int64 keys, (m, 2)) that a system joins, and those that people are to look at next."""

    joined: np.ndarray
    next: np.ndarray


def of_run(run: Run) -> Proposed:
    """What a run joined by meaning, and the top of its worklist."""
    joined = run.pairs.arrow(_ENDS, pc.field("joined") & (pc.field("source") == "encoder"))
    return Proposed(ends(joined), ends(run.worklist.arrow(_ENDS)[:NEXT]))


def ends(table: pa.Table) -> np.ndarray:
    return np.stack([table[name].to_numpy() for name in _ENDS], axis=1)


def decided(ranker: Ranker, keys: np.ndarray, links: np.ndarray, wanted: int) -> Proposed:
    """Join at most so many pairs, by the mean of a Ranker's scores of both directions."""

    def odds(pairs: np.ndarray, even: float) -> np.ndarray:
        return _SLOPE * ((ranker.score(*pairs.T) + ranker.score(*pairs[:, ::-1].T)) / 2 - even)

    lists = zip(keys.tolist(), ranker.rank(keys, K), strict=True)
    pairs = np.unique(np.sort([(key, other) for key, others in lists for other in others], axis=1), axis=0)
    scores = odds(pairs, 0)
    for even in np.sort(scores)[-2 * wanted :]:  # the lowest threshold first
        p = expit(scores - even).astype(np.float32)
        of_others = lambda some, even=even: expit(odds(some, even / _SLOPE))  # noqa: E731
        keys, clusters = decide(pairs, p, _NO_PAIRS, 0.5, of_others)
        groups = (keys[clusters == cluster] for cluster in np.unique(clusters))
        inside = [own[np.stack(np.triu_indices(len(own), 1), axis=1)] for own in groups]
        if sum(map(len, inside)) <= wanted:
            break
    owners = represented(pairs, keys, clusters)
    linked = represented(owners, *components(represented(links, keys, clusters)))
    rows = np.flatnonzero(linked[:, 0] != linked[:, 1])
    following = rows[likeliest(pairs[rows], scores[rows], owners[rows], NEXT)]
    return Proposed(np.concatenate([_NO_PAIRS, *inside]), pairs[following])


def rankers_of(run: Run, place: Path) -> tuple[np.ndarray, dict[str, Ranker]]:
    """The questions of a run that are no near copies, and who ranks them; `place` keeps MiniLM's embeddings."""
    near = run.pairs.arrow(_ENDS, pc.field("source").isin(["exact", "near_duplicate"]))
    members, first = components(ends(near))
    table = run.questions.arrow(["question_id", "title", "body_html"]).sort_by("question_id")
    table = table.filter(pa.array(~np.isin(table["question_id"].to_numpy(), members[members != first])))
    ids, titles, bodies = (column.combine_chunks() for column in table.columns)
    if not place.exists():
        folder = model_folder()
        if folder is None:
            raise SystemExit(INSTALL)
        torch.set_num_threads(1)
        both = zip(titles.to_pylist(), bodies.to_pylist(), strict=True)
        texts = [f"{title}\n{html_to_text(body, 'removed').replace(LINK_MARK, ' ')}" for title, body in both]
        place.parent.mkdir(parents=True, exist_ok=True)
        np.save(place, MiniLM(folder, torch.float32).encode(texts))
    keys, vectors = ids.to_numpy(), np.load(place).astype(np.float16)
    stored = texts_table(ids, titles, bodies, TextSettings(language="english"))["text"].combine_chunks()
    minilm = EncoderRanker([Embeddings(keys, vectors)], Measure())
    return keys, {"BM25": BM25([pa.table({"key": keys, "text": stored})], "english"), "MiniLM": minilm}


def counted(pairs: np.ndarray, links: np.ndarray, said: dict[tuple[int, int], str]) -> dict[str, int]:
    """How many pairs there are, and how many of them have a reading or a link, are right, are linked."""
    linked = are_pairs_among(links, pairs)
    verdicts = np.array([said.get((left, right), "") for left, right in pairs.tolist()], dtype=str)
    judged, right = (verdicts != "") | linked, (verdicts == "same") | linked
    return {"pairs": len(pairs), "judged": int(judged.sum()), "right": int(right.sum()), "linked": int(linked.sum())}


def main() -> None:
    """Let all decide, print a row each, write the figures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--run", required=True, metavar="URI", help="a finished run on one site")
    parser.add_argument("--also", action="append", default=[], metavar="NAME=URI", help="another run on that site")
    parser.add_argument("--cache", type=Path, default=Path("out/rivals"), help="where MiniLM's embeddings are kept")
    parser.add_argument("--sheet", type=Path, metavar="FILE", help="where pairs without a reading go")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where the figures go, beside those of other sites")
    options = parser.parse_args()
    run = open_run(options.run)
    [site] = run.metrics["sites"]
    links = known_duplicates(run.manifest["inputs"]["links"] or "", Sites([site]))
    keys, rankers = rankers_of(run, options.cache / f"{site}.npy")
    proposed = {"dupq": of_run(run)}
    proposed |= {name: decided(ranker, keys, links, len(proposed["dupq"].joined)) for name, ranker in rankers.items()}
    proposed |= {name: of_run(open_run(uri)) for name, uri in (also.split("=", 1) for also in options.also)}
    files = [str(VERDICTS / f"{folder}{site}.tsv") for folder in ("rivals/", "")]
    said = {verdict[1:4:2]: verdict.verdict for verdict in last_verdicts(files)[0]}
    rows = {}
    for name, own in proposed.items():
        rows[name] = {kind: counted(pairs, links, said) for kind, pairs in own._asdict().items()}
        print(site, name, json.dumps(rows[name]))
    if options.sheet:
        every = {(left, right) for own in proposed.values() for pairs in own for left, right in pairs.tolist()}
        unread = [Verdict(site, left, site, right, "") for left, right in sorted(every - said.keys())]
        options.sheet.write_text(format_verdicts(random.Random(0).sample(unread, len(unread))))
    if options.json:
        figures = json.loads(options.json.read_text()) if options.json.exists() else {}
        options.json.write_text(json.dumps({**figures, site: {"questions": len(keys), **rows}}, indent=1) + "\n")


if __name__ == "__main__":
    main()
