"""`python -m kafscale`: the same as the `kafscale` command."""

from kafscale.cli import main

main(prog_name="kafscale")
