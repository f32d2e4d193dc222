"""What pyproject.toml cannot say: the description of a package index, the studies, and what is compiled.

The description is the README, but its links to files of this repository lead nowhere there: each becomes its text and
the path. The studies, which stand in a folder of their own, are found in `schemas` once installed. The C module is
compiled where there is a compiler; without it, reading large Chrome traces is slower. It uses Python's stable ABI, so
that one wheel for each platform serves all versions of Python.
"""

import re
import shutil
import sysconfig
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_py import build_py

_LINK_TO_FILE = re.compile(r"\[([^]]+)\]\((?!https?://)([^)#]*)(?:#[^)]*)?\)")


def description(readme: str) -> str:
    """The README without links to files and headings."""
    return _LINK_TO_FILE.sub(lambda m: f"{m[1]} (`{m[2]}`)" if m[2] else m[1], readme)


class Build(build_py):
    """Also copies the studies."""

    def run(self):
        """Build."""
        super().run()
        if not self.editable_mode:
            target = Path(self.build_lib, "schemas", "studies")
            shutil.copytree(Path(__file__).with_name("studies"), target, dirs_exist_ok=True)


# Python without its lock has no stable ABI.
STABLE = not sysconfig.get_config_var("Py_GIL_DISABLED")

setup(
    cmdclass={"build_py": Build},
    ext_modules=[
        Extension(
            name="analyze.sources.chrome._cutting",
            sources=["analyze/sources/chrome/_cutting.c"],
            define_macros=[("Py_LIMITED_API", "0x030B0000")] if STABLE else [],
            py_limited_api=STABLE,
            optional=True,
        )
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}} if STABLE else {},
    long_description=description(Path(__file__).with_name("README.md").read_text("utf-8")),
    long_description_content_type="text/markdown",
)
