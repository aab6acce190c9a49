"""Say what a job would take on machines that need not be there."""

import argparse
import json
import math
from collections.abc import Callable

from dupq.cli.options import uri
from dupq.plan.rates import SHIPPED

DESCRIPTION = "Say what ingest, training and dedup would take: time, memory, disk, requests and cost of each stage."
_MOST = 1e12
_JOBS = ("ingest", "train", "dedup")


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument("--questions", required=True, metavar="N", type=_whole(1), help="of the archive, such as 24e6")
    parser.add_argument("--job", dest="planned", choices=[*_JOBS, "all"], default="all", help="which job is planned")
    parser.add_argument(
        "--cpus", metavar="N", type=_whole(1), help="of all machines together; without it, those that were measured"
    )
    parser.add_argument("--gpus", metavar="N", type=_whole(0), default=0, help="of all machines together")
    parser.add_argument("--gpu", metavar="KIND", default="H200", help="which GPU; a wrong one names all that are known")
    parser.add_argument("--nodes", metavar="N", type=_whole(1), default=1, help="machines, all alike")
    parser.add_argument(
        "--memory-gb", metavar="GB", type=_amount, help="of one machine; without it, as much as all its CPUs need"
    )
    parser.add_argument(
        "--request-ms", metavar="MS", type=_amount, default=0.0, help="that S3 takes to answer a request"
    )
    parser.add_argument("--price-per-hour", metavar="PRICE", type=_amount, help="of one machine, in any currency")
    parser.add_argument("--price-reads", metavar="PRICE", type=_amount, help="of 1,000 GET requests")
    parser.add_argument("--price-writes", metavar="PRICE", type=_amount, help="of 1,000 PUT or LIST requests")
    parser.add_argument(
        "--rates", metavar="FILE", type=uri, default=str(SHIPPED), help="what benchmarks/rates.py measured"
    )
    parser.add_argument(
        "--run",
        metavar="URI",
        type=uri,
        help="a finished run, or a folder of runs: stages take as long as they did there",
    )
    parser.add_argument(
        "--run-cpus", metavar="N", type=_whole(1), help="of the machines of that run; without it, --cpus"
    )
    parser.add_argument("--json", action="store_true", help="a JSON object in place of the table")


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    return value


def _whole(least: int) -> Callable[[str], int]:
    """The type of a whole number of at least `least`, which may be written like 24e6."""

    def whole(text: str) -> int:
        value = _number(text)
        if not least <= value <= _MOST or value != int(value):
            raise argparse.ArgumentTypeError(f"'{text}': a whole number of at least {least} expected, such as 24e6")
        return int(value)

    return whole


def _amount(text: str) -> float:
    """The type of a price, a memory or a time."""
    value = _number(text)
    if not 0 <= value <= _MOST:
        raise argparse.ArgumentTypeError(f"'{text}': a number of at least 0 expected")
    return value


def run(arguments: argparse.Namespace) -> None:
    """Print the table. Needs no Ray, no archive and no GPU."""
    from dupq.cli.took import what_took
    from dupq.errors import SettingError
    from dupq.plan.corrected import corrected, correction, said_of
    from dupq.plan.estimate import estimate
    from dupq.plan.limits import grounds, limits
    from dupq.plan.machines import Machines, Prices
    from dupq.plan.rates import read_gpus, read_rates
    from dupq.plan.table import table, to_json

    rates, gpus, told = read_rates(arguments.rates), read_gpus(), []
    if arguments.run:
        cpus = arguments.run_cpus or arguments.cpus or rates.machine.cpus
        measured = what_took(arguments.run, Machines(cpus=cpus))
        by = correction(rates, measured)
        rates, told = corrected(rates, by), [said_of(by, measured)]
    if arguments.gpu not in gpus.kinds:
        raise SettingError(f"--gpu {arguments.gpu}: one of {', '.join(sorted(gpus.kinds))} expected")
    machines = Machines(
        cpus=arguments.cpus or rates.machine.cpus,
        nodes=arguments.nodes,
        memory_gb=arguments.memory_gb or None,
        gpus=arguments.gpus,
        gpu=gpus.kinds[arguments.gpu] if arguments.gpus else None,
        gpu_efficiency=gpus.efficiency,
        gpu_width=gpus.width,
        request_seconds=arguments.request_ms / 1_000,
        prices=Prices(arguments.price_per_hour, arguments.price_reads, arguments.price_writes),
    )
    plan = estimate(rates, arguments.questions, machines, _JOBS if arguments.planned == "all" else (arguments.planned,))
    if not plan.stages:
        raise SettingError(f"--job {arguments.planned}: {arguments.rates} has no rates of it")
    said = [*limits(plan, machines), *grounds(plan, rates, machines, gpus), *told]
    if arguments.json:
        print(json.dumps(to_json(plan, said), indent=1))
        return
    on = f"{machines.cpus} CPUs" + (f" and {machines.gpus} {arguments.gpu}" if machines.gpus else "")
    print(f"{plan.questions:,} questions on {on} of {machines.nodes} machine(s)\n")
    print("\n".join([table(plan), "", *said]))
