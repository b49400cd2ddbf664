"""The calculators of `medical`: what is computed, from what, by which rule, and where that is published."""
