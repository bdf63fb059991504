"""The report of a run as one HTML file that needs nothing else: ``page.py`` fills ``page.html`` with style, scripts and the events.

The scripts, in the order in which they are put together: ``model.js`` (the events and how numbers read), ``layout.js`` (which rows are
shown where), ``paint.js`` (the canvas), ``source.js`` and ``panel.js`` (findings, details, source lines), ``main.js`` (keys and pointer).
"""
