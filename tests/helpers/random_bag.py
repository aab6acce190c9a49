"""An encoder that knows a few words, each with a random vector."""

from pathlib import Path

import numpy as np
from oracles.slow_ids import slow_ids

from dupq.encoders.encoding import build
from dupq.encoders.saved import Fitness, SavedEncoder, save
from dupq.settings import config
from dupq.text.questions import Vocabulary

WORDS = [f"w{number}" for number in range(50)]


def saved_encoder(folder: Path, title_times: int = 3) -> str:
    """A bag of random word vectors that reads titles so many times."""
    settings = config.load()
    settings = settings.changed(text=settings.text.changed(title_times=title_times))
    vocabulary = Vocabulary(WORDS, settings.text)
    vectors = np.random.default_rng(1).normal(size=(len(vocabulary), 16)).astype(np.float32)
    network = build(settings.encoder, vectors, seed=1)
    network.prepare([slow_ids(vocabulary, word, 512) for word in WORDS], [])
    network.tune(None)
    fitness = Fitness(questions=0, unknown_words=0.0, bodies_found=None)
    save(str(folder), SavedEncoder(network.eval(), vocabulary, settings, None, fitness, {}), "run")
    return str(folder)
