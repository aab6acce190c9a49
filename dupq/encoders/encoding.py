"""Networks by the names that settings give them, new or from saved weights, and encoding with them: token ids to
embeddings in float16, one row per text.
"""

import functools
from collections.abc import Mapping, Sequence
from typing import get_args

import numpy as np
import torch
from scipy import sparse

from dupq.encoders import on_device
from dupq.encoders.bags import SHORTEST, WORDS_AT_ONCE, Encoded, batch_slices, flat_bags, unit_bags
from dupq.encoders.on_device import DeviceTexts, moved
from dupq.encoders.pretrained import PretrainedSettings
from dupq.encoders.protocol import Encoder, NetworkSettings, batches
from dupq.encoders.word_bag import WordBagSettings
from dupq.errors import DupqError, SettingError
from dupq.neighbours.embeddings import COSINE
from dupq.settings import config
from dupq.settings.config import Settings
from dupq.settings.sections import EncoderSettings
from dupq.system import papers, without_papers
from dupq.text.token_arrays import TokenIds

_LARGEST = float(np.finfo(np.float16).max)
_ROWS = 64  # of a batch on a CPU


@functools.cache
def kinds() -> dict[str, type[NetworkSettings]]:
    """Return the settings class of each kind of network, including the papers' if they are installed."""
    classes: list[type[NetworkSettings]] = [WordBagSettings, PretrainedSettings]
    for networks in papers("networks"):
        classes += networks.KINDS
    by_name = {name: kind for kind in classes for name in get_args(kind.model_fields["kind"].annotation)}
    return dict(sorted(by_name.items()))


def network_settings(section: EncoderSettings) -> NetworkSettings:
    """Return the settings of the network that the section `encoder` names, with defaults for missing ones.

    Raises SettingError for an unknown kind, a setting that its network does not read, or a wrong value.
    """
    kind, allowed = section.kind, kinds()
    if kind not in allowed:
        names = ", ".join(map(repr, allowed))
        raise SettingError(f"setting 'encoder.kind' is {kind!r}; allowed: {names}{without_papers()}")
    fields = allowed[kind].model_fields
    for name in section.model_extra or {}:
        if name not in fields:
            read = ", ".join(fields)
            raise SettingError(f"setting 'encoder.{name}': encoder.kind={kind} does not read it; it reads {read}")
    return allowed[kind].parse(section.model_dump(), "encoder")


def learns_without_links(settings: Settings) -> bool:
    """Return whether an encoder learns anything from an archive without known duplicates."""
    needs_links = network_settings(settings.encoder).needs_links
    is_taught = bool(settings.teacher.encoder) and settings.teacher.epochs > 0
    return not needs_links or settings.title_body.epochs > 0 or is_taught


def presets_without_links() -> list[str]:
    """Return the names of the presets whose encoders learn without known duplicates."""
    return [name for name in config.preset_names() if learns_without_links(config.load(name))]


def counts_training_texts_only(settings: Settings) -> bool:
    """Return whether an encoder's sums over texts leave out the development and test questions."""
    return getattr(network_settings(settings.encoder), "taken_from", None) == "training"


def build(settings: EncoderSettings, word_vectors: np.ndarray, seed: int) -> Encoder:
    """Return a fresh network over `word_vectors` (float32, one row per id), the same for the same seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return network_settings(settings).network(word_vectors)


def rebuild(settings: EncoderSettings, tensors: Mapping[str, np.ndarray], path: str) -> Encoder:
    """Return the network with the weights `tensors`, by name. Raises DupqError naming `path` if they do not fit."""
    try:
        network = build(settings, tensors["words.weight"], seed=0)
        network.load_state_dict({name: torch.from_numpy(value) for name, value in tensors.items()})
    except (KeyError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise DupqError(f"{path}: not the weights of a network of kind {settings.kind} ({reason})") from error
    return network.eval()


def encode(network: Encoder, texts: TokenIds | Sequence[np.ndarray], rows: int = 0) -> Encoded:
    """Return the embeddings of token ids (int32), computed on the network's device.

    Vectors that are scored by cosine, and bags of words, have length 1 before they are rounded to float16. The row of
    an empty text is zero. On a CPU texts are encoded without padding if the network can do that. Otherwise `rows` is
    the size of a batch and bounds memory; 0 means 64 on a CPU, and on a GPU texts of together up to 262,144 words
    with padding, and 4 bytes per id of all texts. A GPU multiplies in bfloat16. Raises DupqError if the network
    gives NaN.
    """
    texts = texts if isinstance(texts, TokenIds) else TokenIds.of(texts)
    device = next(network.parameters()).device
    network.eval()
    with torch.inference_mode(), torch.autocast("cuda", torch.bfloat16, enabled=device.type == "cuda"):
        vectors = None if on_device.is_gpu(device) else _unpadded(network, texts)
        if vectors is None:
            vectors = _in_batches(network, texts, rows, device)
        encoded = Encoded(vectors, _bags(network, texts, device) if network.is_lexical else None)
    if np.isnan(encoded.vectors).any():
        raise DupqError("the encoder gives embeddings that are not numbers; train it again at a lower learning rate")
    return encoded


def _unpadded(network: Encoder, texts: TokenIds) -> np.ndarray | None:
    """Return the vectors of texts without padding; None if the network cannot do that."""
    vectors = np.zeros((len(texts), network.dimensions), np.float16)
    for rows in batch_slices(texts.offsets, WORDS_AT_ONCE):
        dense = network.dense_unpadded(texts.rows(rows))
        if dense is None:
            return None
        vectors[rows] = _rounded(network, dense).numpy()
    return vectors


def _bags(network: Encoder, texts: TokenIds, device: torch.device) -> sparse.csr_array:
    """Return the bags of words of texts."""
    columns = int(texts.ids.max(initial=0)) + 1
    bags = [sparse.csr_array((0, columns), dtype=np.float32)]
    for rows in batch_slices(texts.offsets, WORDS_AT_ONCE):
        words, counts = flat_bags(texts.rows(rows))
        weights = network.bag_weights(torch.from_numpy(words.ids).to(device), torch.from_numpy(counts).to(device))
        bags.append(unit_bags(words, weights.float().cpu().numpy(), columns))
    return sparse.vstack(bags, format="csr")


def _in_batches(network: Encoder, texts: TokenIds, rows: int, device: torch.device) -> np.ndarray:
    """Return the vectors of padded texts. They are copied from a GPU at the end, so that it never waits."""
    vectors = torch.zeros(len(texts), network.dimensions, dtype=torch.float16, device=device)
    is_large = on_device.is_gpu(device) and not rows
    made = DeviceTexts.of(texts, device).batches() if is_large else batches(texts, rows or _ROWS, device)
    for ids, lengths, own in made:
        vectors[moved(own, device)] = _rounded(network, network(ids, lengths).dense)[: len(own)]
    return vectors.cpu().numpy()


def _rounded(network: Encoder, dense: torch.Tensor) -> torch.Tensor:
    dense = dense.float()
    if network.kind == COSINE:
        dense = torch.nn.functional.normalize(dense, dim=-1, eps=SHORTEST)
    return dense.clamp(-_LARGEST, _LARGEST).half()
