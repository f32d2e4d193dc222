"""docs/notebook.ipynb runs, and shows what it showed when it was committed.

`python tests/test_docs_notebook.py` writes what it shows now.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from support import ROOT

NOTEBOOK = ROOT / "docs" / "notebook.ipynb"
SVG = "{http://www.w3.org/2000/svg}"


def execute() -> dict[str, Any]:
    """The notebook with the outputs that its cells have now, where it lies, as Jupyter does."""
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient", reason="needs the package nbclient (the dev extra has it)")
    pytest.importorskip("ipykernel", reason="needs the package ipykernel (the dev extra has it)")
    pytest.importorskip("polars", reason="needs the package polars (the dev extra has it)")
    made = nbformat.read(NOTEBOOK, as_version=4)
    client = nbclient.NotebookClient(
        made, timeout=120, kernel_name="python3", resources={"metadata": {"path": NOTEBOOK.parent}}
    )
    client.execute(env={**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "100"})
    for cell in made.cells:
        cell.metadata.pop("execution", None)
        for output in cell.get("outputs", ()):
            if len(output.get("data", {})) > 1:
                output.data.pop("text/plain", None)
    made.metadata.pop("language_info", None)
    executed: dict[str, Any] = json.loads(nbformat.writes(made))
    return executed


def shown(notebook: dict[str, Any]) -> list[tuple[str, list[Any]]]:
    """The outputs of each cell of code: figures by what their marks say, texts as they are."""
    return [
        ("".join(cell["source"]), [_content(output) for output in cell["outputs"]])
        for cell in notebook["cells"]
        if cell["cell_type"] == "code"
    ]


def _content(output: dict[str, Any]) -> Any:
    data = {kind: "".join(text) for kind, text in output.get("data", {}).items()}
    if svg := data.get("image/svg+xml"):
        return sorted(figure_data(svg))
    text = "".join(output.get("text", ()))
    if text.startswith("Help on "):  # how a signature is set depends on the version of Python
        text = re.sub(r"[\s']", "", text)
    return data or text or output


def figure_data(svg: str) -> list[str]:
    """What the marks of a figure say to who cannot see them: names and values."""
    marks = [e.get("aria-label") for e in ElementTree.fromstring(svg).iter() if e.get("aria-roledescription")]
    return [text for text in marks if text]


def test_notebook() -> None:
    committed, now = json.loads(NOTEBOOK.read_text("utf-8")), execute()
    assert [source for source, _ in shown(committed)] == [source for source, _ in shown(now)]
    for (source, before), (_, after) in zip(shown(committed), shown(now), strict=True):
        assert after == before, f"shows something else now: {source}"


def test_committed_outputs_are_not_empty() -> None:
    committed = json.loads(NOTEBOOK.read_text("utf-8"))
    outputs = [output for _, found in shown(committed) for output in found]
    figures = [output for output in outputs if isinstance(output, list)]
    assert len(figures) > 1 and all(len(f) > 3 and any(re.search(r"\d", text) for text in f) for f in figures)
    assert sum("<table" in str(output) for output in outputs) > 3
    assert not any("error" in str(output.get("output_type")) for output in outputs if isinstance(output, dict))
    assert NOTEBOOK.stat().st_size < 300_000
    assert str(Path.home()) not in NOTEBOOK.read_text("utf-8") and str(ROOT) not in NOTEBOOK.read_text("utf-8")


if __name__ == "__main__":
    NOTEBOOK.write_text(json.dumps(execute(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"{NOTEBOOK.relative_to(ROOT)}: rewritten")
