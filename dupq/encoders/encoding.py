"""Encoding: texts to embeddings in float16, one row a text, in the order of the texts, by the network that settings
name, new or from saved weights.
"""

import functools
from collections.abc import Mapping, Sequence
from typing import get_args

import numpy as np
import torch
from scipy import sparse

from dupq.encoders.bags import SHORTEST, WORDS_AT_ONCE, Encoded, flat_bags, pieces, unit_bags
from dupq.encoders.pretrained import PretrainedSettings
from dupq.encoders.protocol import Encoder, NetworkSettings, batches
from dupq.encoders.word_bag import WordBagCNNSettings, WordBagSettings
from dupq.errors import DupqError, SettingError
from dupq.settings import config
from dupq.settings.config import Settings
from dupq.settings.sections import EncoderSettings
from dupq.system import papers
from dupq.text.token_arrays import TokenIds


@functools.cache
def kinds() -> dict[str, type[NetworkSettings]]:
    """Return the settings of each kind of network, with those of the papers where they are installed."""
    found: list[type[NetworkSettings]] = [WordBagSettings, WordBagCNNSettings, PretrainedSettings]
    for networks in papers("networks"):
        found += networks.KINDS
    by_name = {name: kind for kind in found for name in get_args(kind.model_fields["kind"].annotation)}
    return dict(sorted(by_name.items()))


def network_settings(given: EncoderSettings) -> NetworkSettings:
    """Return the settings of the network that `given` names, with the defaults of what it does not give.

    Raises SettingError for a kind that does not exist, a setting that its network does not read, and a wrong value.
    """
    there = kinds()
    if given.kind not in there:
        more = "" if papers("networks") else "; the papers' networks are in papers/"
        raise SettingError(f"setting 'encoder.kind' is {given.kind!r}; allowed: {', '.join(map(repr, there))}{more}")
    of_kind = there[given.kind]
    for name in given.model_extra or {}:
        if name not in of_kind.model_fields:
            read = ", ".join(of_kind.model_fields)
            raise SettingError(f"setting 'encoder.{name}': encoder.kind={given.kind} does not read it; it reads {read}")
    return of_kind.read(given.model_dump(), "encoder")


def learns_without_links(settings: Settings) -> bool:
    """Return whether an encoder takes anything from an archive without known duplicates."""
    needs_links = network_settings(settings.encoder).needs_links
    return not needs_links or settings.title_body.epochs > 0 or bool(settings.teacher.encoder)


def presets_without_links() -> list[str]:
    """Return the presets whose encoders do, by name."""
    return [name for name in config.preset_names() if learns_without_links(config.load(name))]


def counts_training_texts_only(settings: Settings) -> bool:
    """Return whether an encoder's sums over texts are of those outside the development and the test part."""
    return getattr(network_settings(settings.encoder), "taken_from", None) == "training"


