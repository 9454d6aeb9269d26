"""Import of the subject's own modules in the worker: plain or instrumented, from its files or from changed text.

A meta-path finder stands before the others, asks them where a module is, and takes over when that is a source file
of the project (or of a package named by --include). Everything else is imported as always.

The hard part is state. Each variant (plain, instrumented, with changed text) must start from modules that nobody has
used, yet third-party packages must stay loaded: re-importing them is slow and breaks identities that other packages
hold. So the subject's own modules are dropped from `sys.modules` before each load, while included packages are kept
per variant and put back when that variant returns. Code objects are cached by file, name and text: a fresh module
costs one `exec`.
Source: Python documentation, importlib ("Setting up an importer"), `linecache` (entries without a time are kept).
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import linecache
import os
import sys
import traceback
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import CodeType, ModuleType
from typing import Any

from chaossloth.errors import UsageError
from chaossloth.subject.channel import guard
from chaossloth.subject.context import ImportContext, own_modules

__all__ = ["Loader", "Variant"]

_IMPORT_EXTRA_S = 20.0
_CACHE_SIZE = 1024

_code_cache: OrderedDict[tuple[str, str, bool, str], tuple[CodeType, tuple[str, ...]]] = OrderedDict()
_included_modules: dict[tuple[Any, ...], dict[str, ModuleType]] = {}


@dataclass(frozen=True, slots=True)
class Variant:
    """Which text is run, and how."""

    instrumented: bool
    overrides: tuple[tuple[str, str], ...]  # (real path, text)


class Loader:
    """Loads one variant of the subject after the other.

    context:   how the file is imported (`locate`).
    include:   names of installed packages that are treated like the subject's own code.
    overrides: {path: text} that replaces the files' text, in memory only.
    skipped:   what the instrumentation left as it was, one sentence each, of all modules of the present variant.
    notes:     what a reader should know about the imports.
    """

    def __init__(
        self, context: ImportContext, include: Sequence[str] = (), overrides: Mapping[str, str] | None = None
    ) -> None:
        self.context = context
        self.notes: list[str] = []
        self._overrides = {os.path.realpath(path): text for path, text in (overrides or {}).items()}
        self._is_own = own_modules(context.root)
        self._include: dict[str, tuple[str, ...]] = {}
        self._finder = _Finder(self)
        self._module: ModuleType | None = None
        self._variant: Variant | None = None
        self._skipped: dict[str, tuple[str, ...]] = {}
        self._prepare_process()
        self._include = {name: _package_directories(name) for name in include}

    @property
    def module(self) -> ModuleType:
        """The subject's module as last loaded."""
        if self._module is None:
            return self.load(instrumented=False)
        return self._module

    @property
    def skipped(self) -> tuple[str, ...]:
        found = [f"{os.path.basename(file)}: {entry}" for file, entries in self._skipped.items() for entry in entries]
        return tuple(dict.fromkeys(found))

    def is_subject(self, filename: str) -> bool:
        """Whether code of this file is the subject's (own modules and included packages)."""
        return self._is_own(filename) or self._included_by(filename) is not None or filename == str(self.context.path)

    def load(self, instrumented: bool, overrides: Mapping[str, str] | None = None) -> ModuleType:
        """Import the subject anew and return its module.

        overrides: replaces the loader's changed text for this and later loads, where given.
        Raises UsageError when the import fails, with the place in the subject.
        """
        if overrides is not None:
            self._overrides = {os.path.realpath(path): text for path, text in overrides.items()}
        if self._finder not in sys.meta_path:
            self._prepare_process()
        variant = Variant(instrumented, tuple(sorted(self._overrides.items())))
        self._switch_included(variant)
        self._variant = variant
        self._finder.places.clear()
        self._skipped.clear()
        self._show_sources()
        return self.reload()

    def reload(self) -> ModuleType:
        """Execute the present variant's own modules again, so that their state is as after a first import."""
        if self._variant is None:
            return self.load(instrumented=False)
        self._forget_own()
        self._module = None
        guard.begin(extra_s=_IMPORT_EXTRA_S, what="the import")
        try:
            self._module = importlib.import_module(self.context.module_name)
        except MemoryError:
            raise
        except BaseException as error:  # a subject may raise anything while it is imported, SystemExit too
            raise UsageError(self._explain(error)) from error
        finally:
            guard.end()
        return self._module

    # --- what the finder and the source loader ask -------------------------------------------------------------

    def takes(self, name: str, filename: str | None) -> bool:
        return filename is not None and filename.endswith(".py") and self.is_subject(filename)

    def code_of(self, name: str, filename: str) -> CodeType:
        """Compiled code of one module; from the cache when text and variant are the same."""
        assert self._variant is not None
        text = self._text_of(filename)
        digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
        key = (filename, name, self._variant.instrumented, digest)
        if key not in _code_cache:
            _code_cache[key] = self._compile(text, filename, name)
            while len(_code_cache) > _CACHE_SIZE:
                _code_cache.popitem(last=False)
        _code_cache.move_to_end(key)
        code, self._skipped[filename] = _code_cache[key]
        return code

    def _compile(self, text: str, filename: str, name: str) -> tuple[CodeType, tuple[str, ...]]:
        assert self._variant is not None
        if not self._variant.instrumented:
            return compile(text, filename, "exec", dont_inherit=True), ()
        from chaossloth.subject.instrument import instrument

        result = instrument(text, filename, name)
        return result.code, tuple(result.skipped)

    def prepare_namespace(self, module: ModuleType) -> None:
        """Give instrumented code its one injected global."""
        assert self._variant is not None
        if self._variant.instrumented:
            from chaossloth.subject import record

            module.__dict__["__chaossloth__"] = record.hooks

    def _text_of(self, filename: str) -> str:
        text = self._overrides.get(os.path.realpath(filename))
        if text is not None:
            return text
        with open(filename, "rb") as file:
            return importlib.util.decode_source(file.read())

    # --- process and module table ------------------------------------------------------------------------------

    def _prepare_process(self) -> None:
        _Finder.uninstall()
        sys.meta_path.insert(0, self._finder)
        first = [d for d in self.context.sys_path if d]
        sys.path[:] = [*first, *(d for d in sys.path if d not in first)]
        sys.path += [d for d in self.context.sys_path_last if d not in sys.path]
        sys.argv[:] = [str(self.context.path)]
        importlib.invalidate_caches()
        present = sys.modules.get(self.context.module_name.partition(".")[0])
        if present is not None and not self._is_ours(present) and not self._own_package(present):
            raise UsageError(
                f"{self.context.path.name} would be imported as {self.context.module_name!r}, "
                f"which is already a module of this process ({_file_of(present)}); rename the file"
            )

    def _is_ours(self, module: ModuleType) -> bool:
        return isinstance(getattr(getattr(module, "__spec__", None), "loader", None), _SourceLoader)

    def _own_package(self, module: ModuleType) -> bool:
        file = _file_of(module)
        return file is not None and self.is_subject(file)

    def _forget_own(self) -> None:
        """Drop the subject's own modules (never included packages) from the module table."""
        for name, module in list(sys.modules.items()):
            spec_loader = getattr(getattr(module, "__spec__", None), "loader", None)
            if isinstance(spec_loader, _SourceLoader) and self._included_by(spec_loader.path) is None:
                del sys.modules[name]
                _detach(name)

    def _included_by(self, filename: str) -> str | None:
        for name, directories in self._include.items():
            if any(filename == d or filename.startswith(d + os.sep) for d in directories):
                return name
        return None

    def _included_key(self, variant: Variant | None) -> tuple[Any, ...]:
        if variant is None:
            return ("as imported before",)
        changed = tuple((path, text) for path, text in variant.overrides if self._included_by(path) is not None)
        return (variant.instrumented, changed)

    def _switch_included(self, variant: Variant) -> None:
        """Put the included packages of another variant aside, and those of this one back."""
        old, new = self._included_key(self._variant), self._included_key(variant)
        if not self._include or old == new:
            return
        names = [n for n in sys.modules if any(n == i or n.startswith(i + ".") for i in self._include)]
        _included_modules[old] = {name: sys.modules.pop(name) for name in names}
        sys.modules.update(_included_modules.get(new, {}))
        if len(_included_modules) > 8:
            _included_modules.pop(next(iter(_included_modules)))

    def _show_sources(self) -> None:
        """Tracebacks show the text that runs: changed text is registered, files that changed back are read again."""
        for path in [p for p, entry in linecache.cache.items() if len(entry) == 4 and entry[1] is None]:
            if path in _shown:
                del linecache.cache[path]
        _shown.clear()
        for path, text in self._overrides.items():
            for name in {path, str(self.context.path) if os.path.realpath(self.context.path) == path else path}:
                linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
                _shown.add(name)
        linecache.checkcache()

    def _explain(self, error: BaseException) -> str:
        name = self.context.path.name
        frames = traceback.extract_tb(error.__traceback__)
        own = [frame for frame in frames if self.is_subject(frame.filename)]
        place = f" ({own[-1].filename}:{own[-1].lineno})" if own else ""
        if isinstance(error, SyntaxError) and error.filename:
            return f"{error.filename}:{error.lineno} does not parse: {error.msg}; correct it first"
        if isinstance(error, SystemExit):
            return (
                f"{name} ends the process while it is imported{place}; "
                "put what only a script should do under if __name__ == '__main__':"
            )
        if isinstance(error, ModuleNotFoundError):
            return (
                f"{name} cannot be imported: {error}{place}; install it for {sys.executable}, "
                "or run chaossloth with the interpreter of the project's own environment"
            )
        text = str(error).strip().splitlines()
        return f"{name} cannot be imported: {type(error).__qualname__}: {text[0] if text else ''}{place}"


