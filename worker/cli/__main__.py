"""So that `python -m worker.cli` is `worker`."""

from worker.cli.main import main

if __name__ == "__main__":
    main()