def build(settings: EncoderSettings, word_vectors: np.ndarray, seed: int) -> Encoder:
    """Return a fresh network over `word_vectors` (float32, one row an id of the vocabulary), the same for a seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return network_settings(settings).network(word_vectors)


def rebuild(settings: EncoderSettings, tensors: Mapping[str, np.ndarray], place: str) -> Encoder:
    """Return the network that `tensors` (by name) are the weights of.

    Raises DupqError naming `place` if they do not fit.
    """
    try:
        network = build(settings, tensors["words.weight"], seed=0)
        wanted = {name: value.dtype for name, value in network.state_dict().items()}
        given = {name: torch.from_numpy(value) for name, value in tensors.items()}
        network.load_state_dict(given)
        wrong = [name for name, value in given.items() if value.dtype != wanted[name]]
        if wrong:
            raise RuntimeError(f"'{wrong[0]}' is {given[wrong[0]].dtype}, not {wanted[wrong[0]]}")
    except (KeyError, RuntimeError, TypeError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise DupqError(f"{place}: not the weights of a network of kind {settings.kind} ({reason})") from error
    return network.eval()


_LARGEST = float(np.finfo(np.float16).max)
_ROWS = 64  # of a batch on a CPU
_GPU_ROWS, _GPU_IDS = 1 << 14, 1 << 18  # at most: 2,048 texts of 128 words, 630 MB for 600 float32 of each word


def encode(network: Encoder, texts: TokenIds | Sequence[np.ndarray], rows: int = 0) -> Encoded:
    """Return embeddings of token ids (int32), on the device that the network is on.

    Vectors that are scored by cosine, and bags of words, have length 1 before they are rounded to float16. The
    row of an empty text is zero. On a CPU texts are encoded without padding where the network can; otherwise `rows` is
    the size of a batch and bounds memory; 0: 64, on a GPU as many as have 262,144 words with padding, 16,384 at most.
    On a GPU products are of bfloat16.
    Raises DupqError if the network gives NaN.
    """
    texts = texts if isinstance(texts, TokenIds) else TokenIds.of(texts)
    device = next(network.parameters()).device
    network.eval()
    with torch.inference_mode(), torch.autocast("cuda", torch.bfloat16, enabled=device.type == "cuda"):
        vectors = _flat(network, texts) if device.type == "cpu" else None
        if vectors is None:
            vectors = _in_batches(network, texts, rows, device)
        encoded = Encoded(vectors, _bags(network, texts, device) if network.is_lexical else None)
    if np.isnan(encoded.vectors).any():
        raise DupqError("the encoder gives embeddings that are no numbers; train it anew, at a lower learning rate")
    return encoded


def _flat(network: Encoder, texts: TokenIds) -> np.ndarray | None:
    """Return the vectors of texts without padding, many at a time; None if the network cannot do that."""
    vectors = np.zeros((len(texts), network.dimensions), np.float16)
    for some in pieces(texts.offsets, WORDS_AT_ONCE):
        dense = network.dense_of(texts[some])
        if dense is None:
            return None
        vectors[some] = _rounded(network, dense).numpy()
    return vectors


def _bags(network: Encoder, texts: TokenIds, device: torch.device) -> sparse.csr_array:
    """Return the bags of words of texts, many at a time."""
    columns, bags = int(texts.ids.max(initial=0)) + 1, [sparse.csr_array((0, 1), dtype=np.float32)]
    for some in pieces(texts.offsets, WORDS_AT_ONCE):
        words, counts = flat_bags(texts[some])
        ids, times = torch.from_numpy(words.ids).to(device), torch.from_numpy(counts).to(device)
        bags.append(unit_bags(words, network.bag_weights(ids, times).float().cpu().numpy(), columns))
    return sparse.vstack(bags[1:], format="csr") if bags[1:] else bags[0]


def _in_batches(network: Encoder, texts: TokenIds, rows: int, device: torch.device) -> np.ndarray:
    """Return the vectors of texts, padded; they are read back from a GPU at the end, so that it never waits."""
    vectors = torch.zeros(len(texts), network.dimensions, dtype=torch.float16, device=device)
    on_gpu = not rows and device.type != "cpu"
    for batch in batches(texts, _GPU_ROWS, _GPU_IDS) if on_gpu else batches(texts, rows or _ROWS):
        found = network(_moved(batch.ids, device), _moved(batch.lengths, device))
        vectors[_moved(batch.texts, device)] = _rounded(network, found.dense)[: len(batch.texts)]
    return vectors.cpu().numpy()


def _moved(values: np.ndarray, device: torch.device) -> torch.Tensor:
    """Return `values` on the device; copied to a GPU from pinned memory, without waiting for the copy."""
    tensor = torch.from_numpy(values)
    return tensor if device.type == "cpu" else tensor.pin_memory().to(device, non_blocking=True)


def _rounded(network: Encoder, dense: torch.Tensor) -> torch.Tensor:
    dense = dense.float()
    if network.kind == "cosine":
        dense = torch.nn.functional.normalize(dense, dim=-1, eps=SHORTEST)
    return dense.clamp(-_LARGEST, _LARGEST).half()
