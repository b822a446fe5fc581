"""The report's charts as SVG text: speed of both paths and speedup, each with its interval.

Only rows that may be compared are drawn, without a browser and without a network. Colours that carry meaning are fixed;
text and axes take the page's own colour through its style sheet.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

import altair as alt
import vl_convert

from fleet.compare.stats import Estimate
from fleet.report.cells import label, printable
from fleet.report.hardware import HardwareReport, ReportRow

GREEDY_COLOUR, SPECULATIVE_COLOUR = "#8a8f98", "#2f7de1"
_WIDTH, _STEP = 380, 22
_Datum = dict[str, str | float | None]


def speed_chart(report: HardwareReport) -> str | None:
    """Draw decode rates; None when no row has one."""
    data = [
        datum
        for row in _drawable(report)
        for path, value in (
            ("greedy", row.figures.greedy.decode_tok_s),
            ("speculative", row.figures.speculative.decode_tok_s),
        )
        for datum in _datum(row, value, path)
    ]
    if not data:
        return None
    colour = alt.Color(
        "path:N",
        title=None,
        scale=alt.Scale(domain=["greedy", "speculative"], range=[GREEDY_COLOUR, SPECULATIVE_COLOUR]),
        legend=alt.Legend(orient="top"),
    )
    return _svg(data, _order(report), "decode tokens per second", colour, baseline=None)


def speedup_chart(report: HardwareReport) -> str | None:
    """Draw speculative over greedy rates, with the line at which both are equal."""
    data = [datum for row in _drawable(report) for datum in _datum(row, row.figures.speedup, "speedup")]
    if not data:
        return None
    colour = alt.ColorValue(SPECULATIVE_COLOUR)
    return _svg(data, _order(report), "speedup (speculative / greedy)", colour, baseline=1.0)


def _drawable(report: HardwareReport) -> Sequence[ReportRow]:
    return [row for row in report.rows if row.figures.comparable]


def _order(report: HardwareReport) -> list[str]:
    """The labels of all machines' rows, narrow before wide and small before large."""
    rows = sorted(
        _drawable(report), key=lambda row: (row.figures.key.verify_width or 0, row.figures.key.slots_per_layer or 0)
    )
    return list(dict.fromkeys(printable(label(row)) for row in rows))


def _datum(row: ReportRow, value: Estimate, path: str) -> list[_Datum]:
    if value.median is None:
        return []
    return [
        {
            "machine": printable(row.machine),
            "row": printable(label(row)),
            "path": path,
            "median": value.median,
            "low": value.median if value.low is None else value.low,
            "high": value.median if value.high is None else value.high,
            "baseline": 1.0,
        }
    ]


def _svg(
    data: list[_Datum], order: list[str], title: str, colour: alt.Color | alt.ColorValue, baseline: float | None
) -> str:
    y = alt.Y("row:N", title=None, sort=order, axis=alt.Axis(labelLimit=320, ticks=False, domain=False))
    offset = alt.YOffset("path:N", sort=["greedy", "speculative"])
    base = alt.Chart(alt.InlineData(values=data))
    zero = alt.Scale(zero=True)
    layers: list[alt.Chart] = [
        base.mark_rule(strokeWidth=3, opacity=0.55).encode(
            x=alt.X("low:Q", title=title, scale=zero, axis=alt.Axis(tickCount=6)),
            x2="high:Q",
            y=y,
            yOffset=offset,
            color=colour,
        ),
        base.mark_point(filled=True, size=70, opacity=1).encode(
            x=alt.X("median:Q", title=title, scale=zero), y=y, yOffset=offset, color=colour
        ),
    ]
    if baseline is not None:
        layers.insert(0, base.mark_rule(strokeDash=[4, 4], color=GREEDY_COLOUR).encode(x="baseline:Q"))
    chart = (
        alt.layer(*layers)
        .properties(width=_WIDTH, height=alt.Step(_STEP))
        .facet(
            row=alt.Row(
                "machine:N", title=None, header=alt.Header(labelAngle=0, labelAnchor="start", labelOrient="top")
            )
        )
        .resolve_scale(y="independent")
        .configure_view(stroke=None)
        .configure_axis(labelFontSize=12, titleFontSize=12, titleFontWeight="normal", gridOpacity=0.25)
        .configure_header(labelFontSize=12, labelFontWeight="bold")
        .configure_legend(labelFontSize=12)
    )
    return _inline(vl_convert.vegalite_to_svg(json.dumps(chart.to_dict() | {"background": None}), allowed_base_urls=[]))


def _inline(svg: str) -> str:
    """Make an SVG document a part of an HTML page: no namespace addresses, which HTML needs not, and no fixed size."""
    svg = re.sub(r'\sxmlns(:\w+)?="[^"]*"', "", svg)
    svg = re.sub(r"<\?xml[^>]*\?>|<!DOCTYPE[^>]*>", "", svg)
    size = re.search(r'<svg[^>]*?\swidth="([\d.]+)"[^>]*?\sheight="([\d.]+)"', svg)
    if size and "viewBox" not in svg:
        svg = svg.replace("<svg", f'<svg viewBox="0 0 {size[1]} {size[2]}"', 1)
    return svg.strip()
