"""A guard for CI: exit with 1, and say why, if the recording `after` is slower than `before`.

python examples/compare_two_runs.py sample_traces/resnet18-1gpu runs/RUN --fail-if "kernel_time > 5%"
"""

import argparse
import sys

import analyze

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("before")
parser.add_argument("after")
parser.add_argument("--fail-if", action="append", metavar="CONDITION", help="default: kernel_time > 5%%")
options = parser.parse_args()

try:
    # One run each: compare the numbers as if runs did not differ. With several runs a side, leave `naive` out.
    conditions = options.fail_if or ["kernel_time > 5%"]
    result = analyze.compare(options.before, options.after, level="kernel", fail_if=conditions, naive=True, limit=5)
except analyze.InputError as e:  # a file that cannot be read, a condition without an answer
    sys.exit(f"error: {e}")
print("What changed most:")
print(result.answer)
for note in result.notes:
    print("note:", note)
if result.failures:
    sys.exit("\n".join(f"slower: {failure}" for failure in result.failures))
