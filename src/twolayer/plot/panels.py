"""What a panel owes its reader: a legend that hides no curve, an axis that ends where
its numbers do, ticks as people write them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure, SubFigure
from matplotlib.legend import Legend
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter
from matplotlib.transforms import Bbox

__all__ = ["clear_legends", "end_where_resolved", "headed_legend", "plain_ticks"]

PLAIN = (1e-4, 1e6)  # numbers that are read at a glance without a power of ten
DECADES = 2.0  # from which on powers of ten are the better ticks
SEEN = 1.3  # points: the least width of a line in a legend
NARROW = 5.0  # ratio of the ends of an axis below which its ticks are equally spaced


def headed_legend(
    ax: Axes,
    handles: Sequence[Any],
    labels: Sequence[str],
    heading: Sequence[str] = (),
    columns: int = 1,
) -> None:
    """A legend under lines that explain it, with colours that are seen however faint
    the curves are.
    """
    legend = ax.legend(
        handles,
        labels,
        ncols=columns,
        title="\n".join(heading) or None,
        title_fontsize="small",
        alignment="left",
    )
    for handle in legend.legend_handles:
        if isinstance(handle, Line2D):
            handle.set_alpha(1.0)
            handle.set_linewidth(max(handle.get_linewidth(), SEEN))


def clear_legends(
    figure: Figure | SubFigure, panels: Sequence[Axes], grow: bool = False
) -> None:
    """Put legends above their panels where they would hide a curve or a band.

    With ``grow`` the figure gets as much higher, so that panels keep their size.
    """
    root = figure.get_figure(root=True)
    assert root is not None
    with_legend = [panel for panel in panels if panel.get_legend() is not None]
    if not with_legend:
        return
    root.draw_without_rendering()
    hiding = [panel for panel in with_legend if _hides(panel)]
    if not hiding:
        return
    added = max(_move_above(panel) for panel in hiding)
    if grow and isinstance(figure, Figure):
        figure.set_figheight(figure.get_figheight() + added / figure.dpi)


def _hides(panel: Axes) -> bool:
    """Whether the legend of a panel lies on something that is drawn."""
    legend = panel.get_legend()
    assert legend is not None
    box = legend.get_window_extent()
    if not box.overlaps(panel.get_window_extent()):
        return False  # it stands outside already
    for line in panel.get_lines():
        if line.get_linestyle() == "None":
            if _marked(panel, line.get_xydata(), box):
                return True
            continue
        path = (
            line.get_transform()
            .transform_path(line.get_path())
            .cleaned(remove_nans=True)
        )
        if path.intersects_bbox(box, filled=False):
            return True
    for band in panel.collections:
        if isinstance(band, PolyCollection):
            transform = band.get_transform()
            if any(
                transform.transform_path(path).intersects_bbox(box, filled=True)
                for path in band.get_paths()
            ):
                return True
        elif _marked(panel, band.get_offsets(), box):
            return True
    return False


def _marked(panel: Axes, offsets: Any, box: Bbox) -> bool:
    """Whether a mark at one of the offsets lies in a box."""
    places = panel.transData.transform(np.ma.getdata(offsets).reshape(-1, 2))
    return bool(box.count_contains(places))


def _move_above(panel: Axes) -> float:
    """Stand a legend on its panel, in as many columns as fit; pixels that it takes."""
    old = panel.get_legend()
    assert old is not None
    texts = [text.get_text() for text in old.get_texts()]
    size = old.get_texts()[0].get_fontsize()
    title = old.get_title().get_text() or None
    look: dict[str, Any] = {
        "loc": "lower left",
        "bbox_to_anchor": (0.0, 1.01),
        "borderaxespad": 0.0,
        "fontsize": size,
        "title": title,
        "title_fontsize": old.get_title().get_fontsize(),
        "alignment": "left",
    }

    handles = [handle for handle in old.legend_handles if handle is not None]

    def drawn(columns: int) -> Legend:
        return panel.legend(handles, texts, ncols=columns, **look)

    room = panel.get_window_extent().width
    columns = len(texts)
    while columns > 1 and drawn(columns).get_window_extent().width > room:
        columns -= 1
    return float(drawn(columns).get_window_extent().height)


def end_where_resolved(ax: Axes, least: float, most: float, dataset: xr.Dataset) -> str:
    """End a logarithmic axis of risks where these are no larger than the errors of
    their parts; what to say of it, or nothing.

    Below there is only rounding, which would take most of the panel.
    """
    notes = json.loads(dataset.attrs.get("notes", "{}"))
    resolution = float(notes.get("risk_resolution", 0.0))
    if least >= resolution or most <= resolution:
        return ""
    ax.set_ylim(bottom=resolution)
    return f"not resolved below {resolution:.0e}".replace("e-0", "e-")


def plain_ticks(axis: Axis) -> None:
    """Write the ticks of a short logarithmic axis as numbers: 0.4, and not 4×10⁻¹."""
    low, high = sorted(axis.get_view_interval())
    if axis.get_scale() != "log" or low < PLAIN[0] or high > PLAIN[1]:
        return
    if np.log10(high / low) > DECADES:
        return
    if high / low < NARROW:
        axis.set_major_locator(MaxNLocator(6))
    else:
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.6g}"))
    axis.set_minor_formatter(NullFormatter())
