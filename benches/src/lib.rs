//! Figures: ratios to raw probes taken in the same run.
