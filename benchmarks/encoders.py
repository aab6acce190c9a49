"""How good each preset's encoder is on real archives, beside BM25 and a sentence transformer.

    python benchmarks/encoders.py [--quick | --short] [--json FILE] [--sets travel quora] [--presets NAME …]
        [--work FOLDER]

- `travel`: Travel Stack Exchange, title and body, 4,919 questions, trained and measured on its duplicate links;
- `cs`: Computer Science Stack Exchange, title and body, 6,118 questions, likewise;
- `travel-titles`, `cs-titles`: the same, and nothing is read but the titles;
- `quora`: 103,765 questions of about 11 words, trained and measured on 63,831 labelled pairs, mostly positives.

With --model FOLDER a sentence-transformers model is measured as it is, `sentence-transformers`, and taken as the
teacher of `dupq-distilled` and `bow-cnn-distilled` (needs `pip install '.[reranker]'`).

Every preset is trained by the jobs' own functions with its own settings, unless `--epochs`, `--set` or `--short` change
them, and measured as `jobs/evaluate.py` does: test questions, of sets of duplicates that no training saw,
against the whole archive. All systems of a data set are asked the same questions; `intervals` of 95 per cent are by
bootstrap over these. `training_s` are the seconds of all
stages of training, with one worker; on quora reading and word vectors are most of it for the presets that learn
nothing else.

What is measured stays in the work folder, one file a system, and is not measured again unless its settings are other
ones: a benchmark that was cut off goes on. Remove the folder after a change of code. With --json the figures go to
FILE. Reads DUPQ_SHARED_DATA (default: ../shared/data).
"""

import argparse
import json
import os
import platform
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dupq import storage
from dupq.encoders.saved import read_description
from dupq.job import cluster
from dupq.pipelines.evaluate import EvaluationJob, evaluate
from dupq.pipelines.ingest import IngestJob, ingest
from dupq.pipelines.train import TrainingJob, train
from dupq.settings import config
from dupq.settings.config import Settings

BASELINES = ("bm25",)
MODEL, TAUGHT = "sentence-transformers", ("dupq-distilled", "bow-cnn-distilled")
SETS = ("travel", "travel-titles", "cs", "cs-titles", "quora")
TITLES = "text.fields=title"
MEASURES = ("accuracy_at_1", "accuracy_at_5", "accuracy_at_10", "map")
QUICK = ("training.epochs=1", "word_vectors.epochs=1", "training.pairs=100")
# With --short, of every preset whose name begins so: by themselves they would take hours on two cores.
SHORT = {
    "bogdanova": ("training.pairs=1000", "training.epochs=3"),
    "dos-santos": ("training.pairs=1000", "training.epochs=2"),
    "othman": ("training.pairs=3000", "training.epochs=10"),
    "dupq-distilled": ("teacher.epochs=16",),
    "bow-cnn-distilled": ("teacher.epochs=8",),
}


@dataclass(frozen=True)
class DataSet:
    """An archive to be ingested, and its known duplicates: the links table, or a file of pairs."""

    name: str
    dump: Path
    site: str
    pairs: Path | None = None
    assignments: tuple[str, ...] = ()  # of every system


@dataclass(frozen=True)
class Archive:
    """An ingested data set: URIs, and the settings that all systems have there."""

    questions: str
    links: str | None
    pairs: str | None
    assignments: tuple[str, ...]

    @property
    def known(self) -> str:
        """Where its known duplicates are."""
        return str(self.links or self.pairs)


