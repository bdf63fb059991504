"""The library's own C source and header: for each function the choice of algorithm and variant.

Which variant fits the arguments of a call is decided by C that ``triton.tools.link`` writes; the rest differs from what that makes: an
algorithm that is not there and a call that nothing fits are codes with a text, and loading tells whether it worked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from triton.tools.link import KernelLinkerMeta, make_kernel_hints_dispatcher

from ...errors import InvalidArgumentError
from ...runtime import context_layout
from ...runtime.address_map import CONTEXT, GUARD_BYTES, MAX_WORLD_SIZE, STRIDE

CODES = {
    "TRITON_DIST_NO_DRIVER": (-1, "libcuda.so.1 is not there, or is too old"),
    "TRITON_DIST_NO_CONTEXT": (-2, "the calling thread has no CUDA context"),
    "TRITON_DIST_NO_HEAP": (-3, "the process has no symmetric heap"),
    "TRITON_DIST_OTHER_LAYOUT": (-4, "the process has another version of the address map and context page"),
    "TRITON_DIST_OTHER_WORLD_SIZE": (-5, "the kernel was compiled for another number of ranks"),
    "TRITON_DIST_NO_VARIANT": (-6, "no compiled variant fits the arguments"),
    "TRITON_DIST_NO_ALGORITHM": (-7, "there is no algorithm of that number"),
    "TRITON_DIST_OTHER_CONTEXT": (-8, "the kernel is loaded in another CUDA context"),
    "TRITON_DIST_NOT_LENT": (-9, "no rank lends its heap there"),
    "TRITON_DIST_ADDRESS_IN_USE": (-10, "something else is where the heap has to be, or another heap"),
}
"""What a function of a library gives when it fails, beside the driver's own codes, which are positive; with what it means."""

Algorithms = Sequence[Sequence[Mapping[str, str]]]
"""For each algorithm of a function the parameters of its variants, as ``materialize_c_params`` gives them."""


def library_header(library: str, functions: Mapping[str, Algorithms]) -> str:
    """The public header; it needs nothing but stdint.h, not cuda.h."""
    codes = "\n".join(f"#define {name} ({value}) /* {meaning} */" for name, (value, meaning) in CODES.items())
    return "\n".join(
        [
            f"/* Kernels built ahead of time for triton_dist. Streams are CUstream, pointers device addresses. */\n#ifndef {library}_H",
            f"#define {library}_H\n\n#include <stdint.h>\n",
            '#ifdef __cplusplus\nextern "C" {\n#endif\n',
            "/* Every function gives 0, one of these, or a code of the CUDA driver, which are positive. */",
            f"#ifndef TRITON_DIST_NO_DRIVER\n{codes}\n#endif\n",
            '#define TRITON_DIST_PUBLIC __attribute__((visibility("default")))\n',
            "/* What the last failure in this thread was, in words. */",
            f"TRITON_DIST_PUBLIC const char *{library}_last_error(void);\n",
            "/* Wait for what is on a stream. */",
            f"TRITON_DIST_PUBLIC int {library}_synchronize(void *stream);\n",
            "/* For a process without Python: become a rank that is inside of triton_dist.tools.lend_heap(folder), and leave again. */",
            f"TRITON_DIST_PUBLIC int {library}_join(const char *folder, int rank);",
            f"TRITON_DIST_PUBLIC int {library}_leave(void);\n",
            *(_declarations(name, algorithms) for name, algorithms in functions.items()),
            "#ifdef __cplusplus\n}\n#endif\n\n#endif\n",
        ]
    )


def _declarations(name: str, algorithms: Algorithms) -> str:
    return f"""\
/* {name}: {len(algorithms)} algorithm{"s" if len(algorithms) > 1 else ""}. Load it before anything on the GPU waits for a word. */
TRITON_DIST_PUBLIC int load_{name}(void);
TRITON_DIST_PUBLIC int unload_{name}(void);
TRITON_DIST_PUBLIC int {name}_get_num_algos(void);
TRITON_DIST_PUBLIC int {name}(void *stream{_all_arguments(algorithms)}, int algo_id);
TRITON_DIST_PUBLIC int {name}_default(void *stream{_all_arguments(algorithms)});
"""


def library_source(library: str, functions: Mapping[str, Algorithms]) -> str:
    """The functions that the header declares, but for the runtime."""
    return "\n".join(
        [
            f'#include "{library}_runtime.h"\n#include "{library}.h"\n',
            "/* Names of Triton's linker. What no variant fits is a code of its own. */",
            "typedef CUresult TT_ResultTy;\ntypedef CUstream TT_StreamTy;",
            "#define TT_ERROR_INVALID_VALUE ((CUresult)TRITON_DIST_NO_VARIANT)",
            "#define CUDA_ERROR_INVALID_VALUE TT_ERROR_INVALID_VALUE\n",
            *(_definitions(library, name, algorithms) for name, algorithms in functions.items()),
        ]
    )


