"""``torch.distributed._symmetric_memory`` on the simulator: memory, handles, signals and operators, while ``simulate`` runs."""
