"""Who encodes in the pipeline of Ray Data, and when it is worth its start."""

from typing import NamedTuple

from dupq.settings.dedup import EncodeSettings

_SHARDS_AN_ACTOR = 16  # unless actors are asked for: then what starting them costs is little beside the work


class Crew(NamedTuple):
    """The actors that encode, and the resources of each of them and, with GPUs, of each task beside them."""

    actors: int
    cpus: float
    gpus: int  # of an actor
    least_shards: int  # from so many on the pipeline is worth its start

    def is_for(self, shards: int) -> bool:
        """Whether so many shards are encoded by the pipeline, rather than by tasks."""
        return shards >= self.least_shards


def crew_for(settings: EncodeSettings, gpus: int, cpus: int) -> Crew:
    """The crew on so many GPUs, or if there are none on so many CPUs: an actor a GPU or a CPU, or as the settings ask.

    Where there are no more CPUs than GPUs, an actor holds a half of a CPU on paper: the other half is for the tasks,
    which the actors would otherwise wait for without end.
    """
    actors = settings.actors or gpus or cpus
    least_shards = actors + 1 if settings.actors else actors * _SHARDS_AN_ACTOR
    return Crew(actors, 0.5 if gpus and cpus <= actors else 1.0, 1 if gpus else 0, least_shards)
