"""Tables of a database, by an SQLAlchemy URL and a query. Only reading is meant."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, quote_plus, unquote_plus

from fedlit.data.reading.names import check_size, chosen, tidy, with_made_names
from fedlit.data.reading.options import Notes, ReadOptions, one_line
from fedlit.data.reading.typed import series_of
from fedlit.errors import ConfigError, FedlitError

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["check_url", "read_sql", "shown_url"]

VARIABLE = re.compile(r"\$\{(\w+)\}")
PASSWORD = re.compile(r"^[\w+.-]+://[^:/?#]*:(?P<password>[^@]*)@")
SECRET = re.compile(r"(?i)\w*(?:password|passwd|pwd|token|secret|api_?key)\w*\s*=\s*(?P<value>[^;&]*)")
CHUNK_ROWS = 20_000


def check_url(url: str) -> None:
    """Refuse a URL that holds a password, so that no configuration, log or checkpoint can hold one.

    Args:
        url: an SQLAlchemy URL, before its ``${NAME}`` are replaced.

    Raises:
        ConfigError: if it does; the message does not show it.

    Example:
        >>> check_url("postgresql://reader:${NORTH_PASSWORD}@db.north.example/cohort")
        >>> check_url("postgresql://reader:hunter2@db.north.example/cohort")
        Traceback (most recent call last):
        ...
        fedlit.errors.ConfigError: database postgresql://…: the URL holds a password. ...
    """
    found = PASSWORD.match(url)
    values = [found.group("password")] if found else []
    values += [own.group("value") for own in SECRET.finditer(unquote_plus(url.partition("?")[2]))]
    if any(value.strip() and not VARIABLE.fullmatch(value.strip()) for value in values):
        raise ConfigError(
            f"database {url.partition('://')[0][:40]}://…: the URL holds a password. Write ${{NAME}} in its place, and "
            f"set the environment variable NAME where fedlit runs."
        )


def shown_url(url: str) -> str:
    """A URL as messages show it: without its password and its query part.

    Example:
        >>> shown_url("postgresql://reader:hunter2@db.north.example/cohort?token=1")
        'postgresql://reader:***@db.north.example/cohort'
    """
    plain = url.partition("?")[0][:200]
    found = PASSWORD.match(plain) or PASSWORD.match(url)
    return plain.replace(f":{found.group('password')}@", ":***@") if found else plain


def read_sql(url: str, options: ReadOptions, notes: Notes) -> pd.DataFrame:
    """Read what a query gives, in chunks.

    Args:
        url: an SQLAlchemy URL; ``${NAME}`` stands for an environment variable, in its user, password, host, database
            and query part.
        options: the query, which columns are kept, how many rows and bytes there may be.
        notes: whose table it is.

    Returns:
        The columns, typed as the database gives them. The transaction is rolled back: only reading is meant.

    Raises:
        ConfigError: if the URL holds a password, a variable is not set, or SQLAlchemy or a driver is not installed.
        DataError: if the database cannot be read. No message shows what a variable holds.
    """
    check_url(url)
    if not options.query:
        raise ConfigError(f"{notes.where}: expected query, a SELECT or the name of a table, found none. Write it.")
    try:
        import sqlalchemy as sa
    except ImportError as error:
        raise ConfigError(f'{notes.where}: needs SQLAlchemy. Run: pip install "fedlit[sql]"') from error
    secrets: set[str] = set()
    failure: FedlitError
    try:
        engine = sa.create_engine(_expanded(sa.make_url(url), notes, secrets), poolclass=sa.NullPool)
        with engine.connect() as connection:
            if engine.dialect.name == "sqlite":
                connection.exec_driver_sql("PRAGMA query_only = ON")
            return _fetched(connection, options, notes)
    except FedlitError:
        raise
    except ImportError as error:
        failure = ConfigError(
            f"{notes.where}: needs a driver that is not installed ({_scrubbed(one_line(error), secrets)}). Install it."
        )
    except sa.exc.NoSuchModuleError:
        failure = ConfigError(
            f"{notes.where}: SQLAlchemy knows no database of the kind {url.partition('://')[0][:40]!r}. For a file "
            f"write its path (it must be here); for a database install its dialect."
        )
    except Exception as error:  # whatever a driver raises may hold the URL
        cause = getattr(error, "orig", None) or error
        failure = notes.error(
            f"cannot be read: {type(cause).__name__}: {_scrubbed(one_line(cause), secrets)}. Check URL, rights "
            f"and query."
        )
    raise failure  # outside of except: what the driver raised would hang on it and could be logged


def _expanded(url: Any, notes: Notes, secrets: set[str]) -> Any:
    """The URL with what environment variables hold; part by part, so that no value needs to be escaped."""

    def value(match: re.Match[str]) -> str:
        name = match.group(1)
        if not (found := os.environ.get(name)):
            raise ConfigError(f"{notes.where}: the environment variable {name} is not set. Set it where fedlit runs.")
        secrets.add(found)
        return found

    def fill(text: str | None) -> str | None:
        return VARIABLE.sub(value, text) if text else text

    query = {
        key: tuple(map(fill, own)) if isinstance(own, tuple) else fill(own) for key, own in (url.query or {}).items()
    }
    url = url.set(
        username=fill(url.username), password=fill(url.password), host=fill(url.host), database=fill(url.database)
    ).set(query=query)
    path = url.database
    if url.get_backend_name() == "sqlite" and path and not path.startswith("file:") and not Path(path).is_file():
        # SQLite would make an empty database of that name.
        raise notes.error("there is no such file. Check the path: sqlite:///relative/path or sqlite:////absolute/path.")
    return url


def _scrubbed(text: str, secrets: Iterable[str]) -> str:
    for secret in sorted(secrets, key=len, reverse=True):
        for form in (secret, quote(secret), quote(secret, safe=""), quote_plus(secret), repr(secret)[1:-1]):
            text = text.replace(form, "***")
    return text


def _fetched(connection: Any, options: ReadOptions, notes: Notes) -> pd.DataFrame:
    import pyarrow as pa
    import sqlalchemy as sa

    connection = connection.execution_options(stream_results=True, max_row_buffer=CHUNK_ROWS)
    query = str(options.query).strip().rstrip(";")
    if re.fullmatch(r"[\w$]+(\.[\w$]+)?", query):
        schema, _, name = query.rpartition(".")
        result = connection.execute(sa.select(sa.text("*")).select_from(sa.table(name, schema=schema or None)))
    else:
        result = connection.exec_driver_sql(query)  # as it stands: a colon in it is no parameter
    if not result.returns_rows:
        raise notes.error("query gives no table: only reading is meant. Write a SELECT.")
    names = with_made_names(tidy(list(result.keys()), notes))
    places = chosen(names, options, notes)
    chunks: list[list[Any]] = [[] for _ in places]
    rows = used = 0
    size = 1000
    while fetched := result.fetchmany(size):
        rows += len(fetched)
        for place, own in zip(places, chunks, strict=True):
            column = _arrow_or_list([row[place] for row in fetched])
            own.append(column)
            used += column.nbytes if isinstance(column, pa.Array) else 64 * len(column)
        check_size(rows, used, options, notes)
        size = max(1, min(CHUNK_ROWS, 2**24 * rows // max(1, used)))
    import pandas as pd

    return pd.DataFrame({names[place]: _series(own) for place, own in zip(places, chunks, strict=True)}, copy=False)


def _arrow_or_list(values: list[Any]) -> Any:
    import pyarrow as pa

    # In SQLite cells of one column may be of several types, and those stay what they are.
    if len({type(value) for value in values} - {type(None)}) <= 1:
        with suppress(pa.ArrowException, OverflowError, TypeError, ValueError):
            return pa.array(values, from_pandas=False)
    return values


def _series(chunks: list[Any]) -> pd.Series:
    import pandas as pd
    import pyarrow as pa

    if chunks and all(isinstance(chunk, pa.Array) for chunk in chunks):
        with suppress(pa.ArrowException):  # where chunks are of several types
            parts = [pa.table([chunk], ["own"]) for chunk in chunks]
            return series_of(pa.concat_tables(parts, promote_options="default").column(0))
    values = (chunk.to_pylist() if isinstance(chunk, pa.Array) else chunk for chunk in chunks)
    return pd.Series([value for chunk in values for value in chunk], dtype=object)
