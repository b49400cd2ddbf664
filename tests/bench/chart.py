"""The chart of the page: CPU time per token, and streams per core."""

from collections.abc import Mapping
from pathlib import Path

from tables import Table

OURS, OTHERS = "#1f6feb", "#b8c0cc"


def draw(tables: Mapping[str, Table], path: Path) -> None:
    """Draw CPU time and capacity, as far as they were measured.

    Raises:
        ImportError: without the extra bench.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure

    mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "brain", "font.size": 9, "font.family": "sans-serif"})
    panels = [
        (tables[name], column, title)
        for name, at, title in (
            ("cpu", 0, "CPU per token, burst, µs"),
            ("cpu", 2, "CPU per token, 200 streams, µs"),
            ("capacity", 0, "streams of 50 tokens/s on one core"),
        )
        if name in tables
        for column in tables[name].columns[at : at + 1]
    ]
    figure = Figure(figsize=(3.4 * max(1, len(panels)), 2.3), layout="constrained", facecolor="white")
    for place, (table, column, title) in enumerate(panels, 1):
        medians = {row: found for row in table.rows if (found := table.median(row, column)) is not None}
        medians.pop("direct", None)
        axes = figure.add_subplot(1, len(panels), place)
        rows = list(reversed(medians))
        colours = [OURS if row == "brain" else OTHERS for row in rows]
        bars = axes.barh(rows, [medians[row] for row in rows], color=colours)
        axes.bar_label(bars, fmt=lambda value: f"{value:,.3g}" if value < 100 else f"{value:,.0f}", padding=2)
        axes.set_title(title, fontsize=9)
        axes.spines[["top", "right", "bottom"]].set_visible(False)
        axes.margins(x=0.18)
        axes.xaxis.set_visible(False)
        axes.tick_params(left=False)
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None, dpi=120)
