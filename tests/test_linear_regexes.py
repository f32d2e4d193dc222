"""Every regex takes linear time on any text: files of unknown origin may be hostile."""

import ast
import importlib
import pkgutil
import re
import warnings
from functools import partial
from pathlib import Path
from re import _constants as op  # type: ignore[attr-defined]
from re import _parser  # type: ignore[attr-defined]
from time import thread_time

import pytest

import analyze
import schemas
from analyze.query import data_needs
from analyze.sources.chrome.producers import jax, msprof, proton, unitrace
from schemas import api_roles, kernel_rules

_MEASURED_S = 0.0004
"""Only texts of the first length that take longer are measured at the second, too."""
_SLOW_S = 0.002
"""A text that takes less is never a fault."""
_LENGTHS = (4_000, 32_000)
_MOST = 24
"""The longer text may take this many times as long. Linear time is 8 times, quadratic 64 times."""
_SAMPLES = 10
_CALL = re.compile(r"\b(?=(\w+)(?:\[[^\]]+\])?\.(match|fullmatch|search|sub)\b)")
"""A name, in a lookahead so that calls within the brackets of another are found, too; and its method."""


def _modules():
    for package in (schemas, analyze):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith("__main__"):
                yield importlib.import_module(module.name)


def _patterns():
    """(Where, pattern, methods that the code calls on it) of each regex of the package."""
    written = (m for m in _modules() if m.__file__ and m.__file__.endswith(".py"))
    sources = {module: Path(module.__file__).read_text("utf-8") for module in written}
    calls = [(vars(module), *call) for module, source in sources.items() for call in _CALL.findall(source)]
    for module, source in sources.items():
        for name, value in vars(module).items():
            for pattern in value.values() if isinstance(value, dict) else [value]:
                # data_needs._WORDS is linear, and takes half a minute.
                if isinstance(pattern, re.Pattern) and value is not data_needs._WORDS:
                    methods = {m for names, called, m in calls if called == name and names.get(name) is value}
                    yield f"{module.__name__}.{name}", pattern, methods
        for node in ast.walk(ast.parse(source)):
            match node:
                case ast.Call(
                    func=ast.Attribute(value=ast.Name("re"), attr=method), args=[ast.Constant(value=str(regex)), *_]
                ) if method != "compile":
                    yield f"{module.__name__}:{node.lineno}", re.compile(regex), {method}
    for kind, rules in kernel_rules.rules().items():
        yield from ((f"kernel_rules {kind} {r.value}", re.compile(m), {"search"}) for r in rules for m in r.matches)
    yield from ((f"api_roles {r.role}", re.compile(m), {"match"}) for r in api_roles.rules() for m in r.matches)


def _samples(sequence, pieces):
    """Texts that a part of a parsed regex matches; texts of all its beginnings go to `pieces`, too."""
    found = [""]
    run = ""
    for code, value in sequence:
        run = run + chr(value) if code is op.LITERAL else ""
        part = [""]
        if code is op.LITERAL:
            part = [chr(value)]
        elif code is op.NOT_LITERAL:
            part = ["a" if value != ord("a") else "b"]
        elif code is op.ANY:
            part = ["a"]
        elif code is op.IN:
            one = re.compile(_class_of(value))
            part = [next((c for c in "a0 _-:({[<\"'\\,}\n\t=.;/%" if one.match(c)), "x")]
        elif code in (op.MAX_REPEAT, op.MIN_REPEAT, op.POSSESSIVE_REPEAT):
            least, most, inner = value
            part = [t * n for t in _samples(inner, pieces) for n in {max(least, 1), min(most, least + 3)}]
            part += [""] if not least else []
        elif code is op.SUBPATTERN:
            part = _samples(value[3], pieces)
        elif code is op.ATOMIC_GROUP:
            part = _samples(value, pieces)
        elif code is op.BRANCH:
            part = [text for branch in value[1] for text in _samples(branch, pieces)]
        found = list(dict.fromkeys(a + b for a in found for b in part))
        found.sort(key=len)
        found = [*found[:_SAMPLES], *found[_SAMPLES:][-2:]]
        pieces.update(found, part, [run])
    return found


