"""Jobs in one process, one after another or side by side, leave nothing to each other."""

import logging
import sys
import threading
import warnings
from contextvars import copy_context
from pathlib import Path

import pytest

from fedlit.__main__ import main
from fedlit.institutions.progress import with_time
from fedlit.session import Session, session
from fedlit.show.shown import say
from fedlit.train.whole import spared

LOG = logging.getLogger("fedlit")


def state() -> tuple[object, ...]:
    """What a job may change in its process."""
    log = list(LOG.handlers), LOG.level, LOG.propagate
    return (*log, warnings.showwarning, sys.stdout, dict(vars(session())))


def test_a_command_leaves_nothing_to_the_next(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = state()
    assert main(["fit", str(tmp_path / "none.yaml")]) == 2
    alone = capsys.readouterr().err
    # a coordinator puts the time before its lines, and has handlers and a level of its own
    assert main(["coordinate", "start", str(tmp_path / "none")]) == 2
    stamped = capsys.readouterr().err
    assert stamped[:2] == "20" and not alone.startswith("20")
    assert main(["fit", str(tmp_path / "none.yaml")]) == 2
    assert capsys.readouterr().err == alone
    assert state() == before


def test_what_was_said_and_joined_ends_with_its_job(capsys: pytest.CaptureFixture[str]) -> None:
    def report() -> str:
        with spared("a.csv", "a table"):
            raise OSError(28, "full")
        return capsys.readouterr().err

    def work() -> None:
        ended: list[bool] = []
        with Session() as job:
            assert report() and not report()
            job.has_joined = True
            job.ranks = object()
            job.is_first = lambda what: False
            say("another rank says it")
            with Session() as inner:  # a job within a job is of the same ranks
                assert inner.ranks is job.ranks
                say("and this")
            assert capsys.readouterr().err == ""
            job.on_end(lambda: ended.append(True))
        assert ended == [True] and session().ranks is None and not session().has_joined

    work()
    work()


def test_jobs_side_by_side_print_each_in_its_own_way() -> None:
    lines: dict[str, list[str]] = {"north": [], "south": []}
    both = threading.Barrier(2, timeout=60)

    def work(site: str) -> None:
        with Session() as job:
            job.prints = lines[site].append
            both.wait()
            say(site)
            helper = threading.Thread(target=copy_context().run, args=(say, f"{site} helps"))
            helper.start()
            helper.join()
            both.wait()

    threads = [threading.Thread(target=work, args=(site,)) for site in lines]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert lines == {site: [site, f"{site} helps"] for site in lines}


def test_messages_of_a_log_are_of_the_job_that_took_it(capsys: pytest.CaptureFixture[str]) -> None:
    with Session():
        with_time(logging.INFO)
        plain = threading.Thread(target=LOG.info, args=("from a thread of a library",))
        plain.start()
        plain.join()
        assert capsys.readouterr().err[:2] == "20"
