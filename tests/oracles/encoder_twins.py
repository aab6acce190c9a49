"""Slow twins of the networks: numpy in float64, text by text and word by word, written from the papers' equations."""

from collections import Counter
from typing import Any

import numpy as np

Weights = dict[str, np.ndarray]


def weights_of(network: Any) -> Weights:
    """All parameters of a network by name, in float64."""
    return {name: value.detach().numpy().astype(np.float64) for name, value in network.state_dict().items()}


def bag(weights: Weights, ids: list[int]) -> np.ndarray:
    """r_bow of equation 1 of dos Santos et al. 2015, over the whole vocabulary; ids 0 and 1 are no words."""
    result = np.zeros(len(weights["words.weight"]))
    for word, frequency in Counter(ids).items():
        if word >= 2:
            result[word] = frequency * weights["word_weights.weight"][word, 0]
    return result


def word_bag(weights: Weights, ids: list[int]) -> dict[int, float]:
    """r_w n_w^p for each word w of a text; ids 0 and 1 are no words."""
    return {
        word: weights["rarities"][word] * frequency ** weights["power"]
        for word, frequency in Counter(ids).items()
        if word >= 2
    }


def word_bag_vector(weights: Weights, ids: list[int]) -> np.ndarray:
    """The sum of the words' vectors, each times exp(log a_w) n_w^p."""
    result = np.zeros(weights["words.weight"].shape[1])
    for word, frequency in Counter(ids).items():
        if word >= 2:
            weight = np.exp(weights["log_weights.weight"][word, 0]) * frequency ** weights["power"]
            result += weight * weights["words.weight"][word]
    return result


def cosine(left: np.ndarray, right: np.ndarray) -> float:
    """0 where a vector is zero."""
    lengths = np.linalg.norm(left) * np.linalg.norm(right)
    return float(left @ right / lengths) if lengths else 0.0


def similarity(kind: str, left: np.ndarray, right: np.ndarray) -> float:
    """Equation 7 of Othman et al. 2021, the same with the Euclidean norm, or the cosine."""
    if kind == "manhattan":
        return float(np.exp(-np.sum(np.abs(left - right))))
    if kind == "euclidean":
        return float(np.exp(-np.sqrt(np.sum((left - right) ** 2))))
    return cosine(left, right)