_shown: set[str] = set()


class _Finder(importlib.abc.MetaPathFinder):
    """Asks the finders behind it where a module is; takes it over when it is the subject's."""

    def __init__(self, owner: Loader) -> None:
        self.owner = owner
        self.places: dict[str, tuple[str, list[str] | None]] = {}  # name -> file, package directories

    @staticmethod
    def uninstall() -> None:
        sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, _Finder)]

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        place = self.places.get(fullname) or self._locate(fullname, path, target)
        if place is None:
            return None
        filename, locations = place
        loader = _SourceLoader(self.owner, fullname, filename)
        return importlib.util.spec_from_file_location(
            fullname, filename, loader=loader, submodule_search_locations=None if locations is None else list(locations)
        )

    def _locate(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None
    ) -> tuple[str, list[str] | None] | None:
        context = self.owner.context
        if fullname == context.module_name:
            file = str(context.path)
            locations = [os.path.dirname(file)] if context.path.name == "__init__.py" else None
            self.places[fullname] = (file, locations)
            return self.places[fullname]
        for finder in sys.meta_path:
            if finder is self:
                continue
            spec = finder.find_spec(fullname, path, target)
            if spec is not None:
                break
        else:
            return None
        if not isinstance(spec.loader, importlib.machinery.SourceFileLoader) or not self.owner.takes(
            fullname, spec.origin
        ):
            return None
        assert spec.origin is not None
        found = spec.submodule_search_locations
        self.places[fullname] = (spec.origin, None if found is None else list(found))
        return self.places[fullname]


