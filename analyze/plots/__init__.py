"""Figures: declared in a query's header, specified in Vega-Lite, drawn in a page, as SVG or as PNG."""
