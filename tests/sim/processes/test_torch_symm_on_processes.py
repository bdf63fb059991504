"""torch's symmetric library on CPU processes."""

from __future__ import annotations

import torch

from tests.dialects import bodies


def test_the_kernel_of_the_page(world):
    world(bodies.pages_kernel, 2)


def test_error_codes(world):
    world(bodies.error_codes, 2)


def test_operations(world):
    world(bodies.reduces, 2, args=(torch.float16, "constant_kernel"))
