"""Othman et al. (DKE 2021), section 5.6: short questions, ranked by Siamese networks, in English and in Arabic."""

from collections.abc import Mapping

from dupq_papers.experiments.rows import PRESET, QUOTED, Published, Row, Table

_PAPER = "Othman et al. 2021"
_ENGLISH, _ARABIC = "Yahoo! Answers, English", "Yahoo! Answers, Arabic"
_NAMES = {"precision_at_5": "P@5", "precision_at_10": "P@10", "map": "MAP", "recall_at_10": "Recall@10"}
_ALSTM, _LSTM, _CNN = (f"{PRESET}othman-{kind}" for kind in ("alstm", "lstm", "cnn"))
_TITLE = ("text.fields=title",)
_RECALL = "The paper does not say where its recall is cut; ours is at 10."
_OURS = Row("dupq", f"{PRESET}dupq", is_ours=True)


def _columns(*names: str) -> dict[str, str]:
    return {name: _NAMES[name] for name in names}


def _published(names: tuple[str, ...], english: tuple[float, ...], arabic: tuple[float, ...] = ()) -> Published:
    of_english = {_ENGLISH: dict(zip(names, english, strict=True))} if english else {}
    return {**of_english, **({_ARABIC: dict(zip(names, arabic, strict=True))} if arabic else {})}


_RANKS = ("precision_at_5", "precision_at_10", "map")
_ALL = (*_RANKS, "recall_at_10")
_SHORT = ("precision_at_5", "recall_at_10")
_TABLE_2 = {
    ("TLM", "tlm"): (0.3238, 0.2548, 0.3957),
    ("ETLM", QUOTED): (0.3314, 0.2603, 0.4073),
    ("PBTM", QUOTED): (0.3318, 0.2603, 0.4095),
    ("WKM", QUOTED): (0.3413, 0.2715, 0.4116),
    ("M-NET", "m-net"): (0.3686, 0.2848, 0.4507),
    ("ParaKCM", QUOTED): (0.3722, 0.2889, 0.4578),
    ("WEKOS", "wekos"): (0.4338, 0.3647, 0.5036),
    ("ASLSTM", _ALSTM): (0.5033, 0.4198, 0.5799),
}
_SIMILARITIES = {  # P@5 and recall: English, Arabic
    "manhattan": ((0.5033, 0.5477), (0.3702, 0.4146)),
    "cosine": ((0.3893, 0.4345), (0.2562, 0.3006)),
    "euclidean": ((0.3393, 0.3843), (0.2062, 0.2506)),
}
_OF_CNN = {
    "manhattan": ((0.4943, 0.5288), (0.3292, 0.4136)),
    "cosine": ((0.3802, 0.4156), (0.2151, 0.2997)),
    "euclidean": ((0.3302, 0.3656), (0.1651, 0.2497)),
}


def _by_similarity(label: str, system: str, published: Mapping[str, tuple[tuple[float, ...], ...]]) -> tuple[Row, ...]:
    return tuple(
        Row(f"{label}, {kind}", system, _published(_SHORT, *values), changes=(f"encoder.similarity={kind}",))
        for kind, values in published.items()
    )


TABLES = (
    Table(
        "othman-2",
        _PAPER,
        "Table 2: systems in English",
        "ranking",
        _columns(*_RANKS),
        (
            *(Row(label, system, _published(_RANKS, values)) for (label, system), values in _TABLE_2.items()),
            Row("Siamese LSTM", _LSTM),
            _OURS,
        ),
        text=_TITLE,
        percent=False,
        languages=("english",),
    ),
    Table(
        "othman-3",
        _PAPER,
        "Table 3: the similarity of two questions, by the attentive LSTM",
        "ranking",
        _columns(*_SHORT),
        _by_similarity("ASLSTM", _ALSTM, _SIMILARITIES),
        text=_TITLE,
        percent=False,
        note=_RECALL,
    ),
    Table(
        "othman-4",
        _PAPER,
        "Table 4: systems in Arabic",
        "ranking",
        _columns(*_ALL),
        (
            Row("WEKOS", "wekos", _published(_ALL, (), (0.3444, 0.2412, 0.4144, 0.3828))),
            Row("ASLSTM", _ALSTM, _published(_ALL, (), (0.3702, 0.2872, 0.4540, 0.4146))),
            _OURS,
        ),
        text=_TITLE,
        percent=False,
        languages=("arabic",),
        note=_RECALL,
    ),
    Table(
        "othman-5",
        _PAPER,
        "Table 5: Siamese LSTM and CNN",
        "ranking",
        _columns(*_ALL),
        (
            Row(
                "Siamese LSTM",
                _LSTM,
                _published(_ALL, (0.5023, 0.4188, 0.5739, 0.5389), (0.3692, 0.2854, 0.4513, 0.4136)),
            ),
            Row(
                "Siamese CNN",
                _CNN,
                _published(_ALL, (0.4943, 0.4107, 0.5658, 0.5288), (0.3292, 0.2454, 0.4113, 0.4136)),
            ),
            Row("Siamese GRU (section 3.4; no figures)", f"{PRESET}othman-gru"),
            _OURS,
        ),
        text=_TITLE,
        percent=False,
        note=_RECALL,
    ),
    Table(
        "othman-6",
        _PAPER,
        "Table 6: the similarity of two questions, by the LSTM and the CNN",
        "ranking",
        _columns(*_SHORT),
        (*_by_similarity("Siamese LSTM", _LSTM, _SIMILARITIES), *_by_similarity("Siamese CNN", _CNN, _OF_CNN)),
        text=_TITLE,
        percent=False,
        note=f"{_RECALL} The paper prints the figures of table 3, of the attentive LSTM, for the LSTM too.",
    ),
    Table(
        "othman-figures-8-9",
        _PAPER,
        "Figures 8 and 9: loss and accuracy of the Siamese LSTM, epoch by epoch",
        "ranking",
        {
            "loss": "Training loss",
            "training_accuracy": "Training acc.",
            "validation_loss": "Validation loss",
            "validation_accuracy": "Validation acc.",
        },
        (
            Row(
                "Siamese LSTM",
                _LSTM,
                {
                    _ENGLISH: {"validation_loss": 0.132, "validation_accuracy": 0.82},
                    _ARABIC: {"validation_loss": 0.129, "validation_accuracy": 0.81},
                },
            ),
        ),
        text=_TITLE,
        percent=False,
        figure="epochs",
        note="Loss is the mean square error, and accuracy that of a threshold of 0.5, as in the paper. Training loss "
        "is the mean over an epoch's steps, with dropout, as Keras has it; the rest is measured after the epoch.",
    ),
)
