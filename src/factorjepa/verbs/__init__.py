"""The verbs of the command line, by what they are about. They parse and print; the work is done elsewhere."""
