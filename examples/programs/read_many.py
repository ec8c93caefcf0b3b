"""Read several tensors of a model concurrently in an asynchronous program.

python read_many.py http://127.0.0.1:8000 demo:1 attention.weight head.weight
"""

import asyncio
import sys

from protoslice import AsyncClient


async def main(url: str, ref: str, *names: str) -> None:
    """Print the mean of each tensor."""
    async with AsyncClient(url) as client:
        arrays = await asyncio.gather(*(client.tensor(ref, name) for name in names))
    for name, array in zip(names, arrays, strict=True):
        print(name, array.mean())


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
