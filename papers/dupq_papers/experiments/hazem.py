"""Hazem et al. (RANLP 2017), section 5: ten candidates of each question, ranked by sums of word vectors."""

from dataclasses import replace
from typing import NamedTuple

from dupq_papers.experiments.rows import PRESET, QUOTED, Published, Row, Table


class Vectors(NamedTuple):
    """How word vectors were learned."""

    window: int
    dimensions: int


_PAPER = "Hazem et al. 2017"
_2016, _2017 = "SemEval-2016 test", "SemEval-2017 test"
_MEASURES = {"map": "MAP"}
_SYSTEMS = {  # label: preset, changes
    "Arora": ("arora-sif", ()),
    "Arora, PCA": ("arora-sif-pca", ()),
    "MappSent-": ("mappsent", ("encoder.mapping=none",)),
    "MappSent-, PCA": ("mappsent-pca", ("encoder.mapping=none",)),
    "MappSent": ("mappsent", ()),
    "MappSent, PCA": ("mappsent-pca", ()),
}
_GRID = {  # table 3, by window: for each system 100, 300, 500, 800 dimensions in 2016, then in 2017
    5: (
        (75.86, 75.48, 75.52, 76.41, 44.67, 44.44, 44.36, 44.22),
        (77.47, 76.98, 75.45, 77.07, 45.07, 44.85, 45.55, 45.26),
        (76.16, 77.01, 76.44, 76.62, 45.39, 45.43, 45.41, 45.15),
        (77.43, 76.73, 76.47, 77.01, 45.64, 46.01, 45.76, 45.78),
        (78.47, 78.14, 77.39, 78.03, 46.62, 46.44, 47.38, 47.30),
        (77.13, 77.91, 76.99, 77.91, 47.56, 48.24, 48.66, 48.15),
    ),
    10: (
        (75.71, 76.49, 76.28, 77.16, 45.08, 45.81, 44.90, 43.82),
        (76.21, 77.02, 77.02, 77.03, 44.81, 46.39, 46.66, 45.33),
        (75.94, 76.47, 77.37, 77.86, 45.54, 45.60, 45.83, 45.48),
        (76.26, 78.07, 78.41, 77.36, 46.39, 45.22, 46.53, 45.33),
        (76.95, 78.09, 78.74, 78.70, 47.36, 45.92, 46.99, 46.83),
        (77.12, 77.19, 76.55, 76.33, 48.57, 47.22, 47.89, 48.15),
    ),
    20: (
        (76.18, 76.47, 77.45, 77.87, 46.93, 44.24, 44.41, 44.36),
        (78.03, 78.81, 78.05, 78.11, 45.40, 44.66, 44.50, 44.86),
        (76.39, 77.45, 77.51, 78.56, 46.90, 44.66, 45.36, 45.72),
        (77.72, 78.66, 78.24, 78.32, 45.74, 44.27, 46.03, 46.28),
        (78.52, 79.18, 79.00, 78.83, 47.50, 46.88, 46.88, 47.44),
        (78.43, 78.39, 79.09, 79.02, 47.80, 48.03, 48.00, 48.72),
    ),
}
_DIMENSIONS = (100, 300, 500, 800)
_QUICK_GRID = ((5, 100), (20, 100), (20, 300))
_QUICK_COMPONENTS = (0, 1, 2, 4, 10)
_COMPONENTS = {  # tables 4 and 5: components removed of Arora, MappSent-, MappSent
    0: (76.47, 77.45, 79.18, 44.90, 45.83, 47.36),
    1: (78.81, 78.66, 78.39, 46.66, 46.53, 46.77),
    2: (77.46, 77.80, 77.66, 47.40, 46.81, 48.57),
    3: (77.20, 78.35, 77.63, 46.86, 46.52, 49.07),
    4: (77.91, 78.82, 78.02, 46.50, 46.70, 49.29),
    5: (78.20, 78.01, 77.13, 45.60, 46.79, 48.69),
    6: (78.59, 78.14, 77.34, 45.72, 46.52, 47.55),
    7: (78.33, 78.09, 77.60, 47.19, 47.21, 47.77),
    8: (77.64, 77.69, 77.51, 46.97, 46.53, 47.24),
    9: (77.64, 77.72, 78.13, 45.51, 46.48, 47.41),
    10: (77.16, 77.14, 78.19, 45.35, 46.15, 46.84),
    20: (76.51, 75.86, 77.08, 46.53, 47.07, 46.70),
}
_R = (
    "The mapping R is orthogonal and turns both questions alike, so it changes no cosine: MappSent differs from "
    "MappSent- by what else its preset does."
)
_TUNED = (
    "Each system has the window and the dimensions that are best for it in the paper's table 3, which were chosen on "
    "the test questions; MappSent with PCA has in 2017 four components, of its table 5."
)
_EDITION = "The test questions of both editions are not here; what is measured is the development part."


