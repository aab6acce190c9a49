"""Word vectors that a user brings."""

import gzip
from pathlib import Path

import numpy as np
import pytest
from gensim.models import KeyedVectors

from dupq import storage
from dupq.errors import DupqError
from dupq.training.word_vectors import make_word_vectors
from dupq_papers.settings import PaperWordVectors
from dupq_papers.word_vectors import read_vectors

WORDS = ["bread", "brød", "خبز"]
VECTORS = np.array([[0.5, -1, 2], [1, 0, 0.25], [3, 2, 1]], np.float32)


def gensim_vectors() -> KeyedVectors:
    vectors = KeyedVectors(3)
    vectors.add_vectors(WORDS, VECTORS)
    return vectors


def write_text(path: Path, lines: list[str]) -> str:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("packed", [False, True])
def test_what_word2vec_writes_is_read(tmp_path: Path, packed: bool) -> None:
    path = tmp_path / "vectors.txt"
    gensim_vectors().save_word2vec_format(str(path))
    if packed:
        path = path.rename(path.with_name("vectors.txt.gz"))
        path.write_bytes(gzip.compress(path.read_bytes()))
    vectors, is_found = read_vectors(str(path), ["خبز", "flour", "bread"], 3)
    assert is_found.tolist() == [True, False, True]
    assert vectors.tolist() == [[3, 2, 1], [0, 0, 0], [0.5, -1, 2]]


def test_glove_has_no_first_line_and_words_with_spaces(tmp_path: Path) -> None:
    uri = write_text(tmp_path / "glove.txt", ["bread 0.5 -1 2", ". . . 1 1 1", "bread 9 9 9", "at me@x.org 1 2 3"])
    vectors, is_found = read_vectors(uri, ["bread", "."], 3)
    assert vectors.tolist() == [[0.5, -1, 2], [0, 0, 0]]
    assert is_found.tolist() == [True, False]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["bread 1 2 3", "rye 1 2"], "line 2 has 2 values after its word; 3 expected"),
        (["bread 1 2 3", "rye 1 2 3 4"], "line 2 has 4 values after its word; 3 expected"),
        (["3 3", "bread 1 2 3", "rye 1 2 3"], "line 1 says 3 words, but 2 lines follow"),
        (["bread 1 2 3", "flour 1 two 3"], "line 2 has a value that is not a number"),
        (["bread 1 2 3", "flour 1 nan 3"], "line 2 has a value that is not finite"),
        (["9 300"], "line 1 says 300 dimensions, but word_vectors.dimensions is 3"),
        (["bread 1 2 3 4 5"], "line 1 says 5 dimensions"),
        (["version https://git-lfs.github.com/spec/v1"], "line 1 says 1 dimensions"),
        ([], "the file is empty"),
        (["bread 1 2 3", "x" * (1 << 20)], "line 2 has 0 values after its word"),
    ],
)
def test_damage_of_a_text_file_is_named_by_its_line(tmp_path: Path, lines: list[str], message: str) -> None:
    uri = write_text(tmp_path / "vectors.vec", lines)
    with pytest.raises(DupqError, match=message) as caught:
        read_vectors(uri, ["bread", "flour"], 3)
    assert uri in str(caught.value)


def test_a_binary_file_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(DupqError, match=r"v\.bin\.gz: word2vec's binary form is not read; write it as text"):
        read_vectors(str(tmp_path / "v.bin.gz"), ["bread"], 3)


def test_a_packed_file_that_was_cut_is_an_error(tmp_path: Path) -> None:
    lines = "".join(f"w{n} {n} 0 1\n" for n in range(5000))
    (tmp_path / "v.txt.gz").write_bytes(gzip.compress(lines.encode())[:-20])
    with pytest.raises(DupqError, match="cannot be unpacked to its end"):
        read_vectors(str(tmp_path / "v.txt.gz"), ["w1"], 3)
    (tmp_path / "w.txt.gz").write_bytes(lines.encode())
    with pytest.raises(DupqError, match="cannot be unpacked"):
        read_vectors(str(tmp_path / "w.txt.gz"), ["w1"], 3)
    with pytest.raises(DupqError, match="no such file"):
        read_vectors(str(tmp_path / "nowhere.txt"), ["w1"], 3)


def test_vectors_are_read_from_s3(s3: str) -> None:
    storage.write_bytes(f"{s3}/vectors/glove.txt", b"bread 1 2 3\nrye 4 5 6\n")
    assert read_vectors(f"{s3}/vectors/glove.txt", ["rye"], 3)[0].tolist() == [[4, 5, 6]]


SENTENCES = [["bread", "rye", "flour"]] * 3 + [["bread", "rye"]] * 2


def test_absent_words_get_a_random_vector_of_their_own(tmp_path: Path) -> None:
    uri = write_text(tmp_path / "v.txt", ["bread 1 2 3", "rye 3 2 1"])
    random, again = (
        make_word_vectors(sentences, PaperWordVectors(dimensions=3, file=uri, minimum_count=3), seed=1)
        for sentences in (SENTENCES, [["flour", "bread"]] * 4)
    )
    assert random.words == ["bread", "rye", "flour"]
    assert random.table[2:4].tolist() == [[1, 2, 3], [3, 2, 1]]
    assert random.caps["words absent from word_vectors.file"] == 1
    assert random.table[4].tolist() == again.table[3].tolist()
    other = make_word_vectors(SENTENCES, PaperWordVectors(dimensions=3, file=uri), seed=2)
    assert other.table[4].tolist() != random.table[4].tolist()


def test_a_file_without_any_word_of_the_archive_is_an_error(tmp_path: Path) -> None:
    uri = write_text(tmp_path / "v.txt", ["pain 1 2 3"])
    with pytest.raises(DupqError, match="none of the 3 words of the archive"):
        make_word_vectors(SENTENCES, PaperWordVectors(dimensions=3, file=uri), seed=1)
