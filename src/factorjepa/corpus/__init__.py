"""The corpus: clips with provenance, split by source, stored in a folder or in tar shards, served as batches.

`manifest` says what there is, `splits` who may see it, `access` hands it out by split, `store` and `packing` keep the
bytes, `windows` cuts 16 frames out of a clip, `loader` batches them, `composition` counts.
"""