def _row(label: str, system: str, published: Published, vectors: Vectors, components: int | None = None) -> Row:
    preset, own = _SYSTEMS[system]
    changes = [*own, f"word_vectors.window={vectors.window}", f"word_vectors.dimensions={vectors.dimensions}"]
    if components is not None:
        changes.append(f"encoder.removed_components={components}")
        in_quick = components in _QUICK_COMPONENTS
    else:
        in_quick = vectors in _QUICK_GRID
    return Row(label, f"{PRESET}{preset}", published, changes=tuple(changes), in_quick=in_quick)


def _in_grid(system: str, vectors: Vectors) -> tuple[float, float]:
    """A cell of table 3, of 2016 and of 2017."""
    values = _GRID[vectors.window][list(_SYSTEMS).index(system)]
    place = _DIMENSIONS.index(vectors.dimensions)
    return values[place], values[place + len(_DIMENSIONS)]


def _best_row(system: str, edition: int) -> Row:
    """A system of tables 1 and 2: with the best vectors of table 3, or the components that are better in table 5."""
    if (system, edition) == ("MappSent, PCA", 1):
        row = _row(system, system, {_2017: {"map": _COMPONENTS[4][5]}}, Vectors(10, 500), 4)
    else:
        tried = (Vectors(window, dimensions) for window in _GRID for dimensions in _DIMENSIONS)
        best = max(tried, key=lambda vectors: _in_grid(system, vectors)[edition])
        row = _row(system, system, {(_2016, _2017)[edition]: {"map": _in_grid(system, best)[edition]}}, best)
    return replace(row, in_quick=True)


def _best(name: str, title: str, edition: int, others: dict[str, tuple[str, float]]) -> Table:
    paper_data = (_2016, _2017)[edition]
    quoted = [Row(label, system, {paper_data: {"map": value}}) for label, (system, value) in others.items()]
    ours = [_best_row(system, edition) for system in _SYSTEMS]
    extra = [Row("BM25", "bm25"), Row("dupq", f"{PRESET}dupq", is_ours=True)]
    note = f"{_R} {_EDITION} {_TUNED}"
    return Table(name, _PAPER, title, "candidates", _MEASURES, (*quoted, *ours, *extra), note=note)


def _grid_rows() -> tuple[Row, ...]:
    return tuple(
        _row(
            f"{system}, window {window}, {dimensions} dimensions",
            system,
            {data: {"map": value} for data, value in zip((_2016, _2017), _in_grid(system, vectors), strict=True)},
            vectors,
        )
        for window in _GRID
        for system in _SYSTEMS
        for dimensions in _DIMENSIONS
        if (vectors := Vectors(window, dimensions))
    )


def _component_rows(edition: int, vectors: Vectors) -> tuple[Row, ...]:
    paper_data, systems = (_2016, _2017)[edition], ("Arora", "MappSent-", "MappSent")
    return tuple(
        _row(f"{system}, {removed} removed", system, {paper_data: {"map": value}}, vectors, removed)
        for removed, values in _COMPONENTS.items()
        for system, value in zip(systems, values[3 * edition : 3 * edition + 3], strict=True)
    )


TABLES = (
    _best(
        "hazem-1",
        "Table 1: SemEval-2016 Task 3 B",
        0,
        {"UH-PRHLT": (QUOTED, 76.70), "ConvKN": (QUOTED, 76.02), "KeLP": (QUOTED, 75.83)},
    ),
    _best(
        "hazem-2",
        "Table 2: SemEval-2017 Task 3 B",
        1,
        {"SimBow": ("simbow", 47.22), "LearningToQuestion": (QUOTED, 46.93), "KeLP": (QUOTED, 46.66)},
    ),
    Table(
        "hazem-3",
        _PAPER,
        "Table 3: window and dimensions of the word vectors",
        "candidates",
        _MEASURES,
        _grid_rows(),
        note=f"{_R} {_EDITION} The paper removes 1 or 2 components; here 1.",
    ),
    Table(
        "hazem-4",
        _PAPER,
        "Table 4: components removed, window 20 and 300 dimensions (SemEval-2016)",
        "candidates",
        _MEASURES,
        _component_rows(0, Vectors(20, 300)),
        note=f"{_R} {_EDITION}",
    ),
    Table(
        "hazem-5",
        _PAPER,
        "Table 5: components removed, window 10 and 500 dimensions (SemEval-2017)",
        "candidates",
        _MEASURES,
        _component_rows(1, Vectors(10, 500)),
        note=f"{_R} {_EDITION}",
    ),
)
