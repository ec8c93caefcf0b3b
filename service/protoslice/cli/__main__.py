"""The entry point of `python -m protoslice.cli`."""

from protoslice.cli import main

if __name__ == "__main__":
    main()
