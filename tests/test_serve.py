"""`analyze serve`: its pages, who may access them, and how a browser shows them."""

from __future__ import annotations

import http.client
import json
import math
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from html import unescape
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

import pyarrow.parquet as pq
import pytest
from commands import run_cli
from scipy import stats
from support import ROOT, SAMPLES, alive, children
from test_report import HOSTILE, browser, hostile_run, needs_browser, serious, words
from test_verdict import side

import analyze
from analyze.errors import InputError
from analyze.plots.figure import Rows
from analyze.query.query_files import catalog
from analyze.query.selection import DEFAULT
from analyze.serve.addresses import ONLY, Addresses, PageSelection

assert browser  # a fixture

DDP = "20261120-171939-resnet18-b16-g2-fp32-957a"
ONE = "20261120-171855-resnet18-b32-g1-fp32-ffca"


class Said(NamedTuple):
    """An answer of the server."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()


class Server:
    """A server in a process of its own."""

    def __init__(self, *arguments: str | Path):
        command = [sys.executable, "-m", "analyze", "serve", *map(str, arguments), "--no-open", "--port", "0"]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, cwd=ROOT)
        assert self.process.stderr is not None
        lines = iter(self.process.stderr.readline, "")
        self.address = next(line.split()[0] for line in lines if line.startswith("http"))
        self.port = int(re.findall(r":(\d+)/", self.address)[0])

    def ask(self, path: str, data: dict[str, str] | None = None, method: str | None = None, **headers: str) -> Said:
        """An answer, at the address of loopback; `_` in the names of headers is `-`."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        sent = {"Host": f"127.0.0.1:{self.port}", "X-Part": "yes"}
        if data is not None:
            sent["Origin"] = f"http://127.0.0.1:{self.port}"
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        body = urlencode(data) if data is not None else None
        connection.request(
            method or ("GET" if data is None else "POST"), path, body, {k: v for k, v in sent.items() if v}
        )
        answer = connection.getresponse()
        said = Said(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())
        connection.close()
        return said

    def sql(self, statement: str, **more: str) -> Said:
        return self.ask("/sql", {"statement": statement, **more})

    def end(self) -> tuple[int, str]:
        """Ctrl-C: exit status, and what was said."""
        self.process.send_signal(signal.SIGINT)
        _, said = self.process.communicate(timeout=60)
        return self.process.wait(), said


@contextmanager
def serving(*arguments: str | Path) -> Iterator[Server]:
    server = Server(*arguments)
    try:
        yield server
    finally:
        server.process.kill()
        server.process.communicate()


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return hostile_run(tmp_path_factory.mktemp("hostile"))


@pytest.fixture(scope="module")
def server(hostile: Path) -> Iterator[Server]:
    with serving(SAMPLES / "resnet18-1gpu", SAMPLES / "resnet18-ddp2", hostile) as made:
        yield made


def sources(page: str) -> list[str]:
    """The addresses of a page's parts."""
    return [unescape(s) for s in re.findall(r'data-source="([^"]*)"', page)]


# --- what the pages say ---


def test_pages_of_runs(server: Server) -> None:
    front = server.ask("/").text
    assert "3 runs: resnet18" in words(front) and len(front) < 20_000
    assert [s.split("part=")[1] for s in sources(front)][:4] == ["runs.0", "runs.1", "checks", "advice"]
    listed = server.ask("/run?part=runs.0").text
    for run in (ONE, DDP):
        assert f'href="/run?run={run}"' in listed
    page = server.ask(f"/run?run={DDP}").text
    assert "resnet18 batch 16 fp32 on 2 x NVIDIA H200" in words(page)
    parts = sources(page)
    assert f"/run?run={DDP}&part=steps.0" in parts and len(parts) > 20
    steps = server.ask(f"/run?run={DDP}&part=steps.0").text
    # A step leads to what the GPUs did in it; the run goes with it.
    assert f'href="/query/breakdown?run={DDP}&amp;window=step&amp;is.step=3&amp;is.rank=0"' in steps
    assert "FLOP and memory counters" in words(server.ask(f"/run?run={DDP}&part=flops.1").text)
    assert server.ask("/run?part=none.0").status == 400
    assert f'href="/query/stragglers?run={DDP}"' in server.ask(f"/run?run={DDP}&part=advice").text


