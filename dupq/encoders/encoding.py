"""Encoding: texts to embeddings in float16, one row a text, in the order of the texts, by the network that settings
name, new or from saved weights.
"""

import functools
import importlib
import inspect
import pkgutil
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, get_args

import numpy as np
import torch
from scipy import sparse

from dupq.encoders import networks
from dupq.encoders.bags import SHORTEST, WORDS_AT_ONCE, Encoded, flat_bags, pieces, unit_bags
from dupq.encoders.protocol import Batch, Embedding, Encoder, NetworkSettings, batches
from dupq.errors import DupqError, SettingError
from dupq.settings import config
from dupq.settings.config import Settings
from dupq.settings.sections import EncoderSettings
from dupq.system import papers
from dupq.text.token_arrays import TokenIds


@functools.cache
def kinds() -> dict[str, type[NetworkSettings]]:
    """The settings of each kind of network, with those of the papers where they are installed."""
    found = {}
    for package in (networks, *papers("networks")):
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            for _, part in inspect.getmembers(importlib.import_module(module.name), inspect.isclass):
                if issubclass(part, NetworkSettings) and not inspect.isabstract(part):
                    found.update(dict.fromkeys(get_args(part.model_fields["kind"].annotation), part))
    return dict(sorted(found.items()))


def network_settings(given: EncoderSettings) -> NetworkSettings:
    """The settings of the network that `given` names, with the defaults of what it does not give.

    Raises SettingError for a kind that does not exist, a setting that its network does not read, and a wrong value.
    """
    there = kinds()
    if given.kind not in there:
        raise SettingError(f"setting 'encoder.kind' is {given.kind!r}; allowed: {', '.join(map(repr, there))}")
    of_kind = there[given.kind]
    for name in given.model_extra or {}:
        if name not in of_kind.model_fields:
            read = ", ".join(of_kind.model_fields)
            raise SettingError(f"setting 'encoder.{name}': encoder.kind={given.kind} does not read it; it reads {read}")
    return of_kind.read(given.model_dump(), "encoder")


def learns_without_links(settings: Settings) -> bool:
    """Whether an encoder takes anything from an archive without known duplicates."""
    needs_links = network_settings(settings.encoder).needs_links
    return not needs_links or settings.title_body.epochs > 0 or bool(settings.teacher.encoder)


def presets_without_links() -> list[str]:
    """The presets of which that is so, by name."""
    return [name for name in config.preset_names() if learns_without_links(config.load(name))]


def counts_training_texts_only(settings: Settings) -> bool:
    """Whether an encoder's sums over texts are of those outside the development and the test part."""
    return getattr(network_settings(settings.encoder), "taken_from", None) == "training"


def read_by_its_kind(saved: EncoderSettings) -> EncoderSettings:
    """`saved` without what its network does not read: encoders once held the settings of all kinds."""
    given = saved.model_dump()
    fields = kinds()[saved.kind].model_fields if saved.kind in kinds() else given
    return EncoderSettings.read({name: value for name, value in given.items() if name in fields})


def build(settings: EncoderSettings, word_vectors: np.ndarray, seed: int) -> Encoder:
    """A fresh network over `word_vectors` (float32, one row an id of the vocabulary), the same for a seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return network_settings(settings).network(word_vectors)


def rebuild(settings: EncoderSettings, tensors: Mapping[str, np.ndarray], place: str) -> Encoder:
    """The network that `tensors` (by name) are the weights of.

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


class _Bags(NamedTuple):
    """The bags of some texts, one after the other: words ascend, weights are not 0."""

    texts: np.ndarray
    sizes: np.ndarray  # words of each
    words: np.ndarray
    weights: np.ndarray


