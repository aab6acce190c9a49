"""The machines that a plan is for, and what they cost."""

from dataclasses import dataclass

from dupq.plan.rates import Gpu


@dataclass(frozen=True)
class Prices:
    """In any one currency; None: not known, and then nothing is said of the cost."""

    per_hour: float | None = None  # of one machine
    per_1000_reads: float | None = None
    per_1000_writes: float | None = None


@dataclass(frozen=True)
class Machines:
    """Equal machines."""

    cpus: int  # of all together
    nodes: int = 1
    memory_gb: float | None = None  # of one; None: as much as all its CPUs need
    gpus: int = 0  # of all together
    gpu: Gpu | None = None
    gpu_efficiency: float = 1.0  # share of the GPU's peak
    gpu_width: int = 1  # columns of the product that is searched
    request_seconds: float = 0.0  # that a task waits for an answer of S3
    prices: Prices = Prices()

    def side_by_side(self, task_mb: float) -> int:
        """How many tasks of this memory run at once; at least one."""
        if self.memory_gb is None:
            return self.cpus
        fitting = int(self.memory_gb * 1024 // max(task_mb, 1.0))
        return max(1, min(self.cpus, self.nodes * fitting))
