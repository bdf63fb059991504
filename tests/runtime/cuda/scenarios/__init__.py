"""What ranks do with the symmetric heap of a CUDA world: functions that every rank runs with its fake driver; see ``fake_world``."""