def test_query_page_shows_its_rows(server: Server) -> None:
    """The figures are those of the Python API."""
    page = server.ask(f"/query/kernel-share?run={DDP}&group=family").text
    assert "<option selected>family</option>" in page and f'value="{DDP}" selected' in page
    [source] = sources(page)
    answer = server.ask(source).text
    expected = analyze.open(SAMPLES / "resnet18-ddp2").query("kernel-share", params={"group": "family"}).dicts()
    assert [int(v) for v in re.findall(r'<td class="n" data-v="(\d+)">', answer)[: len(expected)]]
    assert f'data-v="{expected[0]["total_ns"]}"' in answer and 'class="spec"' in answer
    assert f"analyze query kernel-share {shlex.quote(str(SAMPLES / 'resnet18-1gpu'))}" in unescape(words(answer))
    assert "/query/kernel-durations?run=" in answer
    only = server.ask(f"/query/breakdown?run={DDP}&window=step&is.step=3&is.rank=1&part=answer").text
    assert words(only).count("Table: 1 row") == 1
    few = server.ask(f"/query/breakdown?run={DDP}&window=step&part=answer&" + urlencode({"filter": "step = 3"})).text
    assert words(few).count("Table: 2 rows") == 1 and "--filter 'step = 3'" in unescape(words(few))
    bad = server.ask(f"/query/breakdown?run={DDP}&part=answer&" + urlencode({"filter": "colour = 3"}))
    assert bad.status == 400 and "--filter" in bad.text and "the result has" in bad.text
    grouped = server.ask("/query/gpu-busy?by=gpus&part=answer").text
    # A row of a group leads on with that group alone.
    assert "where=gpus+%3D+2" in grouped
    none = server.ask("/query/collectives?part=answer&" + urlencode({"run": ONE})).text
    assert "No rows: the recording has no communication kernels" in words(none)


def test_answers_as_files(server: Server) -> None:
    expected = analyze.open(SAMPLES / "resnet18-ddp2").query("steps").dicts()
    saved = server.ask(f"/query/steps.json?run={DDP}")
    assert json.loads(saved.body) == expected and saved.headers["content-disposition"].startswith("attachment")
    assert pq.read_table(BytesIO(server.ask(f"/query/steps.parquet?run={DDP}").body)).to_pylist() == expected
    csv = server.ask(f"/query/steps.csv?run={DDP}&is.rank=1").text.splitlines()
    assert len(csv) == 1 + sum(r["rank"] == 1 for r in expected)
    csv = server.ask(f"/query/steps.csv?run={DDP}&" + urlencode({"filter": "step = 3"})).text.splitlines()
    assert len(csv) == 1 + sum(r["step"] == 3 for r in expected)
    assert server.ask("/query/steps.xlsx").status == 400
    rows = server.sql("SELECT 7 AS a", form="csv")
    assert rows.text == "a\n7\n" and "rows.csv" in rows.headers["content-disposition"]
    many = server.sql("SELECT range FROM range(300_000)", form="csv")
    assert many.status == 400 and "200,000 rows" in many.text


def test_comparison_page(server: Server) -> None:
    page = server.ask(f"/compare?a={ONE}&b={DDP}").text
    assert "A: 32; B: 16" in words(page) and len(sources(page)) == 8
    figures = words(server.ask(sources(page)[0]).text)
    # The numbers of `summary` of both; 27.171 / 14.886 ms.
    assert "step time 14.9 ms 27.2 ms +82.5 % cannot tell" in figures
    sent = server.ask(f"/timeline?a={ONE}&b={DDP}").text
    assert {lane["run"] for lane in json.loads(sent)["lanes"]} == {"A", "B"}
    family = server.ask(sources(page)[2]).text
    change = {r["name"]: r["change_ns"] for r in analyze.compare(
        SAMPLES / "resnet18-1gpu", SAMPLES / "resnet18-ddp2", level="family"
    ).answer.dicts()}  # fmt: skip
    assert f'data-v="{change["communication"]}"' in family
    assert "--where-a" in words(family) and server.ask(f"/compare?a={ONE}&b={DDP}&part=99").status == 400


