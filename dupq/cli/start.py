"""Where a job's process begins: its end is watched before anything is imported that takes time."""

from dupq.execution import ends, guard


def main() -> None:
    """The command `dupq` with the arguments of the process, which it ends."""
    with guard.guarded(), ends.heeded():
        from dupq.cli.main import main

        main()


def job(name: str, script_version: str) -> None:
    """The job of a script in jobs/, as in main.py."""
    with guard.guarded(), ends.heeded():
        from dupq.cli.main import job

        job(name, script_version)
