"""A run in ten lines, for the terminal."""

from typing import Any

from dupq import storage


def summary(run_uri: str) -> str:
    """What was found in a finished run, how good it is, and where everything lies."""
    metrics = storage.read_json(storage.join(run_uri, "metrics.json"))
    lines = [
        f"questions         {metrics['questions']:>12,} of {len(metrics['sites'])} site(s)",
        f"exact copies      {metrics['exact_copies']:>12,}",
        f"near duplicates   {metrics['near_duplicate_pairs']:>12,} pairs",
        f"encoder           {metrics['encoder_pairs_over_threshold']:>12,} pairs over {metrics['threshold']:.3f},"
        f" of {metrics['encoder_pairs']:,} neighbours",
        f"clusters          {metrics['clusters']:>12,} of {metrics['questions_in_clusters']:,} questions,"
        f" the largest of {metrics['largest_cluster']:,}",
        *_quality(metrics.get("known_duplicates")),
        *_planted(metrics.get("planted")),
        f"run               {run_uri}",
        f"report            {storage.join(run_uri, 'report.html')}",
    ]
    return "\n".join(lines)


def _quality(known: dict[str, Any] | None) -> list[str]:
    if not known or not known["retrieval"]:
        return []
    shown = [
        f"{name} Acc@10 {100 * values['accuracy_at_10']:.1f} % MAP {100 * values['map']:.1f} %"
        for name, values in known["retrieval"].items()
    ]
    return [f"known duplicates  {known['test_queries']:>12,} never trained on: {', '.join(shown)}"]


def _planted(planted: dict[str, Any] | None) -> list[str]:
    if not planted:
        return []
    shown = [f"{100 * values['same_cluster']:.1f} % of {name}" for name, values in planted.items()]
    return [f"planted           {'':>12} {', '.join(shown)} pairs in one cluster"]
