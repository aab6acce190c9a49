"""The network before its first step: word vectors, and what an encoder takes from the archive."""

from functools import partial

from dupq import storage
from dupq.execution.units import Counts
from dupq.runs.keys import all_keys, read_keys
from dupq.runs.training_layout import TrainingFiles
from dupq.settings.config import Settings
from dupq.stages.training.known_pairs import read_known
from dupq.stages.training.token_files import Sequences, picked_files, picked_texts, read_examples, read_vocabulary
from dupq.stages.training.words import Corpus, frequent_words, word_files, written_counts
from dupq.tables import TEXTS
from dupq.text.keys import Sites
from dupq.training.pairs import positives


def make_start(files: TrainingFiles, site_names: list[str], names: list[str], settings: Settings) -> Counts:
    """Word vectors, and the network over them, initialised from the archive (Encoder.prepare)."""
    from dupq.encoders.kinds import counts_training_texts_only
    from dupq.encoders.saved import weights
    from dupq.stages.training.teacher import word_teacher
    from dupq.training.start import new_network
    from dupq.training.word_vectors import vectors_of, with_start
    from dupq.training.written_words import file_of_written_words

    storage.write_table(files.measured, picked_texts(picked_files(files), read_keys(files.measured_keys)), TEXTS)
    known = read_known(files, Sites(site_names), all_keys(files.texts), settings.training)
    counted, written = word_files(files), written_counts(files, settings)
    taught = word_teacher(next(iter(settings.teacher.encoder), ""), written, settings)
    from_file = None
    if settings.word_vectors.file_words == "written":
        from_file = partial(file_of_written_words, written=written, settings=settings)
    frequent = with_start(frequent_words(counted, settings.word_vectors.words), settings.word_vectors)
    vectors = vectors_of(frequent, Corpus(counted), settings.word_vectors, settings.training.seed, taught, from_file)
    vocabulary = read_vocabulary(files, settings)
    sequences = read_examples(files)
    links = positives(known.links, known.split, settings.training).pairs
    pairs = [(sequences[left], sequences[right]) for left, right in links.tolist()]
    held_out = known.split.questions_of("development", "test") if counts_training_texts_only(settings) else None
    network = new_network(vocabulary, vectors.table, Sequences(files, names, held_out), pairs, settings)
    storage.write_bytes(files.start, weights(network))
    return {"rows_out": len(vectors.words), **vectors.caps}
