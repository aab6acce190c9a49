"""dos Santos et al. (ACL 2015), section 4: each question against all of its site."""

from typing import Literal

from dupq_papers.experiments.rows import PRESET, Published, Row, Table

_PAPER = "dos Santos et al. 2015"
_MEASURES = {"accuracy_at_1": "Acc@1", "accuracy_at_5": "Acc@5", "accuracy_at_10": "Acc@10", "map": "MAP"}
_PAIRS = 9_802  # as many as the paper has of AskUbuntu (table 1)
_CNN, _BOW_CNN = f"{PRESET}dos-santos-cnn", f"{PRESET}dos-santos-bow-cnn"
_SYSTEMS = {  # Accuracy@1, @5, @10 on AskUbuntu, then on English: of titles (table 3), of title and body (table 4)
    "TFIDF": ("tfidf", (8.3, 17.5, 22.5, 10.0, 18.1, 21.6), (16.9, 31.3, 38.3, 25.9, 42.0, 48.1)),
    "BM25": ("bm25", (7.3, 17.1, 21.8, 10.0, 18.9, 23.2), (18.2, 33.1, 39.8, 29.4, 45.7, 52.5)),
    "IB": ("ib", (8.1, 18.1, 22.6, 10.1, 18.4, 22.7), (14.9, 28.2, 34.8, 25.4, 42.3, 48.0)),
    "DFR": ("dfr", (7.7, 17.8, 22.4, 10.5, 19.0, 23.0), (18.0, 32.6, 39.2, 28.6, 45.4, 52.5)),
    "LM-Dirichlet": ("lm dirichlet", (5.6, 14.1, 19.0, 10.9, 20.1, 24.2), (13.7, 26.8, 34.4, 23.0, 40.2, 46.0)),
    "LM-Jelinek-Mercer": (
        "lm jelinek-mercer",
        (8.3, 17.5, 22.5, 10.3, 18.5, 22.1),
        (18.3, 33.4, 40.7, 28.5, 45.7, 52.3),
    ),
    "CNN": (_CNN, (11.5, 24.8, 31.4, 11.6, 23.0, 26.9), (20.0, 33.8, 40.1, 17.2, 29.6, 33.8)),
    "BOW-CNN": (_BOW_CNN, (10.9, 22.6, 28.7, 11.3, 21.4, 26.0), (22.3, 39.7, 46.4, 30.8, 47.7, 54.9)),
}
_WEIGHTS = {  # first weights, whether they are learned: @1 and @10 of titles, of title and body, on English
    ("idf", "learned"): (11.3, 26.0, 30.8, 54.9),
    ("idf", "fixed"): (10.6, 25.3, 29.7, 54.9),
    ("ones", "learned"): (10.7, 24.2, 26.3, 51.2),
}


def _published(values: tuple[float, ...]) -> Published:
    names, ask_ubuntu, english = ("accuracy_at_1", "accuracy_at_5", "accuracy_at_10"), values[:3], values[3:]
    return {"AskUbuntu": dict(zip(names, ask_ubuntu, strict=True)), "English": dict(zip(names, english, strict=True))}


def _rows(place: Literal[1, 2]) -> tuple[Row, ...]:
    rows = [Row(label, system[0], _published(system[place])) for label, system in _SYSTEMS.items()]
    return (*rows, Row("dupq", f"{PRESET}dupq", is_ours=True))


def _weights(first: str, learned: str, published: dict[str, float], fields: str) -> Row:
    changes = (f"text.fields={fields}", f"encoder.first_word_weights={first}", f"encoder.word_weights={learned}")
    updated = "updated" if learned == "learned" else "not updated"
    return Row(f"{first.upper()}, {updated}; {fields}", _BOW_CNN, {"English": published}, changes=changes)


TABLES = (
    Table(
        "dos-santos-3",
        _PAPER,
        "Table 3: titles",
        "ranking",
        _MEASURES,
        _rows(1),
        text=("text.fields=title",),
        pairs=_PAIRS,
    ),
    Table("dos-santos-4", _PAPER, "Table 4: title and body", "ranking", _MEASURES, _rows(2), pairs=_PAIRS),
    Table(
        "dos-santos-5",
        _PAPER,
        "Table 5: the start of BOW-CNN's word weights, and whether they are learned",
        "ranking",
        {"accuracy_at_1": "Acc@1", "accuracy_at_10": "Acc@10"},
        tuple(
            _weights(*how, dict(zip(("accuracy_at_1", "accuracy_at_10"), values[2 * place :], strict=False)), fields)
            for place, fields in enumerate(("title", "title+body"))
            for how, values in _WEIGHTS.items()
        ),
        pairs=_PAIRS,
    ),
)
