"""`analyze mcp`: a client of the Model Context Protocol queries the server over stdio."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from commands import complaints, run_cli
from support import ROOT, SAMPLES
from traces import kernel, write_trace

import analyze
from analyze import agents
from analyze.query.query_files import catalog

DDP = SAMPLES / "resnet18-ddp2"
Ask = Callable[..., Awaitable[tuple[bool, str]]]


def session(talk: Callable[[Any, Ask], Awaitable[None]], *paths: Path) -> None:
    """Talk to `analyze mcp PATHS` with the client and a function that calls a tool: (whether it failed, its text)."""
    mcp = pytest.importorskip("mcp", reason="needs the package mcp (the dev extra has it)")
    from mcp.client.stdio import StdioServerParameters, stdio_client

    async def main() -> None:
        server = StdioServerParameters(
            command=sys.executable,
            args=["-m", "analyze", "mcp", *map(str, paths)],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        async with stdio_client(server) as streams, mcp.ClientSession(*streams) as client:
            await client.initialize()

            async def ask(tool: str, **arguments: Any) -> tuple[bool, str]:
                result = await client.call_tool(tool, arguments)
                return bool(result.is_error), "".join(part.text for part in result.content)

            await talk(client, ask)

    asyncio.run(main())


def test_tools_match_the_api_and_errors_are_sentences() -> None:
    traces = analyze.open(DDP)
    run_id = traces.query("runs").arrow()["run_id"].to_pylist()[0]

    async def talk(client: Any, ask: Ask) -> None:
        tools = {t.name: t for t in (await client.list_tools()).tools}
        assert set(tools) == {
            "list_queries", "describe_query", "run_query", "run_sql", "tables", "advise", "compare"
        }  # fmt: skip
        assert all(t.description and t.annotations.read_only_hint for t in tools.values())

        _, listed = await ask("list_queries")
        assert [line.split(" ")[0] for line in listed.splitlines()] == [
            q.name for q in sorted(catalog().values(), key=lambda q: (q.group, q.name))
        ]
        _, described = await ask("describe_query", name="kernel-share")
        assert "Parameter group = 'name'" in described and "Column total_ns [ns]: " in described
        assert "SELECT" not in described
        assert "SELECT" in (await ask("describe_query", name="kernel-share", sql=True))[1]

        expected = traces.query("kernel-share", by=["rank"], params={"group": "family"}, limit=3).dicts()
        _, text = await ask("run_query", name="kernel-share", params={"group": "family"}, by=["rank"], limit=3)
        answer = json.loads(text)
        assert [dict(zip(answer["columns"], row, strict=True)) for row in answer["rows"]] == expected
        assert answer["columns"]["total_ns"] == "ns"
        assert answer["notes"] == [
            "cut: there are more than these 3 rows; narrow with where, filter or select, or sum up"
        ]

        _, text = await ask("run_query", name="kernel-share", filter="calls = 4 AND name LIKE '%softmax%'")
        assert json.loads(text)["rows"] == [
            list(row) for row in traces.query("kernel-share").rows() if "softmax" in row[0] and row[1] == 4
        ]
        _, text = await ask("run_sql", statement="SELECT rank, count(*) AS n FROM kernels GROUP BY rank ORDER BY rank")
        assert json.loads(text)["rows"] == [
            list(r.values())
            for r in traces.sql("SELECT rank, count(*) AS n FROM kernels GROUP BY rank ORDER BY rank").dicts()
        ]

        _, text = await ask("tables", name="kernels")
        assert "dur_ns int64 [ns]: " in text
        _, text = await ask("advise", min_pct=5)
        found = json.loads(text)
        assert [row[1] for row in found["rows"]] == traces.advise(min_pct=5).arrow()["finding"].to_pylist()

        _, text = await ask("compare", where_a=f"run_id = '{run_id}' AND rank = 0", where_b="rank = 1", level="family")
        expected = analyze.compare(DDP, DDP, level="family", where_a="rank = 0", where_b="rank = 1").answer.dicts()
        answer = json.loads(text)
        assert [dict(zip(answer["columns"], row, strict=True)) for row in answer["rows"]] == expected
        assert "calls and times are per training step" in answer["notes"][0]

        # Nothing is written.
        for tool, arguments, says in (
            ("run_query", {"name": "kernel-shares"}, "there is no query 'kernel-shares'; did you mean kernel-share"),
            ("run_query", {"name": "kernel-share", "limit": 0}, "limit 0: must be from 1 to 200"),
            ("run_query", {"name": "kernel-share", "where": "colour = 1"}, "--where 'colour = 1'"),
            ("run_query", {"name": "kernel-share", "by": ["colour"]}, "--by colour: runs has no such column"),
            ("run_query", {"name": "launch", "params": {"call_us": "x"}}, "call_us must be a number, not 'x'"),
            ("run_sql", {"statement": "SELECT * FROM '/etc/passwd'"}, "SQL: "),
            ("run_sql", {"statement": "COPY (SELECT 1) TO '/tmp/x.csv'"}, "SQL: "),
            (
                "run_sql",
                {"statement": "/* /* */ EXPLAIN SELECT 1 -- */ COPY (SELECT 1) TO '/tmp/x.csv'"},
                "SQL: only one",
            ),
            ("run_sql", {"statement": "SELECT 1 / 'a'::INT FROM kernels"}, "SQL: "),
            ("tables", {"name": "colours"}, "there is no table 'colours'"),
            ("list_queries", {"group": "x"}, "there is no group 'x'"),
            ("compare", {"where_a": "rank = 0", "where_b": "rank = 9"}, "compare: B has no run"),
            ("advise", {"where": "rank = 9"}, "advise: no run matched --where, --profiler or --block"),
        ):
            failed, text = await ask(tool, **arguments)
            assert failed and says in text and "Traceback" not in text, text
        # It still answers.
        assert not (await ask("run_query", name="gpu-busy"))[0]

    session(talk, DDP)


def test_answers_are_bounded(tmp_path: Path) -> None:
    long = "k" * 5000
    path = write_trace(tmp_path / "t.json", [kernel(f"{long}{n}", n, 1) for n in range(300)])

    async def talk(_: Any, ask: Ask) -> None:
        for tool, arguments in (
            ("run_query", {"name": "kernel-share", "limit": 200}),
            ("run_sql", {"statement": "SELECT name, dur_ns FROM kernels", "limit": 200}),
        ):
            _, text = await ask(tool, **arguments)
            answer = json.loads(text)
            assert len(json.dumps(answer["rows"])) <= agents.MOST_CHARACTERS + 2 * len(answer["rows"]) + 2
            assert 20 < len(answer["rows"]) < 200
            assert all(len(str(row[0])) == agents.MOST_OF_A_TEXT + 1 for row in answer["rows"])
            assert [note.split(":")[0] for note in answer["notes"]] == ["cut", "cut"]
        statement = (
            "SELECT 'nan'::DOUBLE AS a, [1, NULL] AS b, DATE '2026-01-02' AS c, 2::DECIMAL(9, 2) AS d, NULL AS e"
        )
        assert json.loads((await ask("run_sql", statement=statement))[1])["rows"] == [
            [None, "[1, None]", "2026-01-02", "2.00", None]
        ]
        _, text = await ask("run_query", name="collectives")
        assert json.loads(text)["notes"] == [
            "no rows: the recording has no communication kernels (needs more than one GPU)"
        ]

    session(talk, path)


def test_missing_mcp_package_is_named() -> None:
    code = (
        "import sys\n"
        "sys.modules['mcp'] = None\n"
        f"sys.argv = ['analyze', 'mcp', {str(DDP)!r}]\n"
        "from analyze.cli.main import main; main()"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert result.returncode == 2
    [said] = complaints(result)
    assert said.startswith("analyze: mcp: needs `pip install 'tracequarry[mcp]'` (")


def test_missing_path_is_one_sentence() -> None:
    result = run_cli("mcp", "no/such/file")
    assert (result.returncode, len(complaints(result))) == (2, 1)
