"""Every documented name is there, with a test, and the page says so."""

import torch
import triton.language as tl

from tests.compatibility import page
from tests.compatibility.names import EXCEPTIONS, SECTIONS
from triton_dist import utils
from triton_dist.language.extra import libshmem_device

NAMES = [(section, name) for section in SECTIONS for name in section.listed]


def test_every_name_exists():
    missing = [f"{section.module}.{name}" for section, name in NAMES if not page.exists(section, name)]
    assert not missing


def test_every_name_has_a_test():
    assert [name for section, name in NAMES if page.exists(section, name) and page.test_of(section, name) is None] == []
    assert EXCEPTIONS.keys() <= {name for _, name in NAMES}


def test_no_name_is_listed_twice():
    places = [(section.module, name) for section, name in NAMES]
    assert len(places) == len(set(places))


def test_no_gap_is_unexplained():
    assert page.unexplained() == []


def test_the_page_is_current():
    text = page.PAGE.read_text(encoding="utf-8")
    assert page.rendered(text) == text, "run python -m tests.compatibility.page"


def test_constants_are_nvshmems():
    values = {
        "NVSHMEM_CMP_EQ": 0,
        "NVSHMEM_CMP_NE": 1,
        "NVSHMEM_CMP_GT": 2,
        "NVSHMEM_CMP_LE": 3,
        "NVSHMEM_CMP_LT": 4,
        "NVSHMEM_CMP_GE": 5,
        "NVSHMEM_SIGNAL_SET": 9,
        "NVSHMEM_SIGNAL_ADD": 10,
        "NVSHMEM_TEAM_WORLD": 0,
        "NVSHMEMX_TEAM_NODE": 2,
    }
    for name, value in values.items():
        constant = getattr(libshmem_device, name)
        assert isinstance(constant, tl.constexpr) and constant.value == value
    assert torch.int64 == utils.NVSHMEM_SIGNAL_DTYPE


def test_rocshmem_names_are_the_same_functions():
    assert utils.init_rocshmem_by_torch_process_group is utils.init_nvshmem_by_torch_process_group
    assert utils.rocshmem_barrier_all_on_stream is utils.nvshmem_barrier_all_on_stream
