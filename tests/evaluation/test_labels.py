"""Measuring on labels of the user's own: a file of pairs in place of the links table."""

from pathlib import Path

import numpy as np
import pytest
from trained import TrainedSample

from dupq import storage
from dupq.archive import question_shards
from dupq.clusters.components import components
from dupq.encoders.saved import read_development_links, read_split
from dupq.errors import DupqError
from dupq.evaluation.known_duplicates import unseen, usable
from dupq.links import Split, known_duplicates, split_links
from dupq.pipelines.evaluate import EvaluationJob, evaluate
from dupq.settings import config

KEYS = np.arange(10)


def test_labels_count_once_and_what_is_left_out_is_counted_by_its_reason() -> None:
    lines = [(1, 2, 1), (2, 3, 1), (1, 2, 1), (1, 3, 0), (4, 5, 0), (4, 5, 0), (1, 2, 0), (1, 11, 1), (12, 13, 0)]
    pairs, labels = np.array([line[:2] for line in lines]), np.array([line[2] == 1 for line in lines])
    found = usable(pairs, labels, KEYS)
    assert found.duplicates.tolist() == [[1, 2], [2, 3]]
    assert found.others.tolist() == [[4, 5]]
    assert found.counts == {"lines": 9, "not_in_archive": 2, "repeated": 2, "contradictory": 2}
    assert sum(found.counts.values()) - 9 + len(found.duplicates) + len(found.others) == 9


def test_labels_of_questions_that_training_saw_are_left_out() -> None:
    split = Split(
        np.arange(6), np.array([0, 0, 2, 2, 4, 4]), np.array(["train"] * 2 + ["development"] * 2 + ["test"] * 2)
    )
    links = np.array([(0, 1), (2, 3), (4, 5)])
    others = np.array([(0, 4), (3, 7), (4, 7), (7, 8), (8, 9)])
    pairs = unseen(links, others, split, np.array([9]))
    assert list(zip(pairs.left, pairs.right, pairs.labels, strict=True)) == [(4, 5, 1), (4, 7, 0), (7, 8, 0)]


@pytest.mark.usefixtures("quick")
def test_a_file_of_pairs_is_measured_as_the_same_links_are(trained_sample: TrainedSample, tmp_path: Path) -> None:
    sample, (_, sites) = trained_sample, question_shards(trained_sample.questions)
    links = known_duplicates(sample.links, sites)
    fresh = read_split(sample.encoder, sites)
    test, trained = fresh["test"].tolist(), fresh["train"].tolist()
    own = {tuple(pair) for pair in links.tolist()}
    unlike = [(a, b) for a, b in zip(test, test[5:], strict=False) if (a, b) not in own][:12]
    (left, right), seen = links[0], (trained[0], test[0])
    wrong = "".join(f"{a}\t{b}\t0\n" for a, b in [*unlike, seen, (left, right)])
    lines = "".join(f"{b}\t{a}\n" for a, b in links.tolist()) + f"{left}\t{right}\t1\n{wrong}1\t999999999\t1\n"
    (tmp_path / "labels.tsv").write_text(f"left\tright\tduplicate\n{lines}")  # keys of the only site are ids
    job = EvaluationJob(sample.questions, str(tmp_path / "labels.tsv"), str(tmp_path / "own"), sample.encoder)
    shown = evaluate(job)
    evaluate(EvaluationJob(sample.questions, sample.links, str(tmp_path / "links"), sample.encoder))
    measured, expected = (storage.read_json(f"{tmp_path}/{name}/metrics.json") for name in ("own", "links"))
    assert (measured["retrieval"], measured["test_queries"]) == (expected["retrieval"], expected["test_queries"])
    assert expected["left_out"] == {"train": len(trained), "development": len(fresh["development"])}
    left_out = np.isin(links[:, 0], [*trained, *fresh["development"]]).sum() + 1  # and `seen`
    assert measured["left_out"] == {**expected["left_out"], "labelled_pairs": left_out}
    counts = measured["labels"]
    assert (counts["lines"], counts["not_in_archive"], counts["repeated"]) == (len(links) + 16, 1, 1)
    assert counts["contradictory"] >= 1
    labelled = measured["labelled_pairs"]
    assert labelled["duplicates"] == np.isin(links[:, 0], test).sum()
    assert labelled["others"] == len(unlike) - (counts["contradictory"] - 1)
    for system in ("encoder", "bm25"):
        assert 0 < measured["retrieval"][system]["recall_at_1"] <= measured["retrieval"][system]["recall_at_100"]
        assert measured["balanced_pairs"][system] > 0.5
        assert set(labelled["systems"][system]) == {"accuracy", "average_precision", "roc_auc"}
    for part in ("R@100", "AUC", "1 repeated", "for training"):
        assert part in shown


def test_development_links_connect_the_sets_that_the_encoder_was_tuned_on(trained_sample: TrainedSample) -> None:
    sites = question_shards(trained_sample.questions)[1]
    links = known_duplicates(trained_sample.links, sites)
    settings = storage.read_json(f"{trained_sample.encoder}/encoder.json")["settings"]
    split = split_links(links, config.Settings.parse(settings).training)
    questions, sets = components(read_development_links(trained_sample.encoder, sites))
    assert questions.tolist() == split.questions_of("development").tolist()
    assert sets.tolist() == split.set_of(questions).tolist()


@pytest.mark.usefixtures("quick")
def test_labels_of_which_nothing_is_left_are_one_clear_error(trained_sample: TrainedSample, tmp_path: Path) -> None:
    sample, place = trained_sample, tmp_path / "labels.tsv"
    trained = read_split(sample.encoder, question_shards(sample.questions)[1])["train"]
    links = known_duplicates(sample.links, question_shards(sample.questions)[1])
    left, right = links[np.isin(links[:, 0], trained)][0]
    for content, message in (
        (f"{left}\t{right}\n", "all 2 questions with known duplicates were seen"),
        ("999999998\t999999999\n", "no known duplicates have both questions in the archive"),
        (f"{left}\t{right}\t0\n", "no known duplicates"),
    ):
        place.write_text(content)
        with pytest.raises(DupqError, match=message):
            evaluate(EvaluationJob(sample.questions, str(place), str(tmp_path / "out"), sample.encoder))
