"""Segments to folds: the whole effect of a segment on its offsets partition, as columns, and the fold cache.

May import ``kernels``, ``log``, ``records``, ``replay`` and packages below them. Start reading at ``schema`` (what a
fold holds), then ``tasks`` (a segment of a replay) and ``segments`` (how it is folded).
"""