def test_comparison_of_many_runs(tmp_path: Path) -> None:
    """A folder of `collect ab` is served: the form has its sides, and the page verdicts and figures."""
    a, b = (side(tmp_path, name, scale, logs=(0, 0.01)) for name, scale in (("a", 1.0), ("b", 1.1)))
    cells = [{"values": {"side": run.name[0]}, "status": "done", "run": run.name} for run in (*a, *b)]
    (tmp_path / "sweep.json").write_text(json.dumps({"cells": cells}))
    with serving(tmp_path) as server:
        form = server.ask("/compare").text
        chosen = [re.findall(r'value="([^"]+)" selected', select) for select in form.split("</select>")]
        assert chosen[:2] == [["a-0", "a-1"], ["b-0", "b-1"]]
        page = server.ask("/compare?a=a-0&a=a-1&b=b-0&b=b-1").text
        figures, *parts = [server.ask(source).text for source in sources(page)]
    # 10 ms and 1 % more, and 10 % more of both. Welch's test of two runs each, with the logarithms 0 and 0.01.
    test = stats.ttest_ind([math.log(1.1), math.log(1.1) + 0.01], [0, 0.01], equal_var=False)
    interval = test.confidence_interval(0.95)
    low, high = (100 * math.expm1(end) for end in (interval.low, interval.high))
    assert f"+10.0 % {low:+.1f} to {high:+.1f} % slower" in words(figures)
    for title in ("How sure is the change?", "Run by run", "By kernel family: how sure is the change?"):
        [part] = [p for p in parts if title in words(p)]
        assert 'class="spec"' in part


def test_every_drill_down_names_a_query() -> None:
    queries = catalog()
    drills = [(q, d) for q in queries.values() for d in q.drills]
    assert len({q.name for q, _ in drills}) > 20
    for query, drill in drills:
        columns = {c for p in query.params for v in p.choices for c in (v,)} | {c.name for c in query.columns}
        taken = {n for _, text in drill.values for n in re.findall(r"\{(\w+)\}", text)}
        assert drill.column in columns, (query.name, drill)
        assert taken <= columns | {p.name for p in query.params}, (query.name, drill)
        target = queries[drill.query]
        known = {p.name: p for p in target.params}
        for key, text in drill.values:
            if key not in known:
                own = {c.name for c in target.columns} | {v for p in target.params for v in p.choices}
                assert key in own, (query.name, drill)
            elif "{" not in text:
                known[key].parse(text, target.name)


def test_every_linked_cell_leads_to_rows(server: Server) -> None:
    """One for each question that is led to."""
    seen = 0
    for name in ("kernel-share", "steps", "breakdown", "phases", "collective-waits", "memory-by-category"):
        links = re.findall(r'href="(/query/[^"]*)"', server.ask(f"/query/{name}?run={DDP}&part=answer").text)
        targets = {re.split(r"[?&]", unescape(link))[0]: unescape(link) for link in links}
        for link in targets.values():
            said = server.ask(link + "&part=answer")
            assert said.status == 200 and "Table:" in words(said.text), (name, link)
            seen += 1
    assert seen >= 8


def test_names_are_escaped_in_urls() -> None:
    query = catalog()["kernel-share"]
    columns = query.result_columns({"group": "name"})
    link = Addresses(PageSelection("it's", "gpus = 2")).cells(query, Rows(columns, []), {"group": "name"}, ())
    row = ("a&b=<c>", *[1] * (len(columns) - 1))
    pairs = "run=it%27s&where=gpus+%3D+2&" + ONLY + "name=a%26b%3D%3Cc%3E"
    assert link("name", row) == f"/query/kernel-by-phase?{pairs}" and link("calls", row) == ""
    assert link("name", ("y" * 100_000, *row[1:])) == ""
    assert PageSelection("it's").narrow(DEFAULT).where == ("run_id = 'it''s'",)


# --- SQL ---


