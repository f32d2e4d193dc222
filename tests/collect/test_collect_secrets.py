"""No file of a run folder contains secrets of the environment or the command line."""

from __future__ import annotations

import gzip
import json
import os
import re
import shlex
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from collect_support import ROOT, Collect, environment, start

from collect.injected.trace_files import private_folder
from collect.option_checks import make_options
from collect.profilers.nsys_scrub import scrub_export
from collect.redact import Redactor, is_secret_name, safe_variables
from collect.run_folder import RunFolder, remove_unfinished, run_id
from collect.sweep.plan import read_plan
from collect.sweep.state import SweepState, load_state, save_state
from schemas import tools
from schemas.manifest import Manifest, is_run_id, write_manifest
from schemas.sweep import Cell

NSYS = tools.NSYS.find()
SECRETS = [f"planted-{i}-xyzzy" for i in range(8)]
PLANTED = {
    "NVIDIA_API_KEY": SECRETS[0],
    "DB_PW": SECRETS[1],
    "TORCH_BEARER": SECRETS[2],
    "UNKNOWN_TO_ALL": SECRETS[3],
    "NCCL_DEBUG_FILE": f"https://user:{SECRETS[4]}@host/x",
}
ARGUMENTS = ["--token", SECRETS[5], f"--password={SECRETS[6]}", "--lr", "0.1", f"https://me:{SECRETS[7]}@host/"]


