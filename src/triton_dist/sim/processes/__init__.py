"""Ranks that are processes on the CPU, started by torchrun: one simulator a process, the symmetric heaps in memory that all of them map."""
