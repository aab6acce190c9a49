"""The evaluation job: rank a whole archive for its known duplicates, by an encoder and by the baselines."""

from dupq import storage
from dupq.evaluation.measures import TABLES, left_out
from dupq.job import progress
from dupq.job.gpus import gpus_for, until_the_end
from dupq.pipelines.arguments import EvaluationJob, is_pair_file
from dupq.pipelines.opening import open_evaluation
from dupq.settings.config import Settings
from dupq.stages.embeddings import ToEncode, check_room_to_encode, embed
from dupq.stages.inputs import copy_inputs
from dupq.stages.measures.archive import Archive, measure_archive
from dupq.stages.texts import make_distinct_texts

STAGES = copy_inputs, make_distinct_texts, embed


def evaluate(job: EvaluationJob, checked: Settings | None = None) -> str:
    """Write metrics.json below `job.output`, with only what `job.tables` names, and return these tables as text.

    `checked` is what `job.check()` returned, if it was called before. Raises DupqError if an input is missing or wrong.
    """
    progress.phase("measuring")
    opened = open_evaluation(job, checked, STAGES)
    run, settings, sites = opened.run, opened.settings, opened.sites
    encoder, encoded = run.copy_of("encoder"), None
    gpus = gpus_for(0 if encoder is None else job.gpus)
    if encoder is not None:
        check_room_to_encode(settings.encode, len(opened.shards), run.uri, gpus)
    with run.held(), until_the_end():
        if encoder is not None:
            copy_inputs(run)
        texts = make_distinct_texts(run, opened.shards, sites, settings.text)
        if encoder is not None:
            encoded = encoder, embed(run, ToEncode(texts), encoder, sites, settings.encode, gpus).embeddings
        archive = Archive(texts, encoded, sites, job.links, is_pair_file(job.links))
        metrics = measure_archive(run.uri, archive, settings, job.tables)
        storage.write_json(storage.join(storage.absolute(job.output), "metrics.json"), metrics)
        progress.end(run.uri, "finished")
    return "\n\n".join([*(f"{name}: {TABLES[name](metrics)}" for name in job.tables), left_out(metrics)])
