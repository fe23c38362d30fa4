"""How dense is this world? The five axes of appendix B: measured, controlled and matched. Inference: `statistics`."""
