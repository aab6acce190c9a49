"""A small valid world, of which each bad input damages one thing: tables, links, an encoder, an earlier run, a dump."""

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fabricated_run
import numpy as np
import pyarrow as pa
import safetensors.numpy
from fabricated_run import CS, TRAVEL

from dupq import storage
from dupq.encoders.encoding import build
from dupq.encoders.saved import DESCRIBED, SPLIT, Fitness, SavedEncoder, save
from dupq.settings import config
from dupq.settings.sections import EncoderSettings
from dupq.tables import LINKS
from dupq.text.questions import Vocabulary

Damage = Callable[[Path], None]  # of a world's folder
DELETE = object()  # in place of a value: the entry is removed
TRUTH = f"site\tquestion_id\trelated_id\tkind\n{CS}\t2\t1\trephrasing\n{CS}\t4\t3\tcopy\n"
PAIRS = f"left\tright\tlabel\n{CS}/1\t{CS}/2\t1\n{CS}/3\t{TRAVEL}/4\t0\n"
REVIEW_HEADING = "site_left\tquestion_id_left\tsite_right\tquestion_id_right\tverdict\n"
REVIEW = f"{REVIEW_HEADING}{CS}\t1\t{CS}\t2\tsame\n{CS}\t1\t{CS}\t3\tdifferent\n"
ROW = '  <row Id="{}" PostTypeId="1" Title="How to bake" Body="&lt;p&gt;Bread&lt;/p&gt;" Tags="|bread|" />\n'
XML = '<?xml version="1.0" encoding="utf-8"?>\n<posts>\n' + ROW.format(1) + ROW.format(2) + "</posts>\n"


def build_world(folder: Path) -> None:
    """Everything that a job may be given."""
    fabricated_run.build_run(str(folder))
    rows = [{"question_id": 2, "related_id": 1, "link_type": "duplicate"}]
    for site in (CS, TRAVEL):
        table = pa.Table.from_pylist(rows, LINKS)
        storage.write_table(str(folder / "links" / f"site={site}" / "part-00000.parquet"), table, LINKS)
    _save_encoder(folder / "encoder")
    (folder / "truth.tsv").write_text(TRUTH)
    (folder / "pairs.tsv").write_text(PAIRS)
    (folder / "review.tsv").write_text(REVIEW)
    shutil.copy(Path(storage.__file__).parent / "clusters" / "prior.json", folder / "prior.json")
    (folder / "dump" / "bread.example.com").mkdir(parents=True)
    (folder / "dump" / "bread.example.com" / "Posts.xml").write_text(XML)
    (folder / "table.csv").write_text("id,title\n1,How to bake\n")
    # what an earlier attempt left: a bad input must not cost it
    (folder / "out").mkdir()
    (folder / "out" / "kept.txt").write_text("kept")


def _save_encoder(folder: Path) -> None:
    encoder = EncoderSettings.parse({"kind": "cnn", "units": 4, "window": 3})
    settings = config.load("bogdanova-max", ["word_vectors.dimensions=8"]).changed(encoder=encoder)
    vocabulary = Vocabulary(["how", "to", "bake", "bread"], settings.text)
    vectors = np.random.default_rng(1).normal(size=(len(vocabulary), 8)).astype(np.float32)
    network = build(encoder, vectors, seed=1).eval()
    storage.write_table(str(folder / "split.parquet"), SPLIT.empty_table(), SPLIT)
    found = Fitness(questions=100, unknown_words=0.01, bodies_found=0.9)
    save(str(folder), SavedEncoder(network, vocabulary, settings, 0.5, found, {}), "none")


def files_of(folder: Path) -> dict[str, str]:
    """A digest of every file, and every folder: what must be the same afterwards."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "folder"
        for path in sorted(folder.rglob("*"))
    }


def removed(place: str) -> Damage:
    def damage(world: Path) -> None:
        path = world / place
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()

    return damage


def content(place: str, new: bytes | str) -> Damage:
    def damage(world: Path) -> None:
        path = world / place
        if path.is_dir():
            shutil.rmtree(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(new if isinstance(new, bytes) else new.encode())

    return damage


def cut(place: str) -> Damage:
    """The second half of a file is lost."""
    return lambda world: (world / place).write_bytes(
        (world / place).read_bytes()[: (world / place).stat().st_size // 2]
    )


def entry(place: str, path: str, value: object) -> Damage:
    """An entry of a JSON file, named with dots between, has another value, or none."""

    def damage(world: Path) -> None:
        whole = json.loads((world / place).read_text())
        inner: Any = whole
        *outer, last = path.split(".")
        for name in outer:
            inner = inner[name]
        if value is DELETE:
            del inner[last]
        else:
            inner[last] = value
        (world / place).write_text(json.dumps(whole))
        if place == "encoder/encoder.json":
            _seal(world / "encoder")

    return damage


def _seal(folder: Path) -> None:
    """The fingerprint that goes with an encoder's files, as if it had been saved so."""
    described = json.loads((folder / "encoder.json").read_text())
    if "fingerprint" not in described:
        return
    digest = hashlib.sha256()
    parts = {name: value for name, value in described.items() if name in DESCRIBED}
    files = [(folder / name).read_bytes() for name in ("model.safetensors", "vocabulary.txt")]
    for part in (*files, storage.json_bytes(parts)):
        digest.update(len(part).to_bytes(8, "little") + part)
    if isinstance(described["fingerprint"], str):
        (folder / "encoder.json").write_text(json.dumps({**described, "fingerprint": digest.hexdigest()}))


def weights(change: Callable[[dict[str, np.ndarray]], None]) -> Damage:
    """An encoder that was saved with other weights."""

    def damage(world: Path) -> None:
        tensors = safetensors.numpy.load_file(world / "encoder" / "model.safetensors")
        change(tensors)
        safetensors.numpy.save_file(tensors, world / "encoder" / "model.safetensors")
        _seal(world / "encoder")

    return damage


def table(place: str, change: Callable[[pa.Table], pa.Table]) -> Damage:
    """A Parquet file with other rows or columns."""

    def damage(world: Path) -> None:
        found = change(storage.read_table(str(world / place)))
        storage.write_table(str(world / place), found, found.schema.remove_metadata())

    return damage


def without(place: str, column: str) -> Damage:
    return table(place, lambda found: found.drop_columns([column]))


def with_values(place: str, column: str, values: list[object], kind: pa.DataType | None = None) -> Damage:
    """The first rows of a column have other values, and maybe all of it another type."""

    def change(found: pa.Table) -> pa.Table:
        old = found[column].to_pylist()
        given = values * len(old) if kind else [*values, *old[len(values) :]]
        new = pa.array(given, kind or found[column].type)
        return found.set_column(found.column_names.index(column), pa.field(column, new.type), new)

    return table(place, change)
