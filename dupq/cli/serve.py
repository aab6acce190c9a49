"""Show all of a run in a browser on this machine."""

import argparse

from dupq.cli.options import uri

DESCRIPTION = "Show all clusters of a run in a browser, from a server on this machine that only it can reach."
PORT = 8321


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument(
        "--run", required=True, metavar="URI", type=uri, help="a run's folder, or a folder of runs for the latest"
    )
    parser.add_argument("--port", type=_port, default=PORT, metavar="N", help="the port on 127.0.0.1; 0: any free one")


def _port(text: str) -> int:
    """The type of an argument that is a port."""
    if not (text.isascii() and text.isdigit() and len(text) <= 5 and int(text) < 65_536):
        raise argparse.ArgumentTypeError(f"'{text}': a whole number from 0 to 65535 expected")
    return int(text)


def run(arguments: argparse.Namespace) -> None:
    """Serve until Ctrl-C. Needs no Ray."""
    from dupq.runs.reader import finished_run

    run = finished_run(arguments.run)
    from dupq.serve.server import ADDRESS, Server, serve  # with what draws: later than the check

    def ready(server: Server) -> None:
        print(f"open http://{ADDRESS}:{server.server_port}/ in a browser; Ctrl-C ends it", flush=True)

    serve(run, arguments.port, ready)
