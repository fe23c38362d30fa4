"""`python -m factorjepa`, and with it `torchrun -m factorjepa`."""

from .cli import main

main()
