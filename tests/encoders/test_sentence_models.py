"""Models of sentence-transformers: which one is meant, what it reads, and its vectors."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import sentence_stand_in
from sentence_stand_in import unit, write_model

from dupq import system
from dupq.encoders.sentence_models import (
    Teacher,
    cosines_of,
    load_model,
    model_fingerprint,
    model_folder,
    teacher_at,
    teacher_texts,
    teacher_vectors,
)
from dupq.errors import DupqError


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    sentence_stand_in.install(monkeypatch)


def test_a_model_is_a_folder_a_package_that_has_one_or_a_name_on_the_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = {name: write_model(tmp_path / "hub" / name) for name in ("some/model", "sentence-transformers/small")}
    sentence_stand_in.install(monkeypatch, hub)
    write_model(tmp_path / "packages" / "a_model" / "weights")
    (tmp_path / "packages" / "a_model" / "__init__.py").write_text("raise AssertionError('it is not imported')")
    monkeypatch.syspath_prepend(str(tmp_path / "packages"))
    here = write_model(tmp_path / "here")
    monkeypatch.chdir(tmp_path)
    for name, folder in [
        *(("here", here), (str(here), here), ("some/model", hub["some/model"])),
        *(("a-model", tmp_path / "packages" / "a_model" / "weights"), ("small", hub["sentence-transformers/small"])),
    ]:
        assert model_folder(name, "") == str(folder)
        assert teacher_at(name, "") == Teacher(
            str(folder) if name == "here" else name, model_fingerprint(str(folder)), sentence_stand_in.SIZE
        )


@pytest.mark.parametrize("name", ["", "numpy", "empty", "./nowhere", "/nowhere", "no/where", "s3://bucket/model"])
def test_what_is_no_model_is_one_line(
    name: str, stand_in: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DupqError, match=f"^--teacher {name}: neither the folder of a .* Hugging Face hub") as caught:
        teacher_at(name, "--teacher ")
    assert "\n" not in str(caught.value)


def test_a_missing_package_and_a_damaged_model_are_one_line(
    stand_in: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = str(write_model(tmp_path / "broken", "broken"))
    with pytest.raises(DupqError, match=r"broken: not a readable sentence-transformers model \(no model\)$"):
        teacher_at(broken, "")
    monkeypatch.delitem(sys.modules, "sentence_transformers")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(DupqError, match=r"^--teacher x needs .* pip install 'dupq\[teacher\]'$"):
        teacher_at("x", "--teacher ")


def test_a_models_fingerprint_is_that_of_its_names_and_contents(tmp_path: Path) -> None:
    model = write_model(tmp_path / "model")
    first = model_fingerprint(str(model))
    assert first == model_fingerprint(str(model))
    assert 0 < first < 2**63
    (model / ".cache").mkdir()
    (model / ".cache" / "modules.json.metadata").write_text("1750000000.1")  # when it was downloaded
    assert model_fingerprint(str(model)) == first
    (model / "modules.json").rename(model / "other.json")
    assert model_fingerprint(str(model)) != first


def test_a_teacher_reads_the_title_and_the_beginning_of_the_body() -> None:
    body = "<p>See <a href='x'>this &amp; that</a> of</p><pre>int x;</pre>" + "word " * 100
    actual = teacher_texts(["Why  C++?", "No body", ""], [body, "", "\u4e2d" * 9_999], "removed")
    assert actual[0].split() == ["Why", "C++?", "See", "of", *["word"] * 62]
    assert actual[1] == "No body"
    assert set(actual[2].strip()) == {"\u4e2d"}
    assert len(actual[2]) < 3_000
    assert "int x;" in teacher_texts([""], [body], "kept")[0]


def test_cosines_are_those_of_numpy_and_there_are_none_without_vectors() -> None:
    random = np.random.default_rng(5)
    keys, vectors = np.arange(0, 90, 3), random.normal(size=(30, 8)).astype(np.float16)
    left, right = (random.choice(np.arange(90), 40_000) for _ in range(2))
    actual = cosines_of(keys[:20], vectors[:20], left, right)
    has_both = (left % 3 == 0) & (right % 3 == 0) & (left < 60) & (right < 60)
    assert (np.isnan(actual) == ~has_both).all()
    exact = np.einsum("ij,ij->i", *(vectors[side[has_both] // 3].astype(np.float64) for side in (left, right)))
    assert actual[has_both] == pytest.approx(exact, abs=1e-5)
    assert np.isnan(cosines_of(keys[:0], vectors[:0], left, right)).all()


def test_a_model_that_was_replaced_meanwhile_is_an_error(stand_in: None, tmp_path: Path) -> None:
    teacher = teacher_at(str(write_model(tmp_path / "model")), "")
    (tmp_path / "model" / "weights").write_text("other")
    with pytest.raises(DupqError, match="model: not the model that the run was begun with"):
        teacher_vectors(teacher, ["a text"], system.CPU)


def test_vectors_are_of_length_1(stand_in: None, tmp_path: Path) -> None:
    teacher = teacher_at(str(write_model(tmp_path / "model")), "")
    actual = teacher_vectors(teacher, ["flat bread", "bread bread"], system.CPU)
    assert actual.dtype == np.float16
    assert actual == pytest.approx(np.array([unit("flat bread"), unit("bread bread")]), abs=1e-3)


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """A model of two layers with random weights, by the package itself."""
    sentence_transformers, transformers = map(pytest.importorskip, ("sentence_transformers", "transformers"))
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghij", *(f"##{letter}" for letter in "abcdefghij")]
    base = tmp_path / "base"
    base.mkdir()
    (base / "vocab.txt").write_text("\n".join(words))
    transformers.set_seed(3)
    config = transformers.BertConfig(
        vocab_size=len(words), hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64
    )
    transformers.BertModel(config).save_pretrained(base)
    transformers.BertTokenizer(str(base / "vocab.txt")).save_pretrained(base)
    model = sentence_transformers.SentenceTransformer(str(base), device="cpu")  # and the mean of its last layer
    model.save(str(tmp_path / "tiny"))
    return tmp_path / "tiny"


def test_vectors_are_those_of_the_package_whatever_the_other_texts(tiny: Path) -> None:
    teacher = teacher_at(str(tiny), "")
    assert teacher.dimensions == 32
    random = np.random.default_rng(7)
    texts = [" ".join(random.choice([*"abcdefghij"], random.integers(1, 300))) for _ in range(40)]
    actual = teacher_vectors(teacher, texts, system.CPU)
    model = load_model(str(tiny))
    model.max_seq_length = 128
    expected = model.encode(texts, normalize_embeddings=True, show_progress_bar=False)
    assert actual.astype(np.float32) == pytest.approx(expected, abs=1e-3)
    for order in (np.arange(40)[::-1], np.arange(7)):
        assert (teacher_vectors(teacher, [texts[row] for row in order], system.CPU) == actual[order]).all()
    cut = [" ".join(text.split()[:126]) for text in texts]
    assert (teacher_vectors(teacher, cut, system.CPU) == actual).all()


def test_a_damaged_file_of_the_model_is_one_line(tiny: Path) -> None:
    weights = next(tiny.rglob("model.safetensors"))
    weights.write_bytes(weights.read_bytes()[:100])
    with pytest.raises(DupqError, match="not a readable sentence-transformers model") as caught:
        teacher_at(str(tiny), "--teacher ")
    assert "\n" not in str(caught.value)
    (tiny / "modules.json").write_text(json.dumps([]))
    with pytest.raises(DupqError, match="not a readable"):
        teacher_at(str(tiny), "--teacher ")
