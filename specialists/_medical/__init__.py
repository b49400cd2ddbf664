"""The calculators of `medical`: inputs, formulas, scores and sources."""
