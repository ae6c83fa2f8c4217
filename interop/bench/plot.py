"""The same as a picture: bars of each peer, a small chart a line."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from pathlib import Path

from .figures import Results, values
from .lines import OURS, Line

COLUMNS = 3


def plot(done: Sequence[tuple[Line, Results]], title: str, path: Path) -> None:
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    rows = math.ceil(len(done) / COLUMNS)
    figure, grid = pyplot.subplots(rows, COLUMNS, figsize=(14, 2.6 * rows), layout="constrained", squeeze=False)
    for axes in grid.flat[len(done) :]:
        axes.set_axis_off()
    for axes, (line, results) in zip(grid.flat, done, strict=False):
        scale = 1024 if line.metric == "memory" else 1
        medians = {peer: statistics.median(values(line, every)) / scale for peer, every in results.items()}
        colors = ["C0" if peer in OURS else "0.7" for peer in medians]
        bars = axes.barh(list(medians), list(medians.values()), color=colors)
        axes.bar_label(bars, fmt="%.3g", padding=2, fontsize="small")
        axes.invert_yaxis()
        axes.margins(x=0.15)
        axes.tick_params(labelsize="small")
        unit = {"cpu": "CPU s", "wall": "wall s", "memory": "KiB"}[line.metric]
        axes.set_title(f"{line.name}, {unit}", fontsize="medium")
    figure.suptitle(title)
    figure.savefig(path, dpi=110)
