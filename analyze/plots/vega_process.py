"""The program of `compiling`: Vega-Lite on stdin, Vega on stdout, a line of JSON each. Its argument: the version."""

import json
import sys


def main(version: str) -> None:
    """Answer each line until there is none."""
    import vl_convert

    warm = {"data": {"values": [{}]}, "mark": "bar"}
    vl_convert.vegalite_to_vega(warm, vl_version=version)
    for line in sys.stdin.buffer:
        compiled = vl_convert.vegalite_to_vega(json.loads(line), vl_version=version)
        sys.stdout.buffer.write(json.dumps(compiled).encode() + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main(sys.argv[1])
