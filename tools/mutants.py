"""Changes one module in many small ways and lists the changes that no test notices.

    python -m tools.mutants frazil.model.marker tests/unit/model

Every mutant runs in a process forked after the libraries of the tests are loaded. Tests that take
no time come first, and the first failure ends it. A survivor is a line whose meaning no test holds:
write the test, or say why the change makes no difference. Exits 1 when there are survivors.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import copy
import importlib.abc
import importlib.util
import io
import json
import os
import signal
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

SOURCE = Path(__file__).resolve().parent.parent / "src"
# A mutant that loops for ever is noticed too.
SECONDS = 120

COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}
# Names of functions and their opposite.
NAMES = {
    "less": "less_equal",
    "less_equal": "less",
    "greater": "greater_equal",
    "greater_equal": "greater",
    "min": "max",
    "max": "min",
    "any": "all",
    "all": "any",
    "partition": "rpartition",
    "rpartition": "partition",
}


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change: where, what, and the tree that has it."""

    line: int
    change: str
    tree: ast.Module


def mutants(source: str) -> Iterator[Mutant]:
    """Every change of the module that this knows, one at a time."""
    original = ast.parse(source)
    # How a class is decorated is no behaviour of ours.
    decorators = {
        id(part)
        for node in ast.walk(original)
        for decorator in getattr(node, "decorator_list", ())
        for part in ast.walk(decorator)
    }
    for at, node in enumerate(ast.walk(original)):
        if id(node) in decorators:
            continue
        for change, replacement in _replacements(node):
            tree = copy.deepcopy(original)
            _replace(tree, at, replacement)
            yield Mutant(getattr(node, "lineno", 0), change, ast.fix_missing_locations(tree))


def _replace(tree: ast.Module, at: int, replacement: ast.AST) -> None:
    target = list(ast.walk(tree))[at]
    for parent in ast.walk(tree):
        for name, value in ast.iter_fields(parent):
            if value is target:
                setattr(parent, name, replacement)
            elif isinstance(value, list) and any(each is target for each in value):
                value[next(i for i, each in enumerate(value) if each is target)] = replacement


