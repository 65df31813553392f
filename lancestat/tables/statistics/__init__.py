"""Statistics of columns: types, kernels, sketches, merges, histograms."""
