"""Other exact searches on the same vectors: torch, faiss and FlashLib, those that are installed."""

import functools
import importlib.util
from collections.abc import Callable, Iterator

import numpy as np
import torch

from on_gpu.made_up import archive
from on_gpu.parts import Figures, Scale, seconds

K, DIMENSIONS, QUESTIONS, QUERIES = 10, 300, 200_000, 20_000
_AT_ONCE = 4_096


def figures(scale: Scale) -> Iterator[Figures]:
    """The seconds of a whole search, from a tenth of the questions; or what is missing."""
    made = archive(scale.size(QUESTIONS, 300), scale.size(DIMENSIONS, 16), device=torch.device(scale.device))
    queries = scale.size(QUERIES, 30)
    for name, peer in PEERS.items():
        try:
            spent = seconds(peer(made.vectors, queries, scale), scale.size(2, 1))
        except ImportError as error:
            yield {name: f"not installed ({error})"}
        except Exception as error:  # another library's fault is none of ours
            yield {name: f"failed ({type(error).__name__}: {str(error).partition(chr(10))[0]})"}
        else:
            yield {f"{name}_seconds": spent * len(made.keys) / queries}


def by_torch(kind: torch.dtype) -> Callable[[np.ndarray, int, Scale], Callable[[], object]]:
    """matmul and topk, some questions at a time."""

    def peer(vectors: np.ndarray, queries: int, scale: Scale) -> Callable[[], object]:
        rows = torch.from_numpy(vectors).to(scale.device, kind)

        def work() -> None:
            for start in range(0, queries, _AT_ONCE):
                torch.topk(rows[start : min(queries, start + _AT_ONCE)] @ rows.T, K + 1, dim=1)

        return work

    return peer


def by_faiss(vectors: np.ndarray, queries: int, scale: Scale) -> Callable[[], object]:
    """IndexFlatIP on the GPU."""
    import faiss

    index = faiss.IndexFlatIP(vectors.shape[1])
    if not scale.is_rehearsal:
        if not hasattr(faiss, "StandardGpuResources"):
            raise ImportError("this faiss is built for CPUs")
        index = faiss.index_cpu_to_gpu(faiss.StandardGpuResources(), 0, index)
    rows = vectors.astype(np.float32)
    index.add(rows)
    return lambda: index.search(rows[:queries], K + 1)


def by_flashlib(vectors: np.ndarray, queries: int, scale: Scale, is_narrow: bool = False) -> Callable[[], object]:
    """flash_knn: squared Euclidean distances, whose order is that of cosines of unit vectors.

    Its fast way takes 256 dimensions at most.
    """
    if importlib.util.find_spec("flashlib") is None:
        raise ImportError("pip install flashlib")
    from flashlib import flash_knn

    rows = torch.from_numpy(vectors[:, :256] if is_narrow else vectors).to(scale.device)
    return lambda: flash_knn(rows[:queries], rows, K + 1, return_distances=False)


PEERS = {
    "torch_float16": by_torch(torch.float16),
    "torch_float32": by_torch(torch.float32),
    "faiss": by_faiss,
    "flashlib": by_flashlib,
    "flashlib_of_256": functools.partial(by_flashlib, is_narrow=True),
}
