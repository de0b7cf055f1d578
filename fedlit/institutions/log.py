"""Log lines that begin with their date and time of day."""

import logging
import time


def stamped(line: str) -> str:
    """Return a line with the date and time before it.

    Example:
        >>> stamped("round 3")[19:]
        ' round 3'
    """
    return f"{time.strftime('%Y-%m-%d %H:%M:%S')} {line}"


class _Said(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        from fedlit.show.shown import say

        say(record.getMessage())


def with_time(level: int = logging.WARNING) -> None:
    """Put the date and time before everything that this process prints or logs from now on.

    Args:
        level: the lowest level of fedlit's messages that is logged.
    """
    from fedlit.show.shown import print_notice, say_by

    say_by(lambda text: print_notice(stamped(text)))
    log = logging.getLogger("fedlit")
    log.handlers = [_Said()]
    log.setLevel(level)
