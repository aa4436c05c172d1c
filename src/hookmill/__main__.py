"""The command `hookmill`, also as `python -m hookmill`."""

import gc
from typing import NoReturn

from hookmill.first_process import continue_in_child_of_first_process


def main() -> NoReturn:
    continue_in_child_of_first_process()
    # Most commands end before there is garbage. Those that may run for long enable its collection again.
    gc.disable()
    # Imported only now, so that the first process of a container does not need the memory of these modules.
    from hookmill.cli import main as run_command

    run_command()


if __name__ == "__main__":
    main()
