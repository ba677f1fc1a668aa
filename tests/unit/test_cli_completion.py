"""What a shell completes, as click's scripts for bash, zsh and fish ask for it."""

from __future__ import annotations

import pytest

from conftest import Jobs
from tfrun.cli.completion import SHELLS, verb_of
from tfrun.cli.main import VERBS


@pytest.mark.parametrize(
    ("words", "at", "verb", "left"),
    [
        ("tfrun ", "1", [], "tfrun "),
        ("tfrun tu", "1", [], "tfrun tu"),
        ("tfrun tune", "1", [], "tfrun tune"),
        ("tfrun tune ", "2", ["tune"], "tfrun"),
        ("tfrun tune --st", "2", ["tune"], "tfrun --st"),
        ("tfrun train.py tune", "2", [], "tfrun train.py tune"),
        ("tfrun tune 'a b' --st", "3", ["tune"], "tfrun 'a b' --st"),
        ("tfrun tune", "tune", [], "tfrun tune"),  # fish
        ("tfrun tune --st", "--st", ["tune"], "tfrun --st"),
        ("tfrun tune", "", ["tune"], "tfrun"),
    ],
)
def test_the_verb_is_found(words: str, at: str, verb: list[str], left: str) -> None:
    environment = {"COMP_WORDS": words, "COMP_CWORD": at}
    assert (verb_of(environment, VERBS), environment["COMP_WORDS"]) == (verb, left)


def test_verbs_and_their_options_are_completed(jobs: Jobs) -> None:
    wanted = {
        ("tfrun tu", 1): "plain,tune\nplain,tuesday.py\n",
        ("tfrun train", 1): "file,train\n",
        ("tfrun --hang", 1): "plain,--hang-timeout\n",
        ("tfrun tune --st", 2): "plain,--start\nplain,--steps\n",
        ("tfrun render kubernetes --names", 3): "plain,--namespace\n",
        ("tfrun serve -n 2 tues", 4): "file,tues\n",
        # What stands behind the script is the script's: tfrun would not see --keep there.
        ("tfrun train.py --ke", 2): "file,--ke\n",
        ("tfrun -n 2 train.py --ke", 4): "file,--ke\n",
        ("tfrun tune train.py --st", 3): "file,--st\n",
        ("tfrun serve -n 2 train.py --ke", 5): "file,--ke\n",
        ("tfrun submit slurm train.py --no", 4): "file,--no\n",
    }
    jobs.script("", "tuesday.py")
    for (words, at), told in wanted.items():
        asked = {"_TFRUN_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(at)}
        done = jobs.run(env=asked, timeout=30)
        assert (done.stdout, done.stderr) == (told, "")


def test_a_shell_that_is_not_known_is_told_of_those_that_are(jobs: Jobs) -> None:
    """It printed nothing, and `eval "$(…)"` in a shell's file looked as if it worked."""
    for asked in ("tcsh_source", "bash_sauce", "bash"):
        done = jobs.run(env={"_TFRUN_COMPLETE": asked}, timeout=30)
        assert (done.stdout, done.returncode) == ("", 2)
        assert done.stderr.startswith(f"tfrun: TFRUN-105: {asked!r} is not a shell")
        assert all(f"{shell}_source" in done.stderr for shell in SHELLS)
    for shell in SHELLS:
        done = jobs.run(env={"_TFRUN_COMPLETE": f"{shell}_source"}, timeout=30)
        assert (done.stderr, done.returncode) == ("", 0) and "_TFRUN_COMPLETE" in done.stdout


def test_an_empty_variable_asks_for_nothing(jobs: Jobs) -> None:
    done = jobs.run("--version", env={"_TFRUN_COMPLETE": ""}, timeout=30)
    assert done.stdout.startswith("tfrun, version")
