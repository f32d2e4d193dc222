"""The answer to a query as a notebook table, data frame, Arrow table or figure."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from analyze.errors import InputError
from analyze.query.result import Result
from analyze.render import inline
from analyze.render.layout import table_lines, terminal_width
from analyze.render.units import readable

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa

    from analyze.report.output_files import Drawing

Draw = Callable[["Answer", str | None, str | None], "Drawing"]


class Answer(Result):
    """The answer to a query. A notebook shows it as a table.

    The rows are computed when they are first read, and the Arrow table is cached. Libraries that read Arrow take an
    answer: `polars.DataFrame(answer)`, `pandas.DataFrame.from_arrow(answer)`, `duckdb.sql("FROM answer")`.
    """

    def __init__(self, taken: Result, draw: Draw | None = None):
        vars(self).update(vars(taken))
        self._draw = draw
        self._table: pa.Table | None = None

    def arrow(self) -> pa.Table:
        """Return all rows as an Arrow table, in the units of `columns`: ns, bytes, %. Raises InputError."""
        if self._table is None:
            self._table = _plain_numbers(super().arrow())
        return self._table

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return the rows for a library that supports Arrow's PyCapsule interface, without a copy."""
        return self.arrow().__arrow_c_stream__(requested_schema)

    def df(self, units: bool = False) -> pd.DataFrame:
        """Return all rows as a pandas data frame.

        Parameters
        ----------
        units : bool, default False
            False: the numbers as they are (ns, bytes, %) under the names of the columns. Whole numbers stay whole: a
            column of them with gaps is `Int64`. True: as tables show them, `total_ns` as `total (ms)`, in floats; one
            unit for all that is compared.

        Raises
        ------
        InputError
            For an error while rows are computed, and for dates that Python and pandas do not support: infinity,
            years before 1 or after 9999.
        """
        import pandas as pd
        import pyarrow as pa

        table = self.arrow()
        try:
            frame = table.to_pandas()
        except (ValueError, OverflowError):
            _taken(table, lambda column: column.to_pandas())
            raise
        gaps = {pa.int64(): pd.Int64Dtype(), pa.int32(): pd.Int32Dtype(), pa.bool_(): pd.BooleanDtype()}
        for at, column in enumerate(table.columns):
            if column.null_count and column.type in gaps:
                frame.isetitem(at, column.to_pandas(types_mapper=gaps.get))
        if units:
            shown = readable(self.columns, _taken(table, lambda column: column.to_pylist()))
            for at, (_, factor) in enumerate(shown):
                if factor != 1:
                    frame.isetitem(at, frame.iloc[:, at] / factor)
            frame.columns = pd.Index([name for name, _ in shown])
        return frame

    def pl(self) -> pl.DataFrame:
        """Return all rows as a polars data frame, without a copy. Raises InputError if polars is not installed."""
        try:
            import polars as pl
        except ImportError as e:
            raise InputError("polars is not installed: pip install polars") from e
        return pl.DataFrame(self.arrow())

    def plot(self, figure: str | None = None, title: str | None = None) -> Drawing:
        """Draw these rows as the figure that the query declares, which a notebook shows.

        Parameters
        ----------
        figure : str, optional
            Another one than the query's own: `"bars x=total_ns y=name"`.
        title : str, optional
            The title; by default the query's question.

        Raises
        ------
        InputError
            If this is no query's answer, the query declares no figure, or there is nothing to draw.
        """
        if self._draw is None:
            raise InputError("plot: only the answer of a query can be drawn; draw the .df() of others")
        return self._draw(self, figure, title)

    def __repr__(self) -> str:
        table = self.arrow()
        rows = list(zip(*_values(table, range(min(table.num_rows, inline.FIRST + inline.LAST))), strict=True))
        lines = list(table_lines(self.columns, rows, self.main, terminal_width(sys.stdout)))
        more = [f"... of {table.num_rows:,} rows"] if len(rows) < table.num_rows else []
        return "\n".join([*lines, *more, *self.notes])

    def _repr_html_(self) -> str:
        table = self.arrow()
        shown, empty, said = [], [], []
        for at, (column, values) in enumerate(zip(self.columns, table.columns, strict=True)):
            if column.name == "run_id" and values.null_count == 0 and len(values.unique()) == 1:
                said.append(f"run {values[0].as_py()}")
            elif values.null_count == len(values):
                empty.append(column.name)
            else:
                shown.append(at)
        said.append(inline.counted(table.num_rows))
        if table.num_rows and empty:
            said.append(f"no data: {', '.join(empty)}")
        if more := shown[inline.MOST_COLUMNS :]:
            said.append(f"{len(more)} more columns, from {self.columns[more[0]].name} on")
            del shown[inline.MOST_COLUMNS :]
        rows = _values(table.select(shown), inline.shown(table.num_rows))
        body = [inline.table([self.columns[at] for at in shown], rows, table.num_rows)] if shown else []
        return inline.fragment(*body, *inline.lines_of(["; ".join(said), *self.notes]))


def _values(table: pa.Table, at: Sequence[int]) -> list[list[Any]]:
    """Return some rows of each column as Python values."""
    import pyarrow as pa

    chosen = pa.array(at, pa.int64())
    return _taken(table, lambda column: column.take(chosen).to_pylist())


def _taken(table: pa.Table, take: Callable[[pa.ChunkedArray], Any]) -> list[Any]:
    """Apply `take` to each column. Raises InputError for a date or time that Python does not support."""
    found = []
    for name, column in zip(table.column_names, table.columns, strict=True):
        try:
            found.append(take(column))
        except (ValueError, OverflowError) as e:
            raise InputError(f"column {name}: Python has no such date or time: {e}; cast it to VARCHAR") from e
    return found


def _plain_numbers(table: pa.Table) -> pa.Table:
    """Return the table without decimals, which data frames store as objects.

    DuckDB sums integers in 128 bits; they become int64 if they fit. Other decimals become floating-point.
    """
    import pyarrow as pa

    for at, field in enumerate(table.schema):
        if pa.types.is_decimal(field.type):
            try:
                plain = table.column(at).cast(pa.int64() if field.type.scale == 0 else pa.float64())
            except pa.ArrowInvalid:
                plain = table.column(at).cast(pa.float64())
            table = table.set_column(at, field.name, plain)
    return table
