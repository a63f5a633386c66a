"""Benchmarks: `python -m bench NAME [--json]` from the repository's root.

Figures are medians of several rounds and ratios measured side by side in one run; absolute times on a
shared machine are noise. Nothing here is a test.
"""
