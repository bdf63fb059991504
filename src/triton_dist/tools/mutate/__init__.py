"""Mutation of programs: each wait, notify, barrier, fence, scope, token and reset is dropped or weakened, one at a time, and the checks
have to name what that breaks. ``python -m triton_dist.tools.mutate --help`` says how to run it.
"""
