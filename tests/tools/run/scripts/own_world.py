"""What each rank has of its own: globals, helper modules, arguments, environment, exit functions."""

import argparse
import atexit
import os
import pickle
import sys
from dataclasses import dataclass

import helper
import torch.distributed as dist

parser = argparse.ArgumentParser()
parser.add_argument("--size", type=int)
arguments = parser.parse_args()
rank = int(os.environ["RANK"])
sys.argv.append(str(rank))
helper.number = rank
os.environ["OWN"] = str(rank)


@dataclass
class Message:
    sender: int


dist.init_process_group()
gathered = [None] * dist.get_world_size()
dist.all_gather_object(gathered, Message(rank))
assert isinstance(gathered[0], Message) and [message.sender for message in gathered] == list(range(len(gathered)))
assert (helper.number, sys.argv[-1], os.environ["OWN"], arguments.size) == (rank, str(rank), str(rank), 3)
assert sys.modules["__main__"].rank == rank and __name__ == "__main__"
assert pickle.loads(pickle.dumps(Message(4))) == Message(4)
atexit.register(print, f"rank {rank} leaves")
print(f"rank {rank} of {len(gathered)}", end="")
