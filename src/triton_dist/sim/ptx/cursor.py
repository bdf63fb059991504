"""Where the parser stands in a block of assembly, and the errors that name the line."""

from __future__ import annotations

from ...errors import InlineAssemblyError, UnsupportedInstructionError
from .tokens import Token, tokenize

END = Token("end", "the end", 0)

INSTEAD = "docs/inline_ptx.md has what the simulator runs, and triton_dist.inline_asm_twin gives a block a Python function instead"
"""What to do about PTX that the simulator does not have."""


class Cursor:
    """The tokens of a block, one after the other."""

    def __init__(self, text: str) -> None:
        self.text = text.split("\n")
        self.tokens = tokenize(text)
        self.at = 0

    @property
    def token(self) -> Token:
        return self.ahead(0)

    def ahead(self, count: int) -> Token:
        """The token that many behind this one."""
        return self.tokens[self.at + count] if self.at + count < len(self.tokens) else END

    def take(self, mark: str) -> bool:
        if self.token.text == mark and self.token.kind in ("mark", "word", "directive"):
            self.at += 1
            return True
        return False

    def next(self) -> Token:
        token = self.token
        self.at += 1
        return token

    def need(self, mark: str) -> None:
        if not self.take(mark):
            missing = "; every instruction ends with one" if mark == ";" else ""
            raise self.fail(f"expected {mark!r} and found {self.token.text!r}{missing}", self.tokens[self.at - 1].line if self.at else 0)

    def place(self, line: int) -> str:
        """A line as errors name it; 0 is the one where the parser stands."""
        line = line or self.token.line or len(self.text)
        return f"line {line} of the assembly, {self.text[line - 1].strip()!r}"

    def fail(self, why: str, line: int = 0) -> InlineAssemblyError:
        """The error for what no assembler would take."""
        return InlineAssemblyError(f"{self.place(line)}: {why}")

    def unsupported(self, why: str, line: int = 0) -> UnsupportedInstructionError:
        """The error for what is outside the subset."""
        return UnsupportedInstructionError(f"{self.place(line)}: {why}; {INSTEAD}")
