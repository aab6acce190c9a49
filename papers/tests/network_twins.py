"""Slow twins of the papers' networks, as tests/oracles/encoder_twins.py has them of the default one."""

from collections import Counter

import numpy as np
from oracles.encoder_twins import Weights


def windows(words: np.ndarray, ids: list[int], window: int) -> list[np.ndarray]:
    """z_n of Bogdanova et al. 2015 and dos Santos et al. 2015, with the padding vector beyond the ends."""
    reach = (window - 1) // 2
    padded = [0] * reach + ids + [0] * reach
    return [np.concatenate([words[i] for i in padded[n : n + window]]) for n in range(len(ids))]


def cnn(weights: Weights, ids: list[int], window: int, pooling: str) -> np.ndarray:
    """Equation 2 of Bogdanova et al. 2015."""
    w1, b1 = weights["convolution.weight"], weights["convolution.bias"]
    local = [np.tanh(w1 @ z_n + b1) for z_n in windows(weights["words.weight"], ids, window)]
    return np.tanh(np.sum(local, axis=0) if pooling == "sum" else np.max(local, axis=0))


def max_cnn(weights: Weights, ids: list[int], window: int) -> np.ndarray:
    """Equation 2 of dos Santos et al. 2015."""
    w1, b1 = weights["convolution.weight"], weights["convolution.bias"]
    return np.tanh(np.max([w1 @ z_n + b1 for z_n in windows(weights["words.weight"], ids, window)], axis=0))


def word_bag_cnn_vector(weights: Weights, ids: list[int], window: int) -> np.ndarray:
    """The sum over all places of a_w n^(p - 1) (v_w + U relu(W1 z_n + b1))."""
    vectors, w1, b1 = (weights[name] for name in ("words.weight", "convolution.weight", "convolution.bias"))
    result = np.zeros(vectors.shape[1])
    for word, z_n in zip(ids, windows(vectors, ids, window), strict=True):
        if word >= 2:
            weight = np.exp(weights["log_weights.weight"][word, 0]) * ids.count(word) ** (weights["power"] - 1)
            result += weight * (vectors[word] + weights["change.weight"] @ np.maximum(w1 @ z_n + b1, 0))
    return result


def sigmoid(values: np.ndarray) -> np.ndarray:
    """1 / (1 + exp(-x))."""
    return 1 / (1 + np.exp(-values))


def lstm_states(weights: Weights, ids: list[int], cell: str = "cell") -> list[np.ndarray]:
    """Equations 1 to 6 of Othman et al. 2021: h_1 ... h_T."""
    w_i, w_f, w_c, w_o = np.split(weights[f"{cell}.weight_ih_l0"], 4)
    u_i, u_f, u_c, u_o = np.split(weights[f"{cell}.weight_hh_l0"], 4)
    b_i, b_f, b_c, b_o = np.split(weights[f"{cell}.bias_ih_l0"], 4)
    h = c = np.zeros(len(b_i))
    states = []
    for word in ids:
        x = weights["words.weight"][word]
        i = sigmoid(w_i @ x + u_i @ h + b_i)
        f = sigmoid(w_f @ x + u_f @ h + b_f)
        candidate = np.tanh(w_c @ x + u_c @ h + b_c)
        c = i * candidate + f * c
        o = sigmoid(w_o @ x + u_o @ h + b_o)
        h = o * np.tanh(c)
        states.append(h)
    return states


def gru_states(weights: Weights, ids: list[int], cell: str = "cell") -> list[np.ndarray]:
    """The GRU of Cho et al. 2014 as torch documents it: the reset gate works on U h + b."""
    w_r, w_z, w_n = np.split(weights[f"{cell}.weight_ih_l0"], 3)
    u_r, u_z, u_n = np.split(weights[f"{cell}.weight_hh_l0"], 3)
    b_r, b_z, b_n = np.split(weights[f"{cell}.bias_ih_l0"], 3)
    d_r, d_z, d_n = np.split(weights[f"{cell}.bias_hh_l0"], 3)
    h = np.zeros(len(b_r))
    states = []
    for word in ids:
        x = weights["words.weight"][word]
        r = sigmoid(w_r @ x + b_r + u_r @ h + d_r)
        z = sigmoid(w_z @ x + b_z + u_z @ h + d_z)
        candidate = np.tanh(w_n @ x + b_n + r * (u_n @ h + d_n))
        h = (1 - z) * candidate + z * h
        states.append(h)
    return states


