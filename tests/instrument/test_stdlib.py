"""Real code: the standard library compiles instrumented, and instrumented copies of some modules compute the same."""

from __future__ import annotations

import contextlib
import dataclasses
import heapq
import importlib.util
import io
import os
import pathlib
import sys
import textwrap
import types
from typing import Any

import pytest

from chaossloth.subject.instrument import instrument
from tests.instrument.support import fresh_name, load_instrumented, recording

LIBRARY = pathlib.Path(os.__file__).parent
PACKAGES = ("asyncio", "json", "concurrent/futures", "logging", "unittest")
MODULES = (
    "abc argparse ast bisect calendar cmd codecs configparser contextlib copy csv dataclasses datetime decimal difflib"
    " dis enum fractions functools heapq inspect ipaddress locale operator optparse"
    " pickle pprint queue random selectors"
    " shlex statistics string textwrap threading traceback types typing uuid weakref"
)
FILES = [
    *sorted(path for package in PACKAGES for path in LIBRARY.glob(f"{package}/*.py")),
    *(LIBRARY / f"{name}.py" for name in MODULES.split()),
]


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(LIBRARY)))
def test_compiles_whole(path: pathlib.Path) -> None:
    made = instrument(path.read_text(encoding="utf-8"), f"/copy/{path.name}", fresh_name())
    assert made.skipped == ()
    assert isinstance(made.code, types.CodeType)


def _copy(name: str) -> Any:
    spec = importlib.util.find_spec(name)
    assert spec is not None and spec.origin is not None
    alias = fresh_name()
    module = load_instrumented_in_package(
        pathlib.Path(spec.origin).read_text(encoding="utf-8"), alias, spec.parent or ""
    )
    return module


def load_instrumented_in_package(source: str, alias: str, package: str) -> types.ModuleType:
    """Like `load_instrumented`, for a module with relative imports."""
    from chaossloth.subject import record

    module = types.ModuleType(alias)
    module.__package__ = package
    module.__dict__["__chaossloth__"] = record.hooks
    sys.modules[alias] = module
    exec(instrument(source, f"/copy/{alias}.py", alias).code, module.__dict__)
    return module


def test_textwrap() -> None:
    copy = _copy("textwrap")
    text = "  The quick brown fox\n\n  jumped over the lazy dog, well-known for its-laziness.  \n" * 4
    with recording() as raw:
        for width in (10, 33, 70):
            assert copy.wrap(text, width) == textwrap.wrap(text, width)
            assert copy.fill(text, width, initial_indent="* ", max_lines=3) == textwrap.fill(
                text, width, initial_indent="* ", max_lines=3
            )
        assert copy.dedent(text) == textwrap.dedent(text)
        assert copy.shorten(text, 40) == textwrap.shorten(text, 40)
    assert len(raw) > 500


def _pure_decoder(module: Any) -> Any:
    """A decoder without the C parts, which would leave most of the module unused."""
    from json.scanner import py_make_scanner  # type: ignore[attr-defined]

    decoder = module.JSONDecoder()
    decoder.parse_object, decoder.parse_array = module.JSONObject, module.JSONArray
    decoder.parse_string = module.py_scanstring
    decoder.scan_once = py_make_scanner(decoder)
    return decoder


def test_json_decoder() -> None:
    import json.decoder

    copy = _copy("json.decoder")
    mine, theirs = _pure_decoder(copy), _pure_decoder(json.decoder)
    document = '{"a": [1, 2.5, {"b": null}], "c": "x\\u00e9\\n\\ud834\\udd1e", "d": {}, "e": [true, false]}'
    with recording():
        assert mine.decode(document) == theirs.decode(document) == json.loads(document)
        for bad in ('{"a" 1}', '{"a": 1,}', "[1 2]", '"\\x"', '{"a": "b', "[1, 2] 3"):
            with pytest.raises(copy.JSONDecodeError) as found:
                mine.decode(bad)
            with pytest.raises(json.JSONDecodeError) as expected:
                theirs.decode(bad)
            assert str(found.value) == str(expected.value)


def test_heapq() -> None:
    source = pathlib.Path(str(heapq.__file__)).read_text(encoding="utf-8")
    copy = load_instrumented(
        source.replace("from _heapq import", "from no_c_heapq import"), fresh_name(), "/copy/heapq.py"
    )
    numbers = [(7 * i) % 23 for i in range(60)]
    with recording() as raw:
        mine, theirs = list(numbers), list(numbers)
        copy.heapify(mine)
        heapq.heapify(theirs)
        assert mine == theirs
        assert [copy.heappop(mine) for _ in range(30)] == [heapq.heappop(theirs) for _ in range(30)]
        copy.heappush(mine, 3)
        assert copy.heapreplace(mine, 50) == 3
        assert copy.nsmallest(5, numbers, key=lambda x: -x) == heapq.nsmallest(5, numbers, key=lambda x: -x)
        assert copy.nlargest(4, numbers) == heapq.nlargest(4, numbers)
        assert list(copy.merge([1, 4], [2, 3], reverse=False)) == [1, 2, 3, 4]
    assert len(raw) > 500


def test_dataclasses() -> None:
    copy = _copy("dataclasses")

    def exercise(d: Any) -> list[Any]:
        @d.dataclass(order=True)
        class Base:
            x: int
            y: list[int] = d.field(default_factory=list, compare=False)

        @d.dataclass(frozen=True, slots=True, kw_only=True)
        class Frozen:
            a: int = 1
            b: str = "b"

        b = Base(1, [2])
        out: list[Any] = [repr(b).rpartition(".")[2], b < Base(2), d.asdict(b), d.astuple(b), d.replace(b, x=5).x]
        f = Frozen(a=3)
        out += [hash(f) == hash(Frozen(a=3)), f == Frozen(a=3), [x.name for x in d.fields(f)]]
        with contextlib.suppress(d.FrozenInstanceError):
            f.a = 2
        try:
            d.dataclass(type("Bad", (), {"__annotations__": {"l": list}, "l": []}))
        except ValueError as error:
            out.append(str(error))
        return out

    with recording():
        assert exercise(copy) == exercise(dataclasses)


def test_csv_and_configparser_and_string_template() -> None:
    with recording():
        parser = _copy("configparser").ConfigParser()
        parser.read_string("[a]\nx = 1\ny = %(x)s2\n[b]\nlist =\n  p\n  q\n")
        assert parser["a"]["y"] == "12" and parser["b"]["list"].split() == ["p", "q"]
        out = io.StringIO()
        parser.write(out)
        assert out.getvalue().startswith("[a]\nx = 1\n")
        template = _copy("string").Template("$who likes ${what}, $$5")
        assert template.substitute(who="tim", what="kung pao") == "tim likes kung pao, $5"