def main() -> None:
    """Measure what is not measured yet, print a table, write the JSON and the chart."""
    options = arguments()
    assignments = [*options.set, *([f"training.epochs={options.epochs}"] if options.epochs else [])]
    assignments += QUICK if options.quick else []
    cluster.connect("local")
    figures: dict[str, Any] = {}
    for data_set in data_sets(options.data):
        if data_set.name in options.sets:
            figures[data_set.name] = measure(data_set, options, assignments)
            print(table(data_set.name, figures[data_set.name]), flush=True)
    if options.json:
        about = {"date": time.strftime("%Y-%m-%d"), "machine": f"{platform.machine()}, {os.cpu_count()} cores"}
        Path(options.json).write_text(json.dumps({**figures, **about}, indent=2) + "\n")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--quick", action="store_true", help="one epoch on a hundred pairs: does it run?")
    length.add_argument("--short", action="store_true", help="fewer pairs and passes where a preset takes long")
    parser.add_argument("--json", metavar="FILE", help="where the figures go")
    parser.add_argument(
        "--sets", nargs="+", metavar="NAME", choices=SETS, default=list(SETS), help="of %(choices)s; default: all"
    )
    names = [name for name in config.preset_names() if not needs_more(config.load(name))]
    parser.add_argument(
        "--presets",
        nargs="*",
        metavar="NAME",
        choices=config.preset_names(),
        default=names,
        help=f"default: all that need nothing else, and with --model {', '.join((MODEL, *TAUGHT))} besides",
    )
    parser.add_argument("--model", metavar="FOLDER", help=f"of {MODEL}, and the teacher of {' and '.join(TAUGHT)}")
    parser.add_argument("--epochs", type=int, metavar="N", help="of training, in place of each preset's own")
    parser.add_argument(
        "--set", action="append", metavar="SECTION.NAME=VALUE", default=[], help="a setting of all; may be repeated"
    )
    parser.add_argument("--work", type=Path, metavar="FOLDER", default=Path("out/encoders"), help="goes on here")
    shared = os.environ.get("DUPQ_SHARED_DATA", Path(__file__).parents[2] / "shared" / "data")
    parser.add_argument("--data", default=shared, type=Path, help="the folder of data (default: %(default)s)")
    options = parser.parse_args()
    if options.model and options.presets == names:
        options.presets = [*names, MODEL, *TAUGHT]
    if not options.model and {MODEL, *TAUGHT} & set(options.presets):
        parser.error(f"{', '.join((MODEL, *TAUGHT))} need --model")
    return options


def needs_more(settings: Settings) -> bool:
    """Whether a preset needs a model or a teacher that does not come with dupq."""
    return settings.encoder.kind == "sentence_transformers" or settings.word_vectors.algorithm == "teacher"


def data_sets(data: Path) -> list[DataSet]:
    quora = data / "quora"
    return [
        *of_site("travel", data / "dumps" / "travel.stackexchange.com.7z"),
        *of_site("cs", data / "dumps" / "cs.stackexchange.com.7z"),
        DataSet("quora", quora / "questions.tsv.xz", "quora", quora / "pairs.tsv"),
    ]


def of_site(name: str, dump: Path) -> tuple[DataSet, DataSet]:
    """A dump, read whole and by its titles."""
    site = dump.stem
    return DataSet(name, dump, site), DataSet(f"{name}-titles", dump, site, assignments=(TITLES,))


def measure(data_set: DataSet, options: argparse.Namespace, assignments: list[str]) -> dict[str, Any]:
    """The figures of the baselines and of each preset, from the work folder where they are there."""
    work, presets = options.work / data_set.name, options.presets
    archive = ingested(data_set, work)
    figures: dict[str, Any] = {}
    missing = [name for name in BASELINES if not is_done(work / f"{name}.json", [])]
    if missing:
        say(f"{data_set.name}: {', '.join(BASELINES)}")
        for name, measures in baselines(archive, work).items():
            keep(work / f"{name}.json", measures)
    for preset in presets:
        place = work / f"{preset}.json"
        its_own = [*(shorter(preset) if options.short else ()), *assignments, *of_model(preset, options, work)]
        if not is_done(place, its_own):
            say(f"{data_set.name}: {preset}")
            keep(place, trained(archive, preset, its_own, work / preset))
    for name in (*BASELINES, *presets):
        figures[name] = json.loads((work / f"{name}.json").read_text())
    return figures


