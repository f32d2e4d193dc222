"""Classifies kernels by name: a short name, the family, and the convolution algorithm or collective.

The rules are in `kernel_rules.toml`; this module parses C++ names.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

OTHER = "other"
"""Family of a name that no rule matches."""

ALGORITHMS = ("winograd", "implicit_gemm", "precomputed_gemm", "fft", "direct", "depthwise")
"""Convolution algorithms."""

COLLECTIVES = (
    "broadcast",
    "reduce",
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "all_to_all",
    "send_recv",
    "barrier",
    "other",
)
"""Collectives of communication kernels."""

_KINDS = {"family": None, "algorithm": ALGORITHMS, "collective": COLLECTIVES}
"""Kinds of rules and their values; any name can be a family."""
_FAMILY = re.compile(r"[a-z][a-z0-9_]*")
_RULES_FILE = Path(__file__).with_name("kernel_rules.toml")


class KernelClass(NamedTuple):
    """The classification of a kernel name; the fields are columns of the table kernel_names."""

    short_name: str
    family: str
    algorithm: str | None
    collective: str | None


class KernelRule(NamedTuple):
    """A table of the rule file: names that match belong to `value`."""

    value: str
    pattern: re.Pattern[str]
    matches: tuple[str, ...]
    examples: tuple[str, ...]


@cache
def rules() -> dict[str, tuple[KernelRule, ...]]:
    """Return the rules of each kind (family, algorithm, collective) in the order in which they are tried."""
    return read_rules(_RULES_FILE)


def read_rules(path: Path) -> dict[str, tuple[KernelRule, ...]]:
    """Read the rules of a file. Raises ValueError or re.error."""
    document = tomllib.loads(path.read_text(encoding="utf-8"))
    if set(document) != set(_KINDS):
        raise ValueError(f"{_RULES_FILE.name}: expected the tables {sorted(_KINDS)}, found {sorted(document)}")
    return {kind: tuple(_rule(kind, table) for table in document[kind]) for kind in _KINDS}


def families() -> tuple[str, ...]:
    """Return the kernel families: the rule file's, in its order, and OTHER."""
    return tuple(dict.fromkeys([*(rule.value for rule in rules()["family"]), OTHER]))


def _rule(kind: str, table: dict[str, Any]) -> KernelRule:
    value, matches, examples = table.get(kind), table.get("match"), table.get("example", [])
    known = _KINDS[kind]
    if (
        set(table) - {kind, "match", "example"}
        or not isinstance(value, str)
        or not (_FAMILY.fullmatch(value) if known is None else value in known)
        or not matches
    ):
        raise ValueError(f"{_RULES_FILE.name}: bad [[{kind}]] table {table}")
    return KernelRule(value, re.compile("|".join(f"(?:{m})" for m in matches)), tuple(matches), tuple(examples))


@lru_cache(maxsize=1 << 16)
def _rank(kind: str, word: str) -> int:
    """Return the index of the first rule that matches a qualified identifier; the number of rules if none does.

    Names share most of their identifiers.
    """
    table = rules()[kind]
    return next((rank for rank, rule in enumerate(table) if rule.pattern.search(word)), len(table))


def _first_rule(kind: str, words: Collection[str]) -> KernelRule | None:
    table = rules()[kind]
    rank = min((_rank(kind, word) for word in words), default=len(table))
    return table[rank] if rank < len(table) else None


def matching_rule(kind: str, name: str) -> KernelRule | None:
    """Return the rule of a kind (family, algorithm, collective) that classifies a kernel name, or None."""
    return _first_rule(kind, _words(_head(name)))


@lru_cache(maxsize=1 << 13)  # runs share their names; 65,536 would take 40 MB in every process
def classify(name: str) -> KernelClass:
    """Classify a kernel name, as any profiler writes it."""
    head = _head(name)
    words = _words(head)

    def value(kind: str) -> str | None:
        rule = _first_rule(kind, words)
        return rule.value if rule else None

    family = value("family") or OTHER
    return KernelClass(
        short_name=_short_name(head) or name.strip(),
        family=family,
        algorithm=value("algorithm") if family == "convolution" else None,
        collective=value("collective") if family == "communication" else None,
    )


# --- C++ names ---------------------------------------------------------------------------------------------------

# Names come from files of unknown origin: every regex here takes linear time, which a test measures.
_ANONYMOUS = re.compile(
    r"(?:\(anonymous namespace\)|<unnamed>|\{anonymous\}|_NV_ANON_NAMESPACE|(?<!\w)_GLOBAL__N__\w++)::"
)
# operator() becomes a plain word, and other operators lose their brackets, so that brackets can be counted.
_CALL_OPERATOR = re.compile(r"operator\s*\(\s*\)")
_OTHER_OPERATOR = re.compile(r"operator\s*(?:<=>|<<=?|>>=?|->\*?|<=|>=)|->")
_CALL_WORD = "operator_call_"
_BRACKET = re.compile(r"[<>(){}\[\]]")
_SUFFIX = re.compile(r"(?<!\s)\s*+\[clone [^\[\]]*+\]|\.kd$")
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*(?:::[A-Za-z_]\w*)*")


def _words(head: str) -> set[str]:
    """Return the qualified identifiers of a head; rules are matched against them."""
    return set(_IDENTIFIER.findall(head))