def recurrent(weights: Weights, ids: list[int], cell: str, pooling: str) -> np.ndarray:
    """The final state, or equations 8 to 10 of Othman et al. 2021; r in R^2L where a second one reads backwards."""
    states_of = lstm_states if cell == "lstm" else gru_states
    states = states_of(weights, ids)
    final = states[-1]
    if "back.weight_ih_l0" in weights:
        back = states_of(weights, ids[::-1], "back")[::-1]
        final = np.concatenate([final, back[0]])
        states = [np.concatenate(both) for both in zip(states, back, strict=True)]
    if pooling == "final":
        return final
    w_h, b_h = weights["attention.projection.weight"], weights["attention.projection.bias"]
    exponents = [np.exp(np.tanh(w_h @ h_i + b_h) @ weights["attention.context"]) for h_i in states]
    return sum(exponent / sum(exponents) * h_i for exponent, h_i in zip(exponents, states, strict=True))


def width_cnn(weights: Weights, ids: list[int], widths: tuple[int, ...]) -> np.ndarray:
    """Equation 11 of Othman et al. 2021, the maximum of each feature map, and the fully connected layer."""
    features = []
    for place, width in enumerate(widths):
        filters = weights[f"convolutions.{place}.weight"]  # (m, d, w)
        vectors = [weights["words.weight"][i] for i in ids] + [np.zeros(filters.shape[1])] * (width - 1)
        for filter_matrix, b in zip(filters, weights[f"convolutions.{place}.bias"], strict=True):
            feature_map = [
                max(0.0, float(np.sum(np.array(vectors[i : i + width]) * filter_matrix.T) + b)) for i in range(len(ids))
            ]
            features.append(max(feature_map))
    return weights["connected.weight"] @ np.array(features) + weights["connected.bias"]


def stacked_cnn(weights: Weights, ids: list[int], layers: int, pool: int, divisor: float) -> np.ndarray:
    """Sections 4.1 to 4.3 and 5.4 of Othman et al. 2021: equation 11 and pooling, layer after layer."""
    rows = [weights["words.weight"][i] for i in ids]
    for layer in range(layers):
        filters, b = weights[f"convolutions.{layer}.weight"], weights[f"convolutions.{layer}.bias"]  # (m, d, w), (m,)
        behind = rows + [np.zeros(filters.shape[1])] * (filters.shape[2] - 1)
        maps = [
            np.maximum(0, np.tensordot(filters, np.array(behind[i : i + filters.shape[2]]).T, 2) + b)
            for i in range(len(rows))
        ]
        rows = [np.max(maps[start : start + pool], axis=0) for start in range(0, len(maps), pool)]
    return (weights["connected.weight"] @ np.max(rows, axis=0) + weights["connected.bias"]) / divisor


def sif(words: np.ndarray, texts: list[list[int]], fitted: list[int], smoothing: float, components: int) -> np.ndarray:
    """Algorithm 1 of Arora et al. 2017; p(w) and the components are of the rows `fitted`. Ids 0 and 1 are no words."""
    counts = Counter(word for row in fitted for word in texts[row])
    averages = np.zeros((len(texts), words.shape[1]))
    for row, text in enumerate(texts):
        for word in text:
            if word >= 2:
                averages[row] += smoothing / (smoothing + counts[word] / counts.total()) * words[word] / len(text)
    return less_components(averages, averages[fitted], components)


def sums(words: np.ndarray, texts: list[list[int]]) -> np.ndarray:
    """The sum of the words' vectors of each text; ids 0 and 1 are no words."""
    nothing = np.zeros(words.shape[1])
    return np.array([sum((words[word] for word in text if word >= 2), nothing) for text in texts])


def mappsent(
    words: np.ndarray,
    texts: list[list[int]],
    fitted: list[int],
    duplicates: list[tuple[int, int]],
    components: int,
    rotated: bool = True,
) -> np.ndarray:
    """Section 3 of Hazem et al. 2017, R by the singular value decomposition of all pairs at once, or left out."""
    units = sums(words, texts)
    is_there = units.any(axis=1)
    units[is_there] /= np.linalg.norm(units[is_there], axis=1, keepdims=True)
    known = [row for row in fitted if is_there[row]]
    centred = np.where(is_there[:, None], units - np.mean(units[known], axis=0), 0.0)
    if rotated:
        left, right = (centred[[pair[side] for pair in duplicates]] for side in (0, 1))
        u, _, vt = np.linalg.svd(left.T @ right)
        centred = centred @ (u @ vt)
    return less_components(centred, centred[fitted], components)


def less_components(rows: np.ndarray, fitted: np.ndarray, number: int) -> np.ndarray:
    """Rows less their projections on the first principal components of others."""
    first = np.linalg.svd(fitted, full_matrices=False)[2][:number]
    return rows - rows @ first.T @ first