def test_sql_page(server: Server) -> None:
    answer = server.sql("SELECT count(*) AS n FROM kernels", run=ONE).text
    [expected] = analyze.open(SAMPLES / "resnet18-1gpu").sql("SELECT count(*) AS n FROM kernels").dicts()
    assert f">{expected['n']:,}<" in answer
    wrong = server.sql("SELECT dur FROM kernels")
    assert wrong.status == 400 and "dur_ns" in wrong.text and "<p" in wrong.text
    assert "did you mean kernels" in unescape(server.sql("SELECT * FROM kernelz").text)
    cut = words(server.sql("SELECT * FROM range(5000)").text)
    assert "The first 1,000 rows; there are more." in cut and "Table: 1000 rows" in cut
    # Writing it down does not run it.
    assert "no_such" in (box := server.ask("/sql?statement=SELECT+no_such").text) and "Error" not in box


@pytest.mark.parametrize(
    "statement",
    [
        "COPY kernels TO '/tmp/tracequarry-test.csv'", "ATTACH '/tmp/x.db'", "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM '/etc/passwd'", "INSTALL httpfs", "SET threads = 1", "SELECT getenv('HOME')", "DROP TABLE runs",
        "SELECT 1; SELECT 2", "WITH a AS (DELETE FROM runs RETURNING *) SELECT * FROM a", "PRAGMA database_list",
    ],
)  # fmt: skip
def test_sql_reads_the_tables_and_nothing_else(server: Server, statement: str) -> None:
    said = server.sql(statement)
    assert said.status == 400 and "root:" not in said.text
    assert not Path("/tmp/tracequarry-test.csv").exists()
    # Nor as an expression of --where.
    assert server.ask("/query/runs?part=answer&" + urlencode({"where": statement})).status == 400


SLOW = "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t WHERE n < 1_000_000_000) SELECT max(n) FROM t"


def test_time_limit_stops_a_long_query_and_others_proceed() -> None:
    with serving(SAMPLES / "late-rank", "--time-limit", "3") as server, ThreadPoolExecutor() as beside:
        slow = [beside.submit(server.sql, SLOW) for _ in range(2)]  # as many as are worked on at a time
        time.sleep(0.2)
        assert server.ask("/query/runs?part=answer").status == 200
        assert not any(s.done() for s in slow)
        for s in slow:
            assert s.result().status == 503 and "stopped after 3 s" in s.result().text
        # On a busy machine, to start a process may take as long as the limit.
        assert any(server.sql("SELECT 1").status == 200 for _ in range(6))


def test_query_stops_when_the_client_disconnects() -> None:
    """The time limit is longer than any client waits."""
    with serving(SAMPLES / "late-rank", "--time-limit", "3600") as server, ThreadPoolExecutor() as beside:
        # One that nobody waits for any more makes room for the next.
        for _ in range(3):
            left = http.client.HTTPConnection("127.0.0.1", server.port)
            own = {"Host": f"127.0.0.1:{server.port}", "Origin": f"http://127.0.0.1:{server.port}"}
            left.request("POST", "/sql", urlencode({"statement": SLOW}), own)
            time.sleep(0.2)
            left.close()
        assert server.sql("SELECT 1").status == 200
        # Ctrl-C in the middle of one, and while the process of another starts.
        before = children(server.process.pid)
        beside.submit(server.sql, SLOW)
        beside.submit(server.ask, "/query/runs?part=answer&" + urlencode({"where": LONG}))
        until = time.monotonic() + 30
        while not children(server.process.pid) - before and time.monotonic() < until:
            time.sleep(0.01)
        assert server.end() == (130, "")


LONG = "levenshtein(repeat('a', 300000), repeat('b', 300000)) > 0"


def test_time_limit_stops_a_long_expression_and_others_proceed() -> None:
    """DuckDB does not stop inside one call of a function, so the process is killed."""
    with serving(SAMPLES / "late-rank", "--time-limit", "3") as server, ThreadPoolExecutor() as beside:
        address = "/query/runs?part=answer&" + urlencode({"where": LONG})
        slow = [beside.submit(server.ask, address) for _ in range(2)]
        time.sleep(0.2)
        assert server.ask("/query/runs?part=answer").status == 200
        for s in slow:
            assert s.result().status == 503 and "stopped after 3 s" in s.result().text
        assert any(server.ask("/query/runs?part=answer").status == 200 for _ in range(6))
        # Of those three workers the one that is whole, and the process for its figures.
        assert sum(map(alive, children(server.process.pid))) <= 2


