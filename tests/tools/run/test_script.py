"""The script of one rank: output and the modules that are its own."""

import io
import sys

from triton_dist.tools.run.script import PrefixedOutput, RankModules


def test_prefixed_output_begins_each_line():
    target = io.StringIO()
    output = PrefixedOutput(target, 3)
    print("one\ntwo", end="", file=output)
    assert target.getvalue() == "[rank 3] one\n"
    print("!", file=output)
    print("rest", end="", file=output)
    output.finish(), output.finish()
    assert target.getvalue() == "[rank 3] one\n[rank 3] two!\n[rank 3] rest\n" and not output.isatty() and output.writable()


def test_modules_of_the_user_are_kept_apart(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "users_own.py").write_text("number = 0\n")
    modules = RankModules()
    before = modules.take()
    import this as shared  # noqa: F401  (a module of the standard library that nothing else imports)

    import users_own

    first = modules.take()
    assert "users_own" in first and "this" not in first and "__main__" in first
    modules.exchange(first, before)
    assert "users_own" not in sys.modules and "this" in sys.modules
    import users_own as again

    assert again is not users_own
    second = modules.take()
    modules.exchange(second, first)
    assert sys.modules["users_own"] is users_own
    modules.exchange(first, before)
