"""Real video in: source files are examined, split, decoded once, cut into clips within shots, filtered and written.

`listing` says what there is to read, `examining` what can be read, `decoding` gives upright frames with their times,
`shots` finds boundaries, `cutting` makes clips of them, `measuring` and `duplicates` judge quality, `writing` makes one
clip, `making` one source, `ingest` the corpus. `privacy` stands between the frames and the disk.
"""