def test_memory_limit_is_enforced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACEQUARRY_MEMORY", "1GB")
    with serving(SAMPLES / "late-rank") as server:
        for where in ("len(repeat('x', 2_000_000_000)) > 0", "len(range(1_000_000_000)) > 0"):
            said = server.ask("/query/runs?part=answer&" + urlencode({"where": where}))
            assert said.status in (400, 503) and "out of memory" in said.text.lower()
        for statement in ("SELECT range(1_000_000_000)", "SELECT count(DISTINCT i) FROM range(300_000_000) t(i)"):
            said = server.sql(statement)
            assert said.status in (400, 503) and "out of memory" in said.text.lower()
        # A process that has drawn a figure goes on.
        assert server.ask("/query/kernel-share?part=answer").status == 200
        assert [server.ask("/run?part=advice").status for _ in range(3)] == [200] * 3


def test_visitors_cannot_change_the_database(server: Server) -> None:
    for statement in (
        "/* /* */ EXPLAIN SELECT 1 -- */ CREATE OR REPLACE VIEW runs AS SELECT 1 AS x",
        "CREATE OR REPLACE VIEW runs AS SELECT 1 AS x",
        "SELECT 1 --\r; CREATE OR REPLACE VIEW runs AS SELECT 1 AS x",
        "SHOW allowed_paths",
        "SELECT * FROM pg_catalog.pg_settings",
    ):
        said = server.sql(statement)
        assert said.status == 400 and str(SAMPLES) not in unescape(said.text)
    assert ONE in server.ask("/query/runs?part=answer").text


# --- who may ask ---


def test_idle_connections_do_not_block_others() -> None:
    with serving(SAMPLES / "late-rank") as server:
        idle = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(230)]
        until = time.monotonic() + 20
        while (status := answered(server)) != 200 and time.monotonic() < until:
            time.sleep(0.5)
        assert status == 200
        for one in idle:
            one.close()


def answered(server: Server) -> int:
    """The status of a page; 0 where the connection was closed."""
    try:
        return server.ask("/queries").status
    except (OSError, http.client.HTTPException):
        return 0


def test_requests_of_other_origins_are_rejected(server: Server) -> None:
    own = f"127.0.0.1:{server.port}"
    for host in ("evil.example", f"evil.example:{server.port}", f"127.0.0.1.evil.example:{server.port}", "192.168.0.7"):
        assert server.ask("/", Host=host).status == 421
    # The port may be that of a tunnel.
    for host in (own, "localhost", f"LOCALHOST:{server.port}", "localhost:9999", f"[::1]:{server.port}"):
        assert server.ask("/queries", Host=host).status == 200, host
    statement = {"statement": "SELECT 1"}
    for origin in ("http://evil.example", "null", "", f"http://127.0.0.1:{server.port + 1}", f"http://x{own}"):
        assert server.ask("/sql", statement, Origin=origin).status == 403, origin
    assert server.ask("/sql", statement).status == 200
    for site in ("cross-site", "same-site"):
        assert (
            server.ask("/queries", Sec_Fetch_Site=site, Sec_Fetch_Mode="no-cors", Sec_Fetch_Dest="image").status == 403
        )
        followed = {"Sec_Fetch_Site": site, "Sec_Fetch_Mode": "navigate"}
        assert server.ask("/queries", **followed, Sec_Fetch_Dest="document").status == 200
        # A link that asks something could keep the server busy.
        for path in ("/query/runs", "/query/runs?part=answer&where=1=1", "/?part=advice", "/run?run=x", "/queries?x"):
            assert server.ask(path, **followed, Sec_Fetch_Dest="document").status == 403, path
        assert server.ask("/queries", **followed, Sec_Fetch_Dest="iframe").status == 403