def _replacements(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    before = ast.unparse(node) if isinstance(node, ast.expr) else ""
    for changed in _changed(node):
        yield f"{before or ast.unparse(node)}  →  {ast.unparse(changed)}", changed


def _changed(node: ast.AST) -> Iterator[ast.AST]:  # noqa: C901 - one case a kind of node
    match node:
        case ast.Compare(ops=[op]):
            for other in COMPARISONS.get(type(op), ()):
                yield ast.Compare(left=node.left, ops=[other()], comparators=node.comparators)
        case ast.BoolOp():
            yield from _other_conditions(node)
        case ast.UnaryOp(op=ast.Not()):
            yield node.operand
        case ast.BinOp() if type(node.op) in ARITHMETIC and not _is_type(node):
            yield ast.BinOp(left=node.left, op=ARITHMETIC[type(node.op)](), right=node.right)
        case ast.Call():
            yield from _other_calls(node)
        case ast.Constant(value=bool(value)):
            yield ast.Constant(value=not value)
        case ast.Constant(value=int(number)):
            yield ast.Constant(value=number + 1)
        case ast.Expr(value=ast.Call()) | ast.Raise() | ast.Continue() | ast.Break():
            yield ast.Pass()


def _other_conditions(node: ast.BoolOp) -> Iterator[ast.expr]:
    """``or`` for ``and``, and each part left out."""
    other = ast.And() if isinstance(node.op, ast.Or) else ast.Or()
    yield ast.BoolOp(op=other, values=node.values)
    for left_out in range(len(node.values)):
        rest = [each for i, each in enumerate(node.values) if i != left_out]
        yield rest[0] if len(rest) == 1 else ast.BoolOp(op=node.op, values=rest)


def _other_calls(node: ast.Call) -> Iterator[ast.expr]:
    called = node.func
    if isinstance(called, ast.Attribute) and called.attr in NAMES:
        func = ast.Attribute(value=called.value, attr=NAMES[called.attr], ctx=ast.Load())
        yield ast.Call(func=func, args=node.args, keywords=node.keywords)
    elif isinstance(called, ast.Name) and called.id in NAMES:
        name = ast.Name(id=NAMES[called.id], ctx=ast.Load())
        yield ast.Call(func=name, args=node.args, keywords=node.keywords)


def _is_type(node: ast.BinOp) -> bool:
    """``int | None`` is no arithmetic."""
    return isinstance(node.op, ast.BitOr) and any(
        (isinstance(side, ast.Constant) and side.value is None)
        or (isinstance(side, ast.Name) and side.id[:1].isupper())
        for side in (node.left, node.right)
    )


class _Loader(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Loads the mutant instead of the module."""

    def __init__(self, module: str, path: Path, tree: ast.Module) -> None:
        self._module, self._path, self._tree = module, path, tree

    def find_spec(
        self, fullname: str, path: object = None, target: object = None
    ) -> ModuleSpec | None:
        del path, target
        if fullname != self._module:
            return None
        return importlib.util.spec_from_file_location(fullname, self._path, loader=self)

    def exec_module(self, module: ModuleType) -> None:
        exec(compile(self._tree, str(self._path), "exec"), module.__dict__)  # noqa: S102


@dataclass(slots=True)
class Seconds:
    """How long each test takes; given to pytest, it lets the quick ones come first."""

    by_test: dict[str, float] = field(default_factory=dict)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """What was not measured comes first."""
        items.sort(key=lambda each: self.by_test.get(each.nodeid, 0.0))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A fixture counts for the test that needs it first."""
        before = self.by_test.get(report.nodeid, 0.0)
        self.by_test[report.nodeid] = before + report.duration


class _Blocked(importlib.abc.MetaPathFinder):
    """Keeps one module, and so whatever needs it, from being loaded."""

    def __init__(self, module: str) -> None:
        self._module = module

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> None:
        """Nobody else is asked."""
        del path, target
        if fullname == self._module:
            raise ImportError(fullname)


def measure(module: str, tests: Sequence[str]) -> Seconds | None:
    """The seconds of each test, without any change; None if one fails.

    What the tests loaded and does not need the module is loaded here too: that takes longer than
    most tests.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        seconds = Seconds()
        status = _run(tests, seconds)
        never = ("tests.conftest", "tests.unit", "tools", "conftest", "__main__")
        others = [each for each in sys.modules if not each.startswith(never)]
        with os.fdopen(writing, "w") as report:
            json.dump([seconds.by_test, others], report)
        os._exit(status)
    os.close(writing)
    with os.fdopen(reading) as report:
        text = report.read()
    _, code = os.waitpid(child, 0)
    if code:
        return None
    by_test, others = json.loads(text)
    blocked = _Blocked(module)
    sys.meta_path.insert(0, blocked)
    for each in others:
        with contextlib.suppress(Exception):
            importlib.import_module(each)
    sys.meta_path.remove(blocked)
    return Seconds(by_test)


def survives(
    module: str, path: Path, tree: ast.Module, tests: Sequence[str], seconds: Seconds
) -> bool:
    """Whether the tests pass with this tree in place of the module."""
    child = os.fork()
    if child == 0:
        os.setsid()
        sys.meta_path.insert(0, _Loader(module, path, tree))
        os._exit(_run(tests, seconds))
    deadline = time.monotonic() + SECONDS
    while True:
        done, code = os.waitpid(child, os.WNOHANG)
        if done:
            return code == 0
        if time.monotonic() > deadline:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return False
        time.sleep(0.02)


def _run(tests: Sequence[str], seconds: Seconds) -> int:
    """The exit status of pytest, in a process of its own and without a word."""
    status = 1
    with contextlib.suppress(BaseException), contextlib.redirect_stdout(io.StringIO()):
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        # The libraries are loaded already; pytest would have rewritten the plugins among them.
        options = ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
        options += ["-x", "-q", "-n0", "-p", "no:cacheprovider", "-m", "not deep"]
        status = int(pytest.main([*options, *tests], plugins=[seconds]))
    return status


def main(arguments: list[str]) -> int:
    """Run every mutant of one module; print the survivors and the count."""
    parser = argparse.ArgumentParser(prog="python -m tools.mutants")
    parser.add_argument("module")
    parser.add_argument("tests", nargs="+")
    parser.add_argument("--lines", type=int, nargs="+", help="only the mutants of these lines")
    chosen = parser.parse_args(arguments)
    path = SOURCE / (chosen.module.replace(".", "/") + ".py")
    source = path.read_text(encoding="utf-8")
    seconds = measure(chosen.module, chosen.tests)
    # Else every mutant would seem to be noticed.
    same = ast.parse(source)
    if seconds is None or not survives(chosen.module, path, same, chosen.tests, seconds):
        print("the tests fail without any change", file=sys.stderr)
        return 2
    total, alive = 0, 0
    for mutant in mutants(source):
        if chosen.lines and mutant.line not in chosen.lines:
            continue
        total += 1
        if survives(chosen.module, path, mutant.tree, chosen.tests, seconds):
            alive += 1
            print(f"{path.name}:{mutant.line}: {mutant.change[:160]}", flush=True)
    print(f"{chosen.module}: {total} mutants, {alive} survived")
    return 1 if alive else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
