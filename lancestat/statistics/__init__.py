"""What a statistic is: column types, kernels, sketches, merges, histograms."""
