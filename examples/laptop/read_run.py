"""Print the largest clusters and the likeliest pairs of a run: read_run.py RUN_OR_FOLDER_OF_RUNS."""

import sys

import pyarrow.compute as pc

import dupq

run = dupq.open_run(sys.argv[1])
print(f"{len(run.clusters):,} questions; a pair may join from a probability of {run.threshold:.2f}")

canonical = run.clusters.arrow(filter=pc.field("is_canonical") & (pc.field("cluster_size") > 1))
for row in canonical.sort_by([("cluster_size", "descending")]).slice(0, 5).to_pylist():
    print(f"\ncluster {row['cluster_id']}, {row['cluster_size']} questions")
    for member in run.cluster_of((row["site"], row["question_id"])).questions:
        print(f"  {member.question}  {member.title}")

print("\nthe likeliest pairs that the encoder found")
likely = run.pairs.arrow(filter=(pc.field("source") == "encoder") & pc.field("joined"))
for row in likely.sort_by([("probability", "descending")]).slice(0, 5).to_pylist():
    left, right = ((row[f"site_{side}"], row[f"question_id_{side}"]) for side in ("left", "right"))
    titles = run.titles([left, right])
    print(f"  {row['probability']:.2f}  {titles[left]}  |  {titles[right]}")