def test_headers_methods_and_paths(server: Server) -> None:
    said = server.ask("/")
    policy = said.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy and "frame-ancestors 'none'" in policy
    assert said.headers["x-content-type-options"] == "nosniff" and said.headers["cache-control"] == "no-store"
    assert "server" not in said.headers and "access-control-allow-origin" not in said.headers
    assert not re.search(r"<script(?![^>]*\bsrc=|[^>]*application/json)|<[^<>]* on\w+=|<style", said.text)
    for method in ("PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"):
        assert server.ask("/", method=method).status == 405
    assert server.ask("/queries", {}).status == 405
    for path in ("/static/", "/static/app.py", "/static/%2e%2e/app.py", "/static/..%2f..%2fcli.py", "/etc/passwd",
                 "/query/../../x", "/query/..%2f..%2fruns", "//etc/passwd"):  # fmt: skip
        said = server.ask(path)
        assert said.status in (400, 404) and "import" not in said.text, path
    assert server.ask("/sql", {"statement": "SELECT 1" + " " * 300_000}).status == 413


def test_other_addresses_require_a_token() -> None:
    with serving(SAMPLES / "late-rank", "--host", "0.0.0.0") as server:
        token = server.address.split("?token=")[1]
        assert len(token) >= 40
        for path in ("/", "/sql", "/static/page.js", "/?token=", "/?token=" + "x" * 43):
            assert server.ask(path).status == 403, path
        assert server.ask("/", Cookie=f"tracequarry-{server.port}=wrong").status == 403
        first = server.ask(f"/query/runs?rows=5&token={token}")
        assert first.status == 303 and first.headers["location"] == "/query/runs?rows=5"
        cookie = first.headers["set-cookie"]
        assert "HttpOnly" in cookie and "samesite=strict" in cookie.lower() and token in cookie
        known = {"Cookie": cookie.split(";")[0]}
        assert server.ask("/queries", **known).status == 200
        assert server.ask("/queries", **known, Host=f"192.168.0.7:{server.port}").status == 200
        assert server.ask("/queries", **known, Host="evil.example").status == 421
        assert server.ask("/sql", {"statement": "SELECT 1"}, **known, Origin="http://evil.example").status == 403
        # The token is no way to another site.
        assert server.ask(f"//evil.example/?token={token}").headers["location"] == "/evil.example/"


def test_invalid_input_is_one_sentence(server: Server) -> None:
    traces = analyze.open(SAMPLES / "late-rank")
    with pytest.raises(InputError, match="no run matched --where, --profiler or --block"):
        traces.where("model = 'none'").serve(show=lambda address: None)
    for options, sentence in (
        ({"port": server.port}, f"cannot listen on 127.0.0.1, port {server.port}: "),
        ({"host": "no.such.host.invalid"}, "cannot listen on no.such.host.invalid, port 0: "),
        ({"time_limit": 0}, "must be more than 0 s"),
    ):
        with pytest.raises(InputError, match=sentence):
            traces.serve(**options, show=lambda address: None)
    result = run_cli("serve", SAMPLES / "late-rank", "--no-open", "--port", server.port)
    assert result.returncode == 2 and "cannot listen on" in result.stderr and "Traceback" not in result.stderr


# --- in a browser ---


class Opened:
    """A page in the browser, and what it did that it must not."""

    def __init__(self, browser: Any, server: Server, path: str, width: int = 1200, scheme: str = "light"):
        self.context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        self.context.set_default_timeout(120_000)
        self.said: list[str] = []
        self.page = self.context.new_page()
        self.page.on("console", lambda m: self.said.append(m.text))
        self.page.on("pageerror", lambda e: self.said.append(str(e)))
        self.page.on("dialog", lambda d: (self.said.append(d.message), d.dismiss()))
        self.page.on("request", lambda r: r.url.startswith(server.address) or self.said.append(r.url))
        self.page.goto(server.address + path)

    def whole(self) -> None:
        """Reach all of it: every part is there, every figure drawn."""
        self.page.locator("#theme[aria-label*=system]").wait_for()  # the script of the page has run
        # The server has a part of a core while tests run beside it, and tens of parts to answer.
        self.page.evaluate(
            "async () => { for (let p, end = Date.now() + 120e3; Date.now() < end &&"
            " (p = document.querySelector('.wait'));) {"
            " p.scrollIntoView(); await new Promise(r => setTimeout(r, 50)); } }"
        )
        assert self.page.locator(".wait").count() == 0
        self.page.evaluate("dispatchEvent(new Event('beforeprint'))")
        self.page.wait_for_function("[...document.querySelectorAll('.plot')].every(p => p.dataset.drawn)")

    def close(self, name: str, usable: bool = True) -> None:
        """Nothing was said on the console, no other machine was asked, and who cannot see or point can use it."""
        if screenshots := os.environ.get("TRACEQUARRY_SCREENSHOTS"):
            self.page.screenshot(path=f"{screenshots}/serve-{name}.png", full_page=True)
        assert self.page.evaluate("document.documentElement.scrollWidth <= innerWidth"), (
            "nothing is wider than the screen"
        )
        assert not usable or serious(self.page) == []
        assert self.said == []
        self.context.close()


