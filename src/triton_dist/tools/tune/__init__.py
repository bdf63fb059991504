"""``triton-dist tune``: measures a machine's collectives and writes the table that they choose by (``ops/collectives/plans.py``)."""
