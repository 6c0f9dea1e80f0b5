"""`python -m kafscale`: the same as the `kafscale` command."""

from kafscale.commands.cli import main

main(prog_name="kafscale")
