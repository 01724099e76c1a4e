"""A sum over all ranks of a run by plain sockets: the stand-in for ``torch.distributed.all_reduce`` with Gloo.

Like that it finds the other ranks by MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE alone.
"""

from __future__ import annotations

import os
import socket
import sys
import time


def all_reduce(value: int) -> int:
    """The sum of ``value`` over all ranks; the first one listens, adds, and tells the others."""
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    if rank == 0:
        with socket.create_server(("", address[1])) as door:
            others = [door.accept()[0] for _ in range(world - 1)]
            total = value + sum(int(other.recv(64)) for other in others)
            for other in others:
                other.sendall(str(total).encode())
                other.close()
            return total
    for _ in range(600):
        try:
            with socket.create_connection(address) as master:
                master.sendall(str(value).encode())
                return int(master.recv(64))
        except ConnectionRefusedError:
            time.sleep(0.1)
    raise TimeoutError("the first rank does not listen")


if __name__ == "__main__":
    mine = int(os.environ["RANK"])
    total = all_reduce(mine)
    sys.stdout.write(f"rank {mine} of {os.environ['WORLD_SIZE']}: the sum of all ranks is {total}\n")