def _class_of(items):
    """A set of characters, as a regex again."""
    names = {op.CATEGORY_DIGIT: r"\d", op.CATEGORY_SPACE: r"\s", op.CATEGORY_WORD: r"\w"}
    names |= {op.CATEGORY_NOT_DIGIT: r"\D", op.CATEGORY_NOT_SPACE: r"\S", op.CATEGORY_NOT_WORD: r"\W"}
    text = ""
    for code, value in items:
        if code is op.LITERAL:
            text += re.escape(chr(value))
        elif code is op.RANGE:
            text += f"{re.escape(chr(value[0]))}-{re.escape(chr(value[1]))}"
        elif code is op.CATEGORY:
            text += names[value]
    return f"[{'^' if items[0][0] is op.NEGATE else ''}{text}]"


def _use(pattern, methods, text):
    """Seconds that the code's use of a regex takes; all matches, unless it only ever matches at the start."""
    text = text.encode() if isinstance(pattern.pattern, bytes) else text
    anchored = methods and methods <= {"match", "fullmatch"}
    call = getattr(pattern, min(methods)) if anchored else partial(pattern.sub, text[:0])
    begun = thread_time()
    call(text)
    return thread_time() - begun


def _repeats(pattern):
    """Functions from a length to a hostile text for a regex: what it matches in part, again and again."""
    text = pattern.pattern if isinstance(pattern.pattern, str) else pattern.pattern.decode("latin-1")
    pieces = set()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _samples(_parser.parse(text), pieces)
    units = sorted((p for p in pieces if p), key=lambda p: (len(p), p))
    units = [*units[:20], *units[20:][-20:]]
    for start in ["", *units[-4:], *units[:2]]:
        for unit in units:
            yield lambda n, start=start, unit=unit: start + unit * (n // len(unit))


PATTERNS = {(p.pattern, p.flags): (where, p, methods) for where, p, methods in _patterns()}


@pytest.mark.parametrize("key", PATTERNS, ids=lambda key: PATTERNS[key][0])
def test_regex_takes_linear_time(key):
    _, pattern, methods = PATTERNS[key]
    for text in _repeats(pattern):
        if _use(pattern, methods, text(_LENGTHS[0])) < _MEASURED_S:
            continue
        short, long = (min(_use(pattern, methods, text(n)) for _ in range(5)) for n in _LENGTHS)
        assert long < _MOST * short or long < _SLOW_S, (text(40), short, long)


@pytest.mark.parametrize("pattern", [m.PATTERN for m in (jax, msprof, proton, unitrace)])
@pytest.mark.parametrize("start", ['"/device:A:', '"/device:', '"DEVICE<', '"call_stack"'])
def test_beginning_of_a_trace_takes_linear_time(pattern, start):
    """Texts that begin like a producer's name and do not end."""
    for unit in ("0", "A", ">", " ", start):
        short, long = (min(_use(pattern, {"search"}, start + unit * n) for _ in range(3)) for n in _LENGTHS)
        assert long < _MOST * short or long < _SLOW_S


@pytest.mark.parametrize(
    "unit", ["_GLOBAL__N__", "[clone ", "a()::", "a<b>", "(", "<", "nccl", "triton_fused", "operator(", "_ZN9"]
)
def test_kernel_name_takes_linear_time(unit):
    def seconds(length):
        begun = thread_time()
        kernel_rules.classify.__wrapped__(unit * (length // len(unit)))  # without its cache
        return thread_time() - begun

    short, long = (min(seconds(n) for _ in range(3)) for n in (10_000, 80_000))
    assert long < _MOST * short or long < 0.05
