"""`tfrun serve [options] SCRIPT …`: a job whose other machines join by hand."""

from __future__ import annotations

from typing import Any

import click

from tfrun.cli.main import run as whole
from tfrun.cluster.address import parse_address
from tfrun.job.errors import UsageError
from tfrun.job.spec import MAX_WORKERS

CONTEXT = {
    "help_option_names": ["-h", "--help"],
    "auto_envvar_prefix": "TFRUN_SERVE",
    "allow_interspersed_args": False,
}
EPILOG = (
    "It says what to run on each other machine. The file with the token has to get there by a way "
    "that nobody else reads. The job starts when there are places for all workers."
)
# What says which machines: here nobody knows yet.
OTHERS = ("hosts", "hostfile", "cluster", "remote_python", "remote_dir", "env", "sync", "ps")
OWN: list[click.Parameter] = [
    click.Option(
        ["-n", "--workers"], metavar="N|MIN:MAX", required=True, help="Number of workers."
    ),
    click.Option(
        ["--listen"],
        metavar="ADDRESS:PORT",
        help="Where to listen.  [default: all interfaces, any free port]",
    ),
    click.Option(
        ["--slots"],
        type=click.IntRange(0, MAX_WORKERS),
        default=1,
        show_default=True,
        help="Workers on this machine.",
    ),
    click.Option(
        ["--token-file"],
        metavar="FILE",
        help="The job's secret; made when it is not there.  [default: <run-dir>/token]",
    ),
    click.Option(["--tls-cert"], metavar="FILE", help="Certificate, in PEM: encrypt with TLS."),
    click.Option(["--tls-key"], metavar="FILE", help="Its private key, in PEM."),
]


def _serve(
    *,
    listen: str | None,
    slots: int,
    token_file: str | None,
    tls_cert: str | None,
    tls_key: str | None,
    **options: Any,
) -> int:
    """Run a script on machines that join with `tfrun join`."""
    from tfrun.cli import run as verb
    from tfrun.launch.serve import EVERYWHERE, Serving

    if bool(tls_cert) != bool(tls_key):
        fix = "Give both, or none"
        raise UsageError("TFRUN-107", "--tls-cert and --tls-key belong together", fix=fix)
    host, port = _listen(listen) if listen else (EVERYWHERE[0], 0)
    serving = Serving(
        host=host,
        port=port,
        slots=slots,
        token_file=token_file or "",
        cert=tls_cert or "",
        key=tls_key or "",
    )
    absent: dict[str, Any] = dict.fromkeys(OTHERS) | {"env": (), "sync": False, "ps": 0}
    return verb.run(**options, **absent, serving=serving)


def _listen(text: str) -> tuple[str, int]:
    """Reads `ADDRESS:PORT`, `:PORT` or `ADDRESS`, where the port may be 0 and the address any."""
    from tfrun.launch.serve import EVERYWHERE

    for anywhere in (*EVERYWHERE, "[::]", ""):
        if text == anywhere:
            return anywhere.strip("[]") or EVERYWHERE[0], 0
        rest = text.removeprefix(f"{anywhere}:")
        if rest != text and rest.isdecimal() and len(rest) <= 5 and int(rest) <= MAX_WORKERS:
            return anywhere.strip("[]") or EVERYWHERE[0], int(rest)
    host, colon, port = text.rpartition(":")
    if colon and port == "0" and host:
        return host.strip("[]"), 0
    if not colon:
        return text, 0
    address = parse_address(text, where="--listen")
    return address.host, address.port


serve = click.Command(
    "serve",
    context_settings=CONTEXT,
    callback=_serve,
    params=[*OWN, *(p for p in whole.params if p.name not in (*OTHERS, "workers", "version"))],
    help=_serve.__doc__,
    epilog=EPILOG,
)