def _definitions(library: str, name: str, algorithms: Algorithms) -> str:
    numbers = range(len(algorithms))
    choices = [
        # Only here, since each is called by no other file.
        make_kernel_hints_dispatcher(f"{name}_algo{number}", [_meta(params) for params in variants])
        for number, variants in enumerate(algorithms)
    ]
    names = "".join(f", {argument}" for argument in algorithms[0][0]["arguments"].split())
    full = _all_arguments(algorithms)
    return (
        "\n".join(choices)
        + f"""
int load_{name}(void) {{
    {library}_runtime_begin();
{"".join(f"    load_{name}_algo{number}();{chr(10)}" for number in numbers)}    return {library}_runtime_status();
}}

int unload_{name}(void) {{
    {library}_runtime_begin();
{"".join(f"    unload_{name}_algo{number}();{chr(10)}" for number in numbers)}    return {library}_runtime_status();
}}

int {name}_get_num_algos(void) {{ return {len(algorithms)}; }}

int {name}(void *stream{full}, int algo_id) {{
    static CUresult (*const algorithms[])(CUstream stream{full}) = {{ {", ".join(f"{name}_algo{number}" for number in numbers)} }};
    if (algo_id < 0 || algo_id >= {len(algorithms)})
        return {library}_runtime_fail(TRITON_DIST_NO_ALGORITHM, "{name}: no algorithm %d; it has {len(algorithms)}", algo_id);
    int code = (int)algorithms[algo_id]((CUstream)stream{names});
    if (code == TRITON_DIST_NO_VARIANT)
        return {library}_runtime_fail(
            code, "{name}: algorithm %d has no variant for these arguments; compiled hints: {_hints(algorithms)}", algo_id);
    return code;
}}

int {name}_default(void *stream{full}) {{ return {name}(stream{names}, 0); }}
"""
    )


def _hints(algorithms: Algorithms) -> str:
    """The hints of all variants, for a message."""
    known = []
    for params in (params for variants in algorithms for params in variants):
        pairs = zip(params["arguments"].split(), params["argument_hints"].split(), strict=True)
        hints = (f"{argument} {'== 1' if hint == '1' else '%% 16 == 0'}" for argument, hint in pairs if hint != "0")
        known.append(", ".join(hints) or "none")
    return " or ".join(dict.fromkeys(known))


def _all_arguments(algorithms: Algorithms) -> str:
    full = algorithms[0][0]["full_signature"]
    return f", {full}" if full else ""


def _meta(params: Mapping[str, str]) -> KernelLinkerMeta:
    hints = [int(hint) or None for hint in params["argument_hints"].split()]
    return KernelLinkerMeta(
        orig_kernel_name=params["original_name"],
        arg_names=params["arguments"].split(),
        arg_ctypes=params["argument_types"].split(),
        sizes=hints,
        sig_hash=params["signature_hash"],
        triton_suffix=params["hints"],
        suffix=params["hints"],
        num_specs=sum(hint is not None for hint in hints),
    )


def check_alike(name: str, algorithms: Algorithms) -> None:
    """All variants of a function take the same arguments. Raises InvalidArgumentError."""
    first = algorithms[0][0]["full_signature"]
    if not first:
        raise InvalidArgumentError(f"{name}: a kernel of a library takes one argument at least")
    for params in (params for variants in algorithms for params in variants):
        if not params["signature"]:
            raise InvalidArgumentError(f"{name}: a signature says of every argument that it is 1; leave one of the hints :1 out")
        if params["full_signature"] != first:
            raise InvalidArgumentError(
                f"{name}: its variants take different arguments: ({first}) and ({params['full_signature']}); what is a constant in one "
                "signature is one in all, and types are the same"
            )
    for variants in algorithms:
        names = [params["kernel_name"] for params in variants]
        if len(set(names)) < len(names):
            raise InvalidArgumentError(f"{name}: a signature is there twice; give each once")


def runtime_text(text: str, library: str) -> str:
    """A file of the runtime for a library: with its name, and the address map that it is built for."""
    for name, value in (
        ("CONTEXT_PAGE", CONTEXT),
        ("LAYOUT_WORD", context_layout.LAYOUT),
        ("LAYOUT_MARK", context_layout.LAYOUT_MARK),
        ("WORLD_SIZE_WORD", context_layout.NUM_RANKS),
        ("WAIT_BOARD_WORD", context_layout.WAIT_BOARD),
        ("STRIDE", STRIDE),
        ("GUARD", GUARD_BYTES),
        ("MAX_WORLD_SIZE", MAX_WORLD_SIZE),
    ):
        text = text.replace(f"LIBRARY_{name}", f"{value:#x}ULL")
    return text.replace("LIBRARY", library)
