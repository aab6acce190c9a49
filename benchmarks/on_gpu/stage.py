"""The stage `neighbours` of a run, with Ray, files and the start of processes: by a GPU, and by this machine's CPUs."""

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from dupq import storage
from dupq.archive import Shard
from dupq.job import cluster
from dupq.job.gpus import NO_GPUS, Gpus
from dupq.job.records import RunFiles
from dupq.job.run import Run
from dupq.job.table import Table
from dupq.neighbours.embeddings import Measure
from dupq.settings.sections import NeighbourSettings
from dupq.stages.embeddings import embeddings_table
from dupq.stages.search.blocks import SearchRequest
from dupq.stages.search.search import search
from dupq.tables import embeddings
from dupq.text.keys import Sites
from on_gpu.made_up import archive
from on_gpu.parts import Figures, Scale

QUESTIONS, DIMENSIONS, SHARDS = 200_000, 192, 4
_SITES = ["a.example.com"]
_MEASURE = Measure("cosine", 0.5, 0.5)


def figures(scale: Scale) -> Iterator[Figures]:
    """Seconds by a GPU, twice as the first compiles, and by CPUs; whether all lists are the same bytes."""
    made = archive(scale.size(QUESTIONS, 300), scale.size(DIMENSIONS, 16), True, torch.device(scale.device))
    cluster.connect("local")
    ways = {"gpu_first": Gpus(1), "gpu": Gpus(1), "cpus": NO_GPUS}
    with tempfile.TemporaryDirectory() as folder:
        written = []
        for name, gpus in ways.items():
            if scale.is_rehearsal and gpus != NO_GPUS:
                continue
            files, shards = RunFiles(f"{folder}/{name}"), []
            for number, rows in enumerate(np.array_split(np.arange(len(made.keys)), SHARDS)):
                shards.append(Shard(number, "", _SITES[0]))
                table, uri = embeddings_table(made.take(rows), Sites(_SITES)), shards[-1].file
                schema = embeddings(made.vectors.shape[1], True)
                storage.write_table(storage.join(files.path("embeddings"), uri), table, schema, {"rows_out": len(rows)})
            start = time.perf_counter()
            request = SearchRequest(_SITES, NeighbourSettings(), _MEASURE, 4, gpus)
            run = Run(files.uri, "neighbours")
            search.function(run, Table(files.path("embeddings"), schema, SHARDS), shards, request)
            yield {f"{name}_seconds": time.perf_counter() - start, f"{name}_seconds_of": run.report.steps}
            written.append([path.read_bytes() for path in sorted(Path(files.nearest).glob("*.parquet"))])
        yield {"lists_wrong": sum(one != written[0] for one in written)}
