"""Many questions asked at once: p-values adjusted so that few of the 'yes' are by chance."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def benjamini_hochberg(p: Floats) -> Floats:
    """Adjusted p-values: calling those below alpha significant bounds the false discovery rate by alpha.

    When nothing differs at all, the chance of any 'significant' is then below alpha too. NaN stays NaN
    and is not counted. Source: Benjamini & Hochberg 1995.
    """
    adjusted = np.full(len(p), np.nan)
    known = np.flatnonzero(~np.isnan(p))
    if not len(known):
        return adjusted
    order = known[np.argsort(p[known])]
    scaled = p[order] * len(order) / np.arange(1, len(order) + 1)
    adjusted[order] = np.minimum(np.minimum.accumulate(scaled[::-1])[::-1], 1.0)
    return adjusted
