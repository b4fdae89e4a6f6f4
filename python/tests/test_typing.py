# SPDX-License-Identifier: Apache-2.0
"""The package's types: complete and strict, as the built module is, and of use to those who make mistakes."""
import pathlib
import re
import subprocess
import sys

import pytest

pytest.importorskip("mypy")
HERE = pathlib.Path(__file__).parent / "typing"
CONFIG = ["--config-file", str(HERE / "mypy.ini")]


def mypy(*args, cwd):
    p = subprocess.run([sys.executable, "-m", "mypy", *CONFIG, *map(str, args)], capture_output=True, text=True, cwd=cwd)
    assert p.returncode in (0, 1), p.stdout + p.stderr
    return p.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("mypy")  # the caches, which all of these share


def test_the_package_is_strict(folder):
    assert "Success" in (out := mypy("-p", "feedline", cwd=folder)), out


def test_the_stub_is_what_was_built(folder):
    (folder / "allowed").write_text("feedline\\._native\\.Tensor\\.__buffer__\n")  # a method since Python 3.12
    p = subprocess.run([sys.executable, "-m", "mypy.stubtest", "feedline._native", "--mypy-config-file", str(HERE / "mypy.ini"),
                        "--allowlist", str(folder / "allowed"), "--ignore-unused-allowlist"],
                       capture_output=True, text=True, cwd=folder)
    assert p.returncode == 0, p.stdout + p.stderr


def test_right_use(folder):
    assert "Success" in (out := mypy(HERE / "right.py", cwd=folder)), out


def test_wrong_use_is_caught(folder):
    out = mypy(HERE / "wrong.py", cwd=folder)
    found = {int(n) for n in re.findall(r"wrong\.py:(\d+): error", out)}
    marked = {n for n, line in enumerate((HERE / "wrong.py").read_text().splitlines(), 1) if "# wrong:" in line}
    assert found == marked, out


def test_every_public_name_is_documented():
    import inspect

    import feedline as fl
    missing = []
    for name in fl.__all__:
        thing = getattr(fl, name)
        if not (inspect.isclass(thing) or inspect.isfunction(thing)):
            continue
        if not thing.__doc__:
            missing.append(name)
        for member, value in vars(thing).items() if inspect.isclass(thing) else ():
            value = value.__func__ if isinstance(value, (classmethod, staticmethod)) else value
            value = value.fget if isinstance(value, property) else value
            public = not member.startswith("_") and (inspect.isroutine(value) or inspect.isgetsetdescriptor(value))
            if public and not getattr(value, "__doc__", None):
                missing.append(f"{name}.{member}")
    assert not missing
