"""What a reader is shown: figures of runs and measurements."""