# Base names that several kernels share: their template arguments distinguish them.
_SHARED = re.compile(
    r"elementwise_kernel|^reduce_kernel$|multi_tensor_apply_kernel|^kernelPointwiseApply|^EigenMetaKernel$"
    r"|^(?:Kernel2?|kernel|device_kernel|_kernel_agent)$|grid_stride_kernel$"
)
# Base names that mean nothing without their namespace.
_VAGUE = re.compile(rf"^(?:kernel|Kernel2?|device_kernel|globalKernel|dispatch|combine|{_CALL_WORD})$")
# Template arguments that wrap the functor, or are types.
_NOT_A_FUNCTOR = re.compile(
    r"^(?:void|bool|char|short|int|long|unsigned|signed|float\d?|double\d?|half|Half|BFloat16|complex|u?int\d+_t|size_t"
    r"|const|true|false|nullptr|decltype|lambda|instance|std|T\d+|__half2?|__nv_bfloat16\d?|Float8\w*|OpaqueType|Array"
    r"|array|pair|(?:opmath_)?gpu_kernel\w*|gpu_index_kernel|[AB]UnaryFunctor|BinaryFunctor"
    r"|ReduceOp|func_wrapper_t|\w*ListMetadata|_cuda_scatter_gather_internal_kernel|enable_\w+|operator\w*"
    r"|TensorIterator(?:Base)?|__nv_\w+|TensorEvaluator|cublas\w*|\w*Params)$"
)
# Functors that only state the number of operands; the operation follows as a type.
_ARITY_FUNCTOR = re.compile(r"^(?:BinaryOp|UnaryOp|PointwiseOp|TernaryOp)\w*Functor$")
_OPERATION = re.compile(r"std::(plus|minus|multiplies|divides|negate|maximum|minimum)\b|::(\w+)<")


def _head(name: str) -> str:
    """Return the name before its call arguments, without anonymous namespaces but with template arguments."""
    text = name.strip()
    # Check for rare parts first: the regexes take 20 times as long.
    if "[clone " in text or text.endswith(".kd"):
        text = _SUFFIX.sub("", text)
    if "operator" in text or "->" in text:
        text = _OTHER_OPERATOR.sub("operator_", _CALL_OPERATOR.sub(_CALL_WORD, text))
    text = _ANONYMOUS.sub("", text)
    # The call arguments are the first (...) outside template arguments and lambdas that is not followed by ::.
    nesting = paren = 0
    start = -1
    for bracket in _BRACKET.finditer(text):
        char = bracket.group()
        if char == "(":
            if not nesting and not paren:
                start = bracket.start()
            paren += 1
        elif char == ")":
            paren = max(paren - 1, 0)
            at_top = not nesting and not paren and start > 0
            if at_top and not text.startswith("::", bracket.end()) and not text.endswith("decltype", 0, start):
                return text[:start]
        elif not paren or nesting:
            nesting = nesting + 1 if char in "<{[" else max(nesting - 1, 0)
    return text[:start] if start > 0 and paren and not nesting else text


def _short_name(head: str) -> str:
    if head.startswith("_Z"):
        return _mangled_name(head)
    plain, arguments = _strip_brackets(head)
    words = plain.split()
    parts = [part for part in words[-1].split("::") if part] if words else []
    if not parts:
        return ""
    base = parts[-1]
    short = base
    if _VAGUE.match(base) and len(parts) > 1:
        short = f"{parts[-2]}::{base}"
    if _SHARED.search(base) and (functor := _functor(arguments)):
        short = f"{base}[{functor}]"
    return short.replace(_CALL_WORD, "operator()")


def _strip_brackets(head: str) -> tuple[str, str]:
    """Return the head without anything in brackets, and the text of its last template argument list."""
    plain: list[str] = []
    arguments = ""
    depth = end = opened = 0
    for bracket in _BRACKET.finditer(head):
        if bracket.group() in "<({[":
            if not depth:
                plain.append(head[end : bracket.start()])
                opened = bracket.end()
            depth += 1
            continue
        if depth == 1 and bracket.group() == ">":
            arguments = head[opened : bracket.start()]
        elif not depth:
            plain.append(head[end : bracket.start()])
        depth = max(depth - 1, 0)
        end = bracket.end()
    if depth:
        return "".join(plain), head[opened:]  # truncated inside a template argument list
    plain.append(head[end:])
    return "".join(plain), arguments


def _functor(arguments: str) -> str | None:
    for found in _IDENTIFIER.finditer(arguments):
        identifier = found.group().rsplit("::", 1)[-1]
        if _NOT_A_FUNCTOR.match(identifier) or identifier == "at" or found.group().startswith("std::"):
            continue
        if _ARITY_FUNCTOR.match(identifier) and (operation := _OPERATION.search(arguments, found.end())):
            return f"{identifier}:{operation.group(1) or operation.group(2)}"
        return identifier
    return None


def _mangled_name(head: str) -> str:
    """Return the last component of an Itanium-mangled name; the whole name if that cannot be parsed."""
    at = 3 if head.startswith("_ZN") else 2
    part = ""
    while length := re.match(r"[1-9]\d{0,3}", head[at : at + 4]):
        at += length.end()
        part = head[at : at + int(length.group())]
        at += int(length.group())
    return part or head
