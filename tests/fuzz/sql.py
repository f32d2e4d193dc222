"""Statements for the walls around SQL of unknown origin: `python tests/fuzz/sql.py --statements 100000 --seed 1`.

A grammar makes texts of statements of every kind, joined, nested and cut, with comments that nest, line ends of every
kind, quotes, encodings and letters that look like others. Each text is asked in both ways, and the laws are:

1. A text that passes the first wall is one statement of type SELECT to DuckDB's own parser.
2. Whatever runs, with the first wall or without it, nothing is written, and nothing of another file is shown.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import duckdb

sys.path.insert(0, str(Path(__file__).parents[1]))

from traces import kernel, write_trace

import analyze
from analyze.errors import InputError
from analyze.query.engine import Engine
from analyze.query.sql_checks import check_expression, check_select, module_statements, one_select
from analyze.store.store import Store

SECRET = "the-secret-of-another-file"
_SPACES = (" ", "  ", "\n", "\t", "\r", "\r\n", "\v", "\f", "\u00a0", "\u2028", "\ufeff", "")
_COMMENTS = (
    "/* c */",
    "/* /* c */ */",
    "/* /* */",
    "/**/",
    "/*/**/",
    "*/",
    "/*",
    "-- c\n",
    "-- c\r",
    "-- c\r\n",
    "-- c",
    "--\r",
    "/* -- */",
    "-- */\n",
    "-- /*\n",
    "/* ' */",
    "-- '\n",
    "# c\n",
    "//c\n",
    "--\u2028",
    "--\u0085",
    "--\f",
)
_QUOTES = ("'", '"', "$$", "$q$", "E'\\'", "U&'", "x'", "`", "''''", '""', "\u2019", "\u02bc", "\u037e", "\uff1b")


class Place:
    """A store, a secret file next to it, and what both hold."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.secret = folder / "secret.csv"
        self.secret.write_text(f"{SECRET}\n1\n")
        analyze.ingest(write_trace(folder / "raw" / "t.json", [kernel("k", 0, 5)]), store=folder / "store")
        self.engine = Engine([Store(folder / "store")], read_only=True)
        assert self.engine.sql("SELECT count(*) FROM kernels").rows() == [(1,)]
        [self.parquet] = (folder / "store" / "kernels").rglob("*.parquet")
        self.before = self.content()

    def content(self) -> dict[str, str]:
        """Every file and its bytes, as a digest."""
        files = [p for p in sorted(self.folder.rglob("*")) if p.is_file()]
        return {str(p): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


class Grammar:
    """Texts of statements."""

    def __init__(self, place: Place, seed: int):
        self.random = random.Random(seed)
        self._files = [str(place.folder / "out.csv"), str(place.parquet), "stored://0.parquet", "stored://9.parquet"]
        self._secret = str(place.secret)

    def text(self) -> str:
        """A text to be asked: statements, joined and damaged."""
        choice = self.random.choice
        parts = [self.statement() for _ in range(choice((1, 1, 1, 2, 3)))]
        text = choice((";", "; ", ";\n", " ", "\r", ";;", "-- \r;")).join(parts)
        if self.random.random() < 0.5:
            text = self.sprinkled(text)
        if self.random.random() < 0.3:
            text = self.damaged(text)
        return text

    def statement(self) -> str:
        """A statement of any kind."""
        r = self.random
        return r.choice((self.select, self.select, self.writer, self.wrapped))()

    def writer(self) -> str:
        """A statement that writes, changes settings or reads another file."""
        file = self.random.choice(self._files)
        options = self.random.choice(
            ("", " (USE_TMP_FILE false)", " (FORMAT csv)", " (FORMAT parquet, OVERWRITE true)")
        )
        return self.random.choice(
            (
                f"COPY (SELECT 42 a) TO '{file}'{options}",
                f"COPY kernels TO '{file}'{options}",
                f"COPY (SELECT 42 a) TO (getvariable('p')){options}",
                "COPY kernels FROM 'x.csv'",
                f"ATTACH '{file}.db' AS z",
                f"EXPORT DATABASE '{file}.d'",
                f"IMPORT DATABASE '{file}.d'",
                "CHECKPOINT",
                f"SET temp_directory = '{file}'",
                f"PRAGMA profiling_output = '{file}'",
                "SET lock_configuration = false",
                "SET enable_external_access = true",
                "RESET allowed_paths",
                "INSTALL httpfs",
                "LOAD httpfs",
                "CALL enable_logging(storage = 'file')",
                "PREPARE x AS SELECT 1",
                "EXECUTE x",
                "DEALLOCATE x",
                "CREATE OR REPLACE VIEW runs AS SELECT 1",
                "CREATE TABLE t AS SELECT 1",
                "DROP VIEW runs",
                "VACUUM",
                "INSERT INTO run_groups SELECT * FROM run_groups",
                "DELETE FROM run_groups",
                "UPDATE run_groups SET rank = 9",
                "ALTER TABLE run_groups ADD COLUMN x INT",
                "TRUNCATE run_groups",
                "BEGIN",
                "COMMIT",
                "USE memory",
                "DETACH z",
                f"CREATE SECRET s (TYPE s3, KEY_ID '{file}')",
                "CREATE TYPE t AS ENUM ('a')",
                "COMMENT ON VIEW runs IS 'x'",
                "MERGE INTO run_groups USING runs ON true WHEN MATCHED THEN DELETE",
                "SET VARIABLE p = 'x'",
            )
        )

    def select(self) -> str:
        """A SELECT, perhaps one that may not run."""
        inner = self.random.choice(
            (
                "kernels",
                "runs",
                "range(3) r(i)",
                f"'{self._secret}'",
                f"read_text('{self._secret}')",
                f"read_csv('{self._secret}')",
                "glob('*')",
                "duckdb_settings()",
                "pg_catalog.pg_settings",
                "(SHOW allowed_paths)",
                "query('SELECT 1')",
                f"query_table('{self._secret}')",
                "(VALUES (1)) v(x)",
                "information_schema.tables",
            )
        )
        return self.random.choice(
            (
                f"SELECT * FROM {inner}",
                f"FROM {inner}",
                f"TABLE {inner}",
                f"WITH a AS (SELECT 1) SELECT * FROM a, {inner}",
                f"SELECT (SELECT count(*) FROM {inner})",
                f"SUMMARIZE {inner}",
                f"DESCRIBE FROM {inner}",
                "SHOW TABLES",
                "SHOW allowed_paths",
                "SHOW ALL TABLES",
                "SELECT getenv('HOME')",
                "SELECT current_setting('temp_directory')",
                f"PIVOT {inner} ON x USING count(*)",
                f"SELECT 1 UNION ALL SELECT count(*) FROM {inner}",
                "VALUES (1), (2)",
                f"WITH RECURSIVE t AS (SELECT 1 n UNION ALL SELECT n + 1 FROM t WHERE n < 3) SELECT * FROM t, {inner}",
            )
        )

    def wrapped(self) -> str:
        """A statement inside another."""
        inner = self.random.choice((self.writer, self.select))()
        return self.random.choice(
            (
                f"EXPLAIN {inner}",
                f"EXPLAIN ANALYZE {inner}",
                f"WITH x AS ({inner}) SELECT 1",
                f"SELECT ({inner})",
                f"SELECT 1 WHERE EXISTS ({inner})",
                f"WITH x AS MATERIALIZED ({inner}) SELECT * FROM x",
                f"SELECT * FROM query('{inner.replace(chr(39), chr(39) * 2)}')",
                f"CREATE MACRO m() AS TABLE {inner}",
                f"CREATE VIEW v AS {inner}",
                f"COPY ({inner}) TO '{self.random.choice(self._files)}'",
                f"({inner})",
                f"/* /* */ EXPLAIN SELECT 1 -- */ {inner}",
                f"SELECT 1 --\r; {inner}",
                f"-- \r{inner}",
                f"SELECT $$ {inner} $$",
                f"PREPARE p AS {inner}",
                f"SELECT '{inner}'",
                f'SELECT "{inner}"',
            )
        )

    def sprinkled(self, text: str) -> str:
        """Comments and odd spaces in the places of spaces, and letters of another case."""
        out = []
        for c in text:
            if c == " " and self.random.random() < 0.4:
                out.append(self.random.choice(_COMMENTS + _SPACES))
            else:
                out.append(c.swapcase() if self.random.random() < 0.1 else c)
        return "".join(out)

    def damaged(self, text: str) -> str:
        """A piece cut out, doubled, or put in."""
        at = self.random.randrange(len(text) + 1)
        to = min(len(text), at + self.random.randrange(12))
        piece = self.random.choice((*_QUOTES, *_COMMENTS, ";", "(", ")", "\0", "\udcff", "\x1a", text[at:to], ""))
        return text[:at] + piece + text[self.random.choice((at, to)) :]


def asked(place: Place, text: str) -> Iterator[tuple[str, bool]]:
    """Ask a text in each way that the first wall takes texts, and without it; what was asked, and whether it passed."""
    connection = place.engine.connection
    for what, check in (("select", check_select), ("block", module_statements), ("expression", check_expression)):
        try:
            found = check(connection, text, "fuzz")
        except InputError:
            yield what, False
            continue
        if what == "select":
            [alone] = duckdb.extract_statements(text)
            assert alone.type == duckdb.StatementType.SELECT, text
            run(place, found, text)
        if what == "block":
            assert {s.type for s in found or ()} <= {duckdb.StatementType.CREATE}, text
        if what == "expression":
            with suppress(InputError):  # "x;" is an expression alone
                run(place, one_select(f"SELECT * FROM runs WHERE (\n{text}\n)", "fuzz"), text)
        yield what, True
    run(place, text, text)
    yield "bare", True


def run(place: Place, statement: object, text: str) -> None:
    """Run something and look at what it shows."""
    connection = place.engine.connection
    try:
        done = connection.execute(statement)  # type: ignore[arg-type]
        shown = str(done.fetchmany(50)) if done else ""
    except (duckdb.Error, UnicodeError, TypeError):
        return
    # A text that holds the name of the secret's file may show it; its content is in no text.
    assert SECRET not in shown, text


def fuzz(folder: Path, statements: int, seed: int) -> Counter[str]:
    """Ask so many texts. Returns how many passed in which way. Raises AssertionError for a broken law."""
    place, passed = Place(folder), Counter[str]()
    grammar = Grammar(place, seed)
    for number in range(statements):
        text = grammar.text()
        for what, through in asked(place, text):
            passed[what] += through
        if number % 500 == 499:
            assert place.content() == place.before, f"something was written by one of {number - 498} to {number + 1}"
            # What ran without the first wall may have changed or closed tables of this connection.
            place.engine.close()
            place.engine = Engine(place.engine.stores, read_only=True)
            place.engine.sql("SELECT count(*) FROM kernels, runs").rows()
    assert place.content() == place.before
    return passed


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--statements", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print(given.statements, "statements:", dict(fuzz(Path(folder), given.statements, given.seed)))


if __name__ == "__main__":
    main()