def encode(network: Encoder, texts: TokenIds | Sequence[np.ndarray], rows: int = 0) -> Encoded:
    """Embeddings of token ids (int32), on the device that the network is on.

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
        flat = _flat(network, texts) if device.type == "cpu" else None
        if flat is not None:
            encoded = Encoded(flat, _words(network, texts))
        else:
            encoded = _in_batches(network, texts, rows, device)
    if np.isnan(encoded.vectors).any():
        raise DupqError("the encoder gives embeddings that are no numbers; train it anew, at a lower learning rate")
    return encoded


def _flat(network: Encoder, texts: TokenIds) -> np.ndarray | None:
    """The vectors of texts without padding, many at a time; None if the network cannot do that."""
    vectors = np.zeros((len(texts), network.dimensions), np.float16)
    for some in pieces(texts.offsets, WORDS_AT_ONCE):
        dense = network.dense_of(texts[some])
        if dense is None:
            return None
        vectors[some] = _rounded(network, dense).numpy()
    return vectors


def _words(network: Encoder, texts: TokenIds) -> sparse.csr_array | None:
    """The bags of words alone, of many texts at a time."""
    if not network.is_lexical:
        return None
    columns = int(texts.ids.max(initial=0)) + 1
    parts = [_flat_bags(network, texts[some], columns) for some in pieces(texts.offsets, WORDS_AT_ONCE)]
    return sparse.vstack(parts, format="csr") if parts else _matrix([])


def _flat_bags(network: Encoder, texts: TokenIds, columns: int) -> sparse.csr_array:
    words, counts = flat_bags(texts)
    weights = network.bag_weights(torch.from_numpy(words.ids), torch.from_numpy(counts)).float().numpy()
    return unit_bags(words, weights, columns)


def _in_batches(network: Encoder, texts: TokenIds, rows: int, device: torch.device) -> Encoded:
    vectors = np.zeros((len(texts), network.dimensions), np.float16)
    bags: list[_Bags] = []
    started = (
        _copied(network, batch, network(_moved(batch.ids, device), _moved(batch.lengths, device)))
        for batch in _batches(texts, rows, device)
    )
    for copied in _one_ahead(started):
        if copied.event is not None:
            copied.event.synchronize()
        vectors[copied.texts] = copied.dense.numpy()[: len(copied.texts)]
        if network.is_lexical:
            bags.append(_bags_of(copied.words.numpy(), copied.weights.numpy(), copied.texts))
    return Encoded(vectors, _matrix(bags) if network.is_lexical else None)


def _batches(texts: TokenIds, rows: int, device: torch.device) -> Iterator[Batch]:
    if not rows and device.type != "cpu":
        return batches(texts, _GPU_ROWS, _GPU_IDS)
    return batches(texts, rows or _ROWS)


class _Copied(NamedTuple):
    """What is kept of a batch, on the host once `event` has happened."""

    texts: np.ndarray
    dense: torch.Tensor
    words: torch.Tensor
    weights: torch.Tensor
    event: torch.cuda.Event | None


def _copied(network: Encoder, batch: Batch, found: Embedding) -> _Copied:
    """Queue the copies of a batch right behind it, in front of the next one."""
    nothing = torch.zeros(0)
    words, weights = found.bag if network.is_lexical else (nothing, nothing)
    kept = (_rounded(network, found.dense), words, _rounded_weights(weights))
    dense, words, weights = (tensor.to("cpu", non_blocking=True) for tensor in kept)  # into pinned memory
    event = torch.cuda.Event() if found.dense.is_cuda else None
    if event is not None:
        event.record()
    return _Copied(batch.texts, dense, words, weights, event)


def _one_ahead(started: Iterator[_Copied]) -> Iterator[_Copied]:
    """Yield each batch after the next one has started: a GPU works while the host keeps what came back."""
    waiting: list[_Copied] = []
    for item in started:
        yield from waiting
        waiting = [item]
    yield from waiting


def _moved(values: np.ndarray, device: torch.device) -> torch.Tensor:
    """`values` on the device; copied to a GPU from pinned memory, without waiting for the copy."""
    tensor = torch.from_numpy(values)
    return tensor if device.type == "cpu" else tensor.pin_memory().to(device, non_blocking=True)


def _rounded(network: Encoder, dense: torch.Tensor) -> torch.Tensor:
    dense = dense.float()
    if network.kind == "cosine":
        dense = _of_length_one(dense)
    return dense.clamp(-_LARGEST, _LARGEST).half()


def _rounded_weights(weights: torch.Tensor) -> torch.Tensor:
    return _of_length_one(weights.float()).half()


def _of_length_one(rows: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.normalize(rows, dim=-1, eps=SHORTEST)


def _bags_of(words: np.ndarray, weights: np.ndarray, texts: np.ndarray) -> _Bags:
    """The bags (B, W) of a batch, of which the first rows are `texts`."""
    rows, places = np.nonzero(weights[: len(texts)])
    sizes = np.bincount(rows, minlength=len(texts))
    return _Bags(texts, sizes, words[rows, places], weights[rows, places].astype(np.float32))


def _matrix(bags: list[_Bags]) -> sparse.csr_array:
    """The bags of all texts, in the order of the texts."""
    if not bags:
        return sparse.csr_array((0, 1), dtype=np.float32)
    texts, sizes, words, weights = (np.concatenate(parts) for parts in zip(*bags, strict=True))
    found = TokenIds(np.arange(len(words)), np.concatenate([[0], np.cumsum(sizes)]))
    found = found.take(np.argsort(texts))
    columns = int(words.max(initial=0)) + 1
    return sparse.csr_array((weights[found.ids], words[found.ids], found.offsets), (len(texts), columns))