def shorter(preset: str) -> tuple[str, ...]:
    """The settings by which a preset is trained in minutes."""
    return next((settings for name, settings in SHORT.items() if preset.startswith(name)), ())


def of_model(preset: str, options: argparse.Namespace, work: Path) -> list[str]:
    """The settings by which a preset finds its model or its teacher."""
    if preset == MODEL:
        return [f"encoder.model={options.model}"]
    return [f"teacher.encoder={(work / MODEL / 'encoder').absolute()}"] if preset in TAUGHT else []


def is_done(place: Path, assignments: list[str]) -> bool:
    return place.exists() and json.loads(place.read_text())["set"] == assignments


def keep(place: Path, measures: dict[str, Any]) -> None:
    storage.write_json(str(place.absolute()), measures)
    say("  " + ", ".join(f"{name} {value}" for name, value in measures.items()))


def ingested(data_set: DataSet, work: Path) -> Archive:
    folder = str((work / "archive").absolute())
    ingest(IngestJob((str(data_set.dump),), folder, data_set.site))
    links = None if data_set.pairs else f"{folder}/links"
    pairs = str(data_set.pairs) if data_set.pairs else None
    return Archive(f"{folder}/questions", links, pairs, data_set.assignments)


def trained(archive: Archive, preset: str, assignments: list[str], work: Path) -> dict[str, Any]:
    """Train a preset's encoder and measure it."""
    encoder, output = str((work / "encoder").absolute()), str((work / "evaluation").absolute())
    pairs = (archive.pairs,) if archive.pairs else ()
    settings = (*archive.assignments, *assignments)
    run = train(TrainingJob(archive.questions, archive.links, encoder, preset, settings, 1, pairs))
    evaluate(EvaluationJob(archive.questions, archive.known, output, encoder))
    known = storage.read_json(f"{output}/metrics.json")
    seconds = {record["name"]: record["seconds"] for record in run.records}
    return {
        **figures_of(known, "encoder"),
        "training_s": round(sum(seconds.values()), 1),
        "fit_s": round(seconds["fit"], 1),
        "epochs": len(read_description(str(encoder))["metrics"]["learning_curve"]),
        "set": assignments,
    }


def baselines(archive: Archive, work: Path) -> dict[str, dict[str, Any]]:
    """The figures of the systems that learn nothing, on the questions that the presets are asked."""
    output = str((work / "baselines").absolute())
    evaluate(EvaluationJob(archive.questions, archive.known, output, assignments=archive.assignments))
    known = storage.read_json(f"{output}/metrics.json")
    return {name: {**figures_of(known, name), "training_s": 0.0, "set": []} for name in BASELINES}


def figures_of(known: dict[str, Any], system: str) -> dict[str, Any]:
    measured, pairs = known["retrieval"][system], known["balanced_pairs"]
    recalls = {name: value for name, value in measured.items() if name.startswith("recall")}
    return {
        **{name: round(measured[name], 4) for name in MEASURES},
        **{name: round(value, 4) for name, value in recalls.items()},
        "intervals": {name: [round(end, 4) for end in ends] for name, ends in known["intervals"][system].items()},
        "pair_accuracy": round(pairs[system], 4),
        "test_queries": known["test_queries"],
        "test_pairs": pairs["pairs"],
    }


def table(name: str, systems: dict[str, Any]) -> str:
    columns = {**dict.fromkeys((*MEASURES, "pair_accuracy"), 100), "training_s": 1}
    rows = [f"{name:22}" + "".join(f"{column:>16}" for column in columns)]
    for system, measures in systems.items():
        cells = (f"{scale * measures[column]:16.1f}" for column, scale in columns.items())
        rows.append(f"{system:22}" + "".join(cells))
    return "\n".join(rows)


def say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    main()