def everything(folder: Path) -> dict[str, bytes]:
    """All files of a folder as they are, compressed ones unpacked."""
    files = {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    return {name: gzip.decompress(data) if name.endswith(".gz") else data for name, data in files.items()}


def test_torch_pass_of_a_program(collect: Collect, tmp_path: Path) -> None:
    package = tmp_path / "site/own-1.dist-info"
    package.mkdir(parents=True)
    (package / "METADATA").write_text(f"Name: own\nVersion: 1+{SECRETS[0]}\n")
    script = tmp_path / "program.py"
    script.write_text(f"import sys\nsys.path.append({str(package.parent)!r})\nimport torch\ntorch.ones(2) + 1\n")
    ran = collect("--", sys.executable, str(script), *ARGUMENTS, **PLANTED)
    assert ran.code == 0, ran.stderr
    files = everything(ran.folder)
    assert {"run.json", "torch/rank-0.trace.json.gz", "torch/log.txt"} <= set(files)
    assert [(name, s) for name, data in files.items() for s in SECRETS if s.encode() in data] == []
    # What is no secret stays: the run can still be understood.
    program = ran.manifest.program or []
    assert program[2:] == ["--token", "***", "--password=***", "--lr", "0.1", "https://***@host/"]
    assert ran.manifest.command[-6:] == ran.manifest.passes[0].command[-6:] == program[2:]
    assert ran.manifest.environment["NCCL_DEBUG_FILE"] == "https://***@host/x"
    assert ran.manifest.packages["own"] == "1+***"


@pytest.mark.usefixtures("one_nsys")
@pytest.mark.skipif(NSYS is None, reason="needs nsys on PATH or in TRACEQUARRY_NSYS")
def test_nsys_pass(collect: Collect) -> None:
    program = ["sh", "-c", "echo $DB_PW", *ARGUMENTS]
    more = {**PLANTED, "RANK": "3", "TRACEQUARRY_NSYS": str(NSYS)}
    ran = collect("--profiler", "nsys", "--nsys-trace", "osrt", "--no-echo", "--", *program, **more)
    assert ran.code == 0, ran.stderr
    files = everything(ran.folder)
    # The report holds all of it, so it is not kept; the log holds what the program printed.
    assert set(files) == {"run.json", "nsys/log.txt", "nsys/node-0.sqlite"}
    assert SECRETS[1].encode() in files.pop("nsys/log.txt")
    assert [(name, s) for name, data in files.items() for s in SECRETS if s.encode() in data] == []
    # No other variable's assignment either, quoted or not, in a row or in a page that is free.
    assert [
        name
        for name, value in os.environ.items()
        for form in (f'{name}="{value}', f"{name}={value}")
        if len(value) > 3 and name not in safe_variables(os.environ) and form.encode() in files["nsys/node-0.sqlite"]
    ] == []
    with closing(sqlite3.connect(ran.folder / "nsys/node-0.sqlite")) as db:
        kept = {v for (v,) in db.execute("SELECT value FROM META_DATA_CAPTURE WHERE name LIKE '%ENVIRON%'")}
        assert 'RANK="3"' in kept and 'NCCL_DEBUG_FILE="https://***@host/x"' in kept
        arguments = [v for (v,) in db.execute("SELECT value FROM META_DATA_CAPTURE WHERE name LIKE '%ARGUMENT%'")]
        assert arguments[-6:] == ["--token", "***", "--password=***", "--lr", "0.1", "https://***@host/"]
    assert ran.manifest.passes[0].counted_steps is None and ran.manifest.workload.steps is None


@pytest.mark.usefixtures("one_nsys")
@pytest.mark.skipif(NSYS is None, reason="needs nsys on PATH or in TRACEQUARRY_NSYS")
def test_nsys_report_is_kept_on_request(collect: Collect) -> None:
    asked = ["--profiler", "nsys", "--nsys-trace", "osrt", "--keep-report"]
    ran = collect(*asked, "--", "true", TRACEQUARRY_NSYS=str(NSYS))
    assert ran.code == 0 and "contains the whole environment" in ran.stderr
    assert {f.kind for f in ran.manifest.passes[0].files} == {"nsys_report", "nsys_sqlite", "log"}


def make_export(path: Path) -> None:
    """An export with the tables that matter, as nsys 2023.4 declares them: two kernels of one process, and leaks."""
    with closing(sqlite3.connect(path)) as db:
        db.executescript(
            """
            CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
            CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (
                start INTEGER NOT NULL, -- ns
                globalPid INTEGER, -- Serialized GlobalId.
                unlike INTEGER NOT NULL -- REFERENCES StringIds(id) -- Kernel name
            );
            CREATE TABLE ThreadNames (nameId INTEGER NOT NULL, priority INTEGER, globalTid INTEGER);
            CREATE TABLE PROCESSES (globalPid INTEGER, pid INTEGER, name TEXT);
            CREATE TABLE ProcessStreams (globalPid INTEGER, filenameId INTEGER, contentId INTEGER);
            CREATE TABLE TARGET_INFO_SYSTEM_ENV (name TEXT NOT NULL, value TEXT NOT NULL);
            CREATE TABLE META_DATA_CAPTURE (name TEXT NOT NULL, value TEXT);
            CREATE TABLE DIAGNOSTIC_EVENT (text TEXT);
            """
        )
        strings = ["kernel", "main thread", "other's thread", "A=secret-in-string B=2", "printed-secret"]
        db.executemany("INSERT INTO StringIds VALUES (?, ?)", enumerate(strings))
        db.executemany("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, 0)", [(1, 7 << 24), (2, 7 << 24)])
        db.executemany("INSERT INTO ThreadNames VALUES (?, 0, ?)", [(1, (7 << 24) + 5), (2, (8 << 24) + 6)])
        db.executemany("INSERT INTO PROCESSES VALUES (?, ?, ?)", [(7 << 24, 7, "python"), (8 << 24, 8, "neighbour")])
        db.execute("INSERT INTO ProcessStreams VALUES (?, 4, 4)", (7 << 24,))
        system = [("Hostname", "vm"), ("NvDriverVersion", "580"), ("DeviceEnvironment", "A=secret-in-system")]
        db.executemany("INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES (?, ?)", system)
        captured = [
            ("PROCESS_0:ENVIRONMENT_VARIABLE", v) for v in ('A="secret-in-row"', 'NCCL_ALGO="Ring"', 'RANK="1"')
        ]
        db.executemany("INSERT INTO META_DATA_CAPTURE VALUES (?, ?)", [*captured, ("RATE_HZ", "0")])
        db.execute("INSERT INTO DIAGNOSTIC_EVENT VALUES ('cannot open known-secret-value')")
        db.commit()


def test_scrubbed_export(tmp_path: Path) -> None:
    source, target = tmp_path / "raw.sqlite", tmp_path / "clean.sqlite"
    make_export(source)
    scrub_export(source, target, {"MY_TOKEN": "known-secret-value"})
    data = target.read_bytes()
    leaks = ["secret-in", "printed-secret", "known-secret", "neighbour", "other's"]
    assert [leak for leak in leaks if leak.encode() in data] == []
    with closing(sqlite3.connect(target)) as db:

        def all_of(table: str) -> list[tuple]:
            return db.execute(f"SELECT * FROM {table} ORDER BY 1, 2").fetchall()

        # The names of what was recorded stay, told by the schema (unlike) or by the column's own name (nameId).
        assert all_of("StringIds") == [(0, "kernel"), (1, "main thread")]
        assert len(all_of("CUPTI_ACTIVITY_KIND_KERNEL")) == 2
        assert all_of("TARGET_INFO_SYSTEM_ENV") == [("Hostname", "vm"), ("NvDriverVersion", "580")]
        assert [v for _, v in all_of("META_DATA_CAPTURE")] == ['NCCL_ALGO="Ring"', 'RANK="1"', "0"]
        assert db.execute("SELECT text FROM DIAGNOSTIC_EVENT").fetchall() == [("cannot open ***",)]


@pytest.mark.parametrize(
    ("argv", "shown"),
    [
        (["--api-key", "x", "--epochs", "3"], ["--api-key", "***", "--epochs", "3"]),
        (["-password", "x"], ["-password", "***"]),
        (["--hf-token=x", "--max-tokens", "4096"], ["--hf-token=***", "--max-tokens", "4096"]),
        (["WANDB_API_KEY=x", "python", "t.py"], ["WANDB_API_KEY=***", "python", "t.py"]),
        (["+auth.token=x", "model=resnet"], ["+auth.token=***", "model=resnet"]),
        (["--url", "https://u:p@host/x?token=y&page=2"], ["--url", "https://***@host/x?token=***&page=2"]),
        (["git+https://x@host/repo"], ["git+https://***@host/repo"]),
        (["-u", "user:x"], ["-u", "***"]),
        (["-u", "train.py"], ["-u", "train.py"]),
        (["sh", "-c", "DB_PASS='a b' run --secret x --lr 1"], ["sh", "-c", "DB_PASS=*** run --secret *** --lr 1"]),
        (["python", "-c", "d = {'password': 'x'}"], ["python", "-c", "d = {'password': ***}"]),
        (["ghp_abcdefghijklmnopqrst1", "hf_abcdefghijklmnopqrst"], ["***", "***"]),
        (["known-to-the-environment/x"], ["***/x"]),
        (["--tokenizer", "gpt2", "--author", "me", "--path", "/a/b"],) * 2,
        (["--use-auth", "--lr", "1"],) * 2,
    ],
)
def test_secrets_in_arguments_are_redacted(argv: list[str], shown: list[str]) -> None:
    redactor = Redactor({"MY_SECRET": "known-to-the-environment", "PWD": str(Path.cwd()), "KEY": "short"})
    assert redactor.arguments(argv) == shown


X = "Xa9-x_Zq7"
"""What must not be left of a secret."""
BASIC = "dXNlcjpYYTkteF9acTc="  # user:Xa9-x_Zq7
PEM = f"-----BEGIN RSA PRIVATE KEY-----\n{X}AAAA\n{X}BBBB\n-----END RSA PRIVATE KEY-----"
TOKENS = [
    "sk_live_" + "4eC39HqLyjWDarjtT1zdp7dc", "rk_test_" + "4eC39HqLyjWDarjtT1zdp7dc", "npm_" + "a1B2" * 9,
    "ya29." + "a0AfH6SMBx-1", "ASIA" + "IOSFODNN7EXAMPLE", "AKIA" + "IOSFODNN7EXAMPLE",
    "pypi-" + "AgEIcHlwaS5vcmcCJGQ4", "nvapi-" + "abcdefghijklmnopqrst", "xoxb-" + "123456789012-abcdef",
    "SG." + "a" * 22 + "." + "b" * 43, "glpat-" + "abcdefghijklmnopqrst", "github_pat_" + "a" * 22,
    "AccountKey=" + "a" * 86 + "==", "123456789:" + "A" * 35, "sq0csp-" + "a" * 43,
    "GOCSPX-" + "abcdefghijklmnopqrst", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abcdefgh",
]  # fmt: skip


@pytest.mark.parametrize("token", TOKENS)
@pytest.mark.parametrize("around", ["{}", "--x={}", "x {} y", "'{}'", '{{"a":"{}"}}', "https://host/{}?a=1", "x\n{}\n"])
def test_tokens_of_known_formats_are_redacted(token: str, around: str) -> None:
    text = around.format(token)
    for shown in (Redactor({}).text(text), *Redactor({}).arguments(["run", text])):
        assert token.removeprefix("AccountKey=")[4:] not in shown
    assert token[4:] not in Redactor({}).tokens(text)


@pytest.mark.parametrize(
    "argv",
    [
        # Headers.
        ["curl", "-H", f"Authorization: Basic {X}"],
        ["curl", "-H", f"authorization: Digest username=\"me\", realm=\"a b\", response=\"{X}\""],
        ["curl", "-H", f"Authorization: Bearer {X}"],
        ["curl", "-H", f"Proxy-Authorization: Basic {X}"],
        ["curl", f"-HAuthorization: Basic {X}"],
        ["curl", f"--header=Authorization: Basic {X}"],
        ["curl", "-H", f"Cookie: a=b; sid={X}"],
        ["curl", "-H", f"Set-Cookie: a=b; sid={X}; Path=/"],
        ["curl", "-H", f"X-Api-Key: {X}"],
        ["sh", "-c", f"curl -H 'Authorization: Digest username=\"me\", response=\"{X}\"' https://host"],
        ["sh", "-c", f"curl -H \"Authorization: Digest username=\\\"me\\\", response=\\\"{X}\\\"\" https://host"],
        ["sh", "-c", f"curl -H \"Cookie: a=b; sid={X}\" https://host"],
        ["sh", "-c", f"curl -H Authorization:\\ Basic\\ {X} https://host"],
        ["echo", f"Basic {BASIC}"],
        ["curl", "--cookie", f"a=b; sid={X}"],
        # Values with blanks, quotes, commas and dashes.
        ["run", f"--password=a {X}"],
        ["run", f"--password=a,{X}"],
        ["run", f"PASSWORD=a {X}"],
        ["run", "--secret", f"-{X}"],
        ["run", "--secret", f"--{X}"],
        ["run", "--password", f"a {X}"],
        ["sh", "-c", f"run --password='a {X}'"],
        ["sh", "-c", f"run --password=a\\ {X}"],
        ["sh", "-c", f"run --password='a'\"b {X}\"c"],
        ["sh", "-c", f"run --password \"a\\\" {X}\""],
        ["sh", "-c", f"run --password=a,{X}"],
        ["sh", "-c", f"run --password -{X} --lr 1"],
        ["sh", "-c", f"run --password '{X}"],
        ["sh", "-c", f"TOKEN=a,{X} run"],
        ["ssh", "host", f"bash -c 'run --token {X}'"],
        ["run", f"--arguments=--token {X} --lr 1"],
        ["run", "--arguments=--token", X],
        # JSON and Python.
        ["run", json.dumps({"password": f'a"{X}'})],
        ["run", json.dumps({"a": [{"password": f"a'\\{X}"}]})],
        ["run", json.dumps({"passwords": ["a", X]})],
        ["run", json.dumps({"credentials": {"name": X}})],
        ["run", json.dumps(json.dumps({"password": f'a"{X}', "b": 1}))],
        ["run", json.dumps({"args": ["--token", X]})],
        ["run", "--json", "x=" + json.dumps({"password": f'a"{X}'})],
        ["run", repr({"password": f"a'\"{X}"})],
        ["run", f"d['password'] = 'a {X}'"],
        ["run", f"{{'a': {{'password': '{X}'}}, 'b': 1"],
        # URLs and logins.
        ["git", "clone", f"https://me:{X}@host/a.git"],
        ["git", "clone", f"https://me:p@{X}@host/a.git"],
        ["git", "clone", f"https://{X}@host/a.git"],
        ["run", f"postgresql+psycopg://me:{X}@host:5432/a"],
        ["curl", f"https://host/a?page=1&api_key={X}"],
        ["curl", f"https://bucket.host/a?X-Amz-Signature={X}&a=b"],
        ["curl", "-u", f"me:{X}"],
        ["curl", f"-ume:{X}"],
        ["curl", f"--user=me:{X}"],
        ["sh", "-c", f"curl -u me:{X} https://host"],
        # Private keys.
        ["run", PEM],
        ["run", "--key", PEM],
        ["run", f"--x={PEM}"],
        ["run", json.dumps({"a": PEM})],
        ["run", PEM.partition("-----END")[0]],
        ["run", PEM.replace("RSA ", "")],
        ["run", PEM.replace("RSA", "OPENSSH")],
        ["run", PEM.replace("RSA PRIVATE KEY", "PGP PRIVATE KEY BLOCK")],
        ["sh", "-c", f"cat <<END\n{PEM}\nEND"],
        ["run", f"PuTTY-User-Key-File-2: ssh-rsa\n{X}"],
    ],
)  # fmt: skip
def test_secrets_are_redacted_whole(argv: list[str]) -> None:
    redactor = Redactor({})
    shown = redactor.arguments(argv)
    assert len(shown) == len(argv) and shown[0] == argv[0]
    assert not [part for part in (X, BASIC) if part in " ".join(shown)], shown
    assert redactor.arguments(shown) == shown, "a second time, it stays the same"
    if not any(quote in argument for argument in argv for quote in "\"'"):  # a shell quotes them in many ways
        said = redactor.text("failed: " + shlex.join(argv))
        assert not [part for part in (X, BASIC) if part in said], said


@pytest.mark.parametrize(
    "argv",
    [
        ["python", "train.py", "--lr", "-0.1", "--use-auth", "--lr", "1", "--max-tokens", "4096"],
        ["git", "checkout", "4eb7a1d60e9d5b2c4a7cf0a0cd2e6a4a25e3f1b9"],
        ["run", "NCCL_COMM_ID=10.0.0.1:1234", "0x7f3a5c0", "1e-4", "sha256:" + "a1" * 32, "/a/b-c_d.e:/f"],
        ["void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, std::array<char*, 1ul> >"],
        ["ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"],
        ["run", "Basic training", "basic block", "--", "x"],
        ["run", '{"lr": 0.1, "name": "a b", "list": [1, "x"]}', "{a,b}", "[1, 2"],
        ["run", "-----BEGIN CERTIFICATE-----\nabc\n-----END CERTIFICATE-----", "it's", 'a"b', "\\"],
    ],
)
def test_text_without_secrets_is_unchanged(argv: list[str]) -> None:
    assert Redactor({}).arguments(argv) == argv


def test_recordings_without_secrets_are_unchanged() -> None:
    """The samples' command lines and environments, and the names of kernels and operators in them."""
    redactor = Redactor({})
    samples = sorted((ROOT / "sample_traces").rglob("run.json"))
    assert len(samples) > 5
    for path in samples:
        data = json.loads(path.read_text("utf-8"))
        data.pop("packages", None)  # names such as detect-secrets; only tokens are looked for in them
        assert redactor.anything(data) == data, path
        assert safe_variables(data["environment"]) == data["environment"], path
    for path in (ROOT / "sample_traces").rglob("*.json.gz"):
        names = set(re.findall(r'"name": ?"((?:[^"\\]|\\.)*)"', gzip.decompress(path.read_bytes()).decode()))
        assert [name for name in names if redactor.tokens(name) != name] == [], path


def test_long_texts_are_scanned() -> None:
    """No text takes long: patterns that go back and forth over one would take minutes."""
    for part in (
        "a",
        "-",
        "--a ",
        "'",
        '"',
        "\\",
        '\\"',
        " ",
        "{[",
        "://",
        "a=",
        "authorization:'",
        "--token ",
        "basic ",
    ):
        Redactor({}).text(part * (4096 // len(part)))
    assert Redactor({}).text("a=" * 4096 + "token=x") == "a=" * 4096 + "token=***"


def test_library_is_loaded_only_when_needed() -> None:
    code = "import sys, collect.cli, collect.redact; print([m for m in sys.modules if 'detect_secrets' in m])"
    said = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert said.stdout == "[]\n"


def test_text_that_is_not_a_command_line_is_scanned() -> None:
    redactor = Redactor({"MY_SECRET": "known-to-the-environment", "PWD": str(Path.cwd())})
    for text in ("KeyError: 'model'", "rank 1: out of GPU memory", str(Path.cwd() / "x")):
        assert redactor.text(text) == text
    kernel = "void sort<KeyT=int>(mask-abcdefghijklmnopqrstuvwxyz)"
    assert redactor.tokens(kernel) == kernel


def test_secret_environment_variables_are_redacted() -> None:
    secret = "DB_PW NCCL_PASS X_PASSWORD A_AUTH MY_CREDENTIALS A_BEARER NVIDIA_API_KEY apiKey HF_TOKEN GITHUB_PAT"
    assert [n for n in secret.split() if not is_secret_name(n)] == []
    harmless = "CUDA_VISIBLE_DEVICES NCCL_ALGO OMP_NUM_THREADS PYTORCH_CUDA_ALLOC_CONF TORCH_HOME PATH COMPASS"
    assert [n for n in harmless.split() if is_secret_name(n)] == []
    # An allow-list: what is not known to matter is not written down, whatever its name.
    given = {
        "NCCL_DEBUG": "INFO",
        "MY_HOBBY": "x",
        "NVIDIA_ACCOUNT": "x",
        "TORCH_X_AUTH": "x",
        "HOME_OF_NCCL_DEBUG": "x",
    }
    assert safe_variables(given) == {"NCCL_DEBUG": "INFO"}
    assert safe_variables({"TORCH_HOME": "s3://u:p@b/x", "RANK": "0"}) == {"RANK": "0", "TORCH_HOME": "s3://***@b/x"}


def test_sweep_state_holds_no_secrets(tmp_path: Path) -> None:
    plan = tmp_path / "plan.toml"
    plan.write_text('[grid]\nprogram = [["p", "--token", "s1-xyzzy"], ["p", "--token", "s2-xyzzy"]]\n')
    read = read_plan(plan)
    state = SweepState(plan=str(plan), options=read.options, cells=[Cell(values=v) for v in read.cells])
    state.cells[1].status = "done"
    save_state(tmp_path, state)
    assert "xyzzy" not in (tmp_path / "sweep.json").read_text()
    # Taken up again, each cell has its own state, and its own values.
    again = load_state(tmp_path, read)
    assert [(c.values["program"][2], c.status) for c in again.cells] == [("s1-xyzzy", "pending"), ("s2-xyzzy", "done")]


@pytest.mark.parametrize("command", ["job", "sweep"])
def test_run_folders_are_private(tmp_path: Path, command: str) -> None:
    """Under the umask of most systems, which the program keeps; so are all folders that are made around them."""
    script = tmp_path / "program.py"
    script.write_text("import os, torch\ntorch.ones(2) + 1\nprint(oct(os.umask(0)))\n")
    (tmp_path / "plan.toml").write_text(f'[options]\nprogram = ["{sys.executable}", "program.py"]\n')
    program = ["--", sys.executable, "program.py"]
    arguments = {
        "job": ["run", "-o", "a/b/runs", "--no-echo", "--job", "j", *program],
        "sweep": ["sweep", "plan.toml", "-o", "a/b/runs", "--launcher", "local"],
    }[command]
    run = [sys.executable, "-P", "-m", "collect", *arguments]
    done = subprocess.run(run, cwd=tmp_path, env=environment(), capture_output=True, text=True, umask=0o022)
    assert done.returncode == 0, done.stderr
    made = [tmp_path / "a", *(tmp_path / "a").rglob("*")]
    assert {"run.json", "log.txt", "rank-0.trace.json.gz"} <= {path.name for path in made}
    assert {path: oct(path.stat().st_mode) for path in made if path.stat().st_mode & 0o077} == {}
    (log,) = (path for path in made if path.name == "log.txt")
    assert "0o22" in log.read_text().splitlines()


def test_links_are_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (tmp_path / "run.json").symlink_to(victim)
    write_manifest(tmp_path, Manifest(run_id="x", start="", command=[]))
    assert victim.read_text() == "mine"
    assert json.loads((tmp_path / "run.json").read_text())["run_id"] == "x"
    with private_folder(tmp_path) as temporary:
        work = Path(temporary)
        assert work.stat().st_mode & 0o077 == 0
        (work / "trace.json").touch()
        # What a killed process leaves is removed; of a link to somewhere else, the link only.
        outside = tmp_path / "outside"
        outside.mkdir()
        (tmp_path / ".part-link").symlink_to(outside)
        remove_unfinished(tmp_path)
        assert not work.exists() and outside.exists() and not (tmp_path / ".part-link").is_symlink()
        work.mkdir()
    assert not [p for p in tmp_path.iterdir() if "part" in p.name]


@pytest.mark.parametrize("name", ["../../x", "a/b", "..", "x" * 400, "é.py", "a b\n.py", "%q{HOME}.py"])
def test_run_ids_cannot_leave_the_output_folder(tmp_path: Path, name: str) -> None:
    found = run_id(make_options({"program": [name]}))
    assert is_run_id(found) and len(found.encode()) < 150
    folder = RunFolder.create(make_options({"program": [name], "output": str(tmp_path / "runs")}), [])
    assert folder.path.resolve().parent == tmp_path / "runs"


def test_valid_run_ids() -> None:
    assert [text for text in ("a", "2026-x_1.b", "x" * 200) if not is_run_id(text)] == []
    assert [t for t in ("", ".", "..", ".a", "a/b", "a b", "a\n", "é", "x" * 201) if is_run_id(t)] == []


@pytest.mark.parametrize("model", ["../../x", "/etc", "a b", ".."])
def test_model_path_is_rejected(tmp_path: Path, model: str) -> None:
    child = start("run", "-o", str(tmp_path / "runs"), "--device", "cpu", "--model", model)
    _, stderr = child.communicate(timeout=120)
    assert child.returncode == 2 and stderr == f"collect: --model: {model!r} is not the name of a model\n"
    assert list(tmp_path.iterdir()) == []


def test_plan_name_cannot_leave_its_folder(tmp_path: Path) -> None:
    plan = tmp_path / "...toml"
    plan.write_text('[options]\nmodel = "resnet18"\n')
    child = start("sweep", str(plan))
    _, stderr = child.communicate(timeout=120)
    assert child.returncode == 2 and "cannot name a folder; choose one with --output" in stderr