@needs_browser
def test_browser_follows_linked_cells(browser: Any, server: Server) -> None:
    opened = Opened(browser, server, "")
    page = opened.page
    page.get_by_role("link", name=DDP).click()
    page.wait_for_url(re.compile(r"/run\?run="))
    opened.whole()
    marks = page.evaluate(
        "[...document.querySelectorAll('.plot')].map(p => p.querySelectorAll("
        "'.mark-rect path, .mark-line path, .mark-symbol path, .mark-arc path').length)"
    )
    assert len(marks) >= 12 and min(marks) >= 1, marks
    # The theme of the figures came with them.
    assert page.evaluate("getComputedStyle(document.querySelector('.plot .role-axis-label text')).fontSize") == "12px"
    page.locator("#steps details.table summary").first.click()
    heads = page.locator("#steps table").first.locator("th[data-name=step_ns] button")
    heads.click()
    cells = page.locator("#steps table").first.locator("td:nth-child(4)").all_text_contents()
    assert cells == sorted(cells, key=float, reverse=True) and len(cells) == 4
    page.locator("#steps table").first.get_by_role("link", name="3", exact=True).first.click()
    page.wait_for_url(re.compile("is.step=3"))
    opened.whole()
    assert "is.step=3" in page.url and page.locator("tbody tr").count() == 1 and page.locator(".chip").count() == 2
    page.locator(".chip").first.click()
    page.wait_for_url(re.compile("window=step&is.rank=0$"))
    opened.whole()
    assert page.locator("tbody tr").count() == 2
    opened.close("question")


@needs_browser
def test_sql_page_in_dark_mode_on_a_phone(browser: Any, server: Server) -> None:
    opened = Opened(browser, server, "sql", width=375, scheme="dark")
    page = opened.page
    page.locator("textarea").fill("SELECT name, sum(dur_ns) AS dur_ns FROM kernels GROUP BY name ORDER BY 2 DESC")
    page.locator("textarea").press("Control+Enter")
    page.locator("#result table").wait_for()
    assert "statement=SELECT" in page.url and page.locator("#result tbody tr").count() > 20
    # One that takes long can be cancelled.
    page.locator("textarea").fill(SLOW)
    page.get_by_role("button", name="Run").click()
    page.get_by_role("button", name="Cancel").click()
    page.get_by_text("cancelled").wait_for()
    assert page.locator("#cancel").is_hidden()
    opened.close("sql")


@needs_browser
def test_html_in_names_is_escaped_in_pages(browser: Any, server: Server, hostile: Path) -> None:
    [run] = analyze.open(hostile).query("runs").arrow().column("run_id").to_pylist()
    opened = Opened(browser, server, "query/kernel-share?" + urlencode({"run": run}))
    opened.whole()
    page = opened.page
    assert page.locator("main img, main script:not(.spec):not(.config)").count() == 0
    shown = page.evaluate("document.querySelector('main').textContent")
    assert "<script>alert(1)</script>" in shown and "\x1b" not in shown and "\u202e" not in shown
    # What it leads to is asked for by the name as it is.
    page.locator("tbody a", has_text="alert").first.click()
    page.locator(".chip").wait_for()
    opened.whole()
    assert "<script>alert(1)" in page.locator(".chip").text_content()
    assert page.evaluate(f"new URL(location).searchParams.get('{ONLY}name')") == HOSTILE
    opened.close("hostile", usable=False)
