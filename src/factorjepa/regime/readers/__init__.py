"""Native annotations of other corpora, in their published layouts. They check the teacher; no statistic uses them."""