class _SourceLoader(importlib.abc.SourceLoader):
    """Executes one module from the owner's text and code cache; writes no byte code."""

    def __init__(self, owner: Loader, fullname: str, path: str) -> None:
        self._owner = owner
        self._fullname = fullname
        self.path = path

    def get_filename(self, fullname: str) -> str:
        return self.path

    def get_data(self, path: str | bytes) -> bytes:
        """Bytes of a file beside the module (pkgutil.get_data)."""
        with open(path, "rb") as file:
            return file.read()

    def get_source(self, fullname: str) -> str:
        return self._owner._text_of(self.path)

    def get_code(self, fullname: str) -> CodeType:
        return self._owner.code_of(fullname, self.path)

    def exec_module(self, module: ModuleType) -> None:
        code = self._owner.code_of(module.__name__, self.path)
        self._owner.prepare_namespace(module)
        exec(code, module.__dict__)


def _detach(name: str) -> None:
    """Remove a forgotten submodule from its package, or `from package import name` would find the old one."""
    parent, _, child = name.rpartition(".")
    package = sys.modules.get(parent) if parent else None
    if package is not None:
        with contextlib.suppress(AttributeError):
            delattr(package, child)


def _package_directories(name: str) -> tuple[str, ...]:
    """Directories (or the one file) of an installed package. Raises UsageError when there is no Python source."""
    if name.partition(".")[0] in sys.stdlib_module_names:
        raise UsageError(f"--include {name}: modules of the standard library cannot be included")
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        spec = None
    if spec is None:
        raise UsageError(f"--include {name}: no package of that name is installed for {sys.executable}")
    directories: Iterable[str] = spec.submodule_search_locations or ([spec.origin] if spec.origin else [])
    found = tuple(os.path.abspath(d) for d in directories)
    if not found or not (spec.submodule_search_locations or found[0].endswith(".py")):
        raise UsageError(f"--include {name}: it has no Python source that could be instrumented ({spec.origin})")
    return found


def _file_of(module: ModuleType) -> str | None:
    file = getattr(module, "__file__", None)
    return file if isinstance(file, str) else None
